"""Plane encoders by name. A new one is a module beside this and a line in `_ENCODERS`.

Most make planes; those of networks that read squares or characters make tokens. All are called planes here, as in a
contract: what a position is for the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.encoding import fen_tokens, lc0_planes, maia_planes, movemask_planes, pgx_planes
from service.encoding.lc0_planes import HistoryFill
from service.encoding.position import Position
from service.errors import ContractError


@dataclass(frozen=True, slots=True)
class PlaneEncoder:
    """Position → an array of this shape and dtype."""

    name: str
    shape: tuple[int, ...]
    uses_history: bool
    encode: Callable[[Position], NDArray[Any]]
    dtype: str = "float32"


def plane_encoder(name: str, history_fill: HistoryFill = HistoryFill.FEN_ONLY) -> PlaneEncoder:
    """The encoder of that name; raises ContractError naming those there are."""
    if name == "lc0-112":
        return PlaneEncoder(name, _LC0_SHAPE, True, lambda position: lc0_planes.encode(position, history_fill))
    if name not in _ENCODERS:
        raise ContractError(f"no plane encoder {name!r}; there are {', '.join(plane_encoder_names())}")
    return _ENCODERS[name]


def plane_encoder_names() -> tuple[str, ...]:
    """Names of all plane encoders."""
    return tuple(sorted((*_ENCODERS, "lc0-112")))


_LC0_SHAPE = (lc0_planes.PLANES, 8, 8)
_ENCODERS: dict[str, PlaneEncoder] = {
    encoder.name: encoder
    for encoder in (
        PlaneEncoder("fen-77", (fen_tokens.LENGTH,), False, fen_tokens.encode, np.dtype(np.int32).name),
        PlaneEncoder("maia2-18", (maia_planes.MAIA2_PLANES, 8, 8), False, maia_planes.encode_maia2),
        PlaneEncoder("maia3-tokens-12", (64, maia_planes.PIECES), False, maia_planes.encode_maia3),
        PlaneEncoder("maia3-tokens-96", (64, 96), True, maia_planes.encode_maia3_history),
        PlaneEncoder("movemask-18", (movemask_planes.PLANES, 8, 8), False, movemask_planes.encode),
        PlaneEncoder("pgx-119", (8, 8, pgx_planes.PLANES), True, pgx_planes.encode),
    )
}
