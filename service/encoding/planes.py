"""Plane encoders by name. A new one is a module beside this and a line in `_ENCODERS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.encoding import lc0_planes, movemask_planes
from service.encoding.lc0_planes import HistoryFill
from service.encoding.position import Position
from service.errors import ContractError


@dataclass(frozen=True, slots=True)
class PlaneEncoder:
    """Position → float32 planes `[C, 8, 8]`."""

    name: str
    planes: int
    uses_history: bool
    encode: Callable[[Position], NDArray[np.float32]]


def plane_encoder(name: str, history_fill: HistoryFill = HistoryFill.FEN_ONLY) -> PlaneEncoder:
    """The encoder of that name; raises ContractError naming those there are."""
    if name not in _ENCODERS:
        raise ContractError(f"no plane encoder {name!r}; there are {', '.join(sorted(_ENCODERS))}")
    return _ENCODERS[name](history_fill)


def plane_encoder_names() -> tuple[str, ...]:
    """Names of all plane encoders."""
    return tuple(sorted(_ENCODERS))


def _lc0(fill: HistoryFill) -> PlaneEncoder:
    return PlaneEncoder("lc0-112", lc0_planes.PLANES, True, lambda position: lc0_planes.encode(position, fill))


def _movemask(_: HistoryFill) -> PlaneEncoder:
    return PlaneEncoder("movemask-18", movemask_planes.PLANES, False, movemask_planes.encode)


_ENCODERS: dict[str, Callable[[HistoryFill], PlaneEncoder]] = {"lc0-112": _lc0, "movemask-18": _movemask}
