"""movemask: masked policy inference for chess networks, and an audit of what leaks without the mask.

The names below and those of `movemask.testing` and `movemask.schemas` are the public Python API (docs/python.md); every
other module is private and may change. The names are imported on first use, so that `import movemask` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from movemask.version import __version__

if TYPE_CHECKING:
    from movemask.client.http import AsyncClient, Client
    from movemask.errors import ApiError, InvalidResponse, MovemaskError, ServiceUnreachable
    from movemask.local.distribution import Policy, Value
    from movemask.local.network import Logits, Network, load, planes, slots, vocabulary

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "InvalidResponse",
    "Logits",
    "MovemaskError",
    "Network",
    "Policy",
    "ServiceUnreachable",
    "Value",
    "__version__",
    "load",
    "planes",
    "slots",
    "vocabulary",
]

_PLACES = {
    "ApiError": "movemask.errors",
    "AsyncClient": "movemask.client.http",
    "Client": "movemask.client.http",
    "InvalidResponse": "movemask.errors",
    "Logits": "movemask.local.network",
    "MovemaskError": "movemask.errors",
    "Network": "movemask.local.network",
    "Policy": "movemask.local.distribution",
    "ServiceUnreachable": "movemask.errors",
    "Value": "movemask.local.distribution",
    "load": "movemask.local.network",
    "planes": "movemask.local.network",
    "slots": "movemask.local.network",
    "vocabulary": "movemask.local.network",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'movemask' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
