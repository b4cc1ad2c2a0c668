"""Plane encoders by name. A new one is a module beside this and a line in `_ENCODERS`.

Most make planes; those of networks that read squares or characters make tokens. All are called planes here, as in a
contract: what a position is for the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import Boards
from movemask.board.position import Position
from movemask.errors import ContractError
from movemask.planes import fen_tokens
from movemask.planes import lc0 as lc0_planes
from movemask.planes import maia as maia_planes
from movemask.planes import movemask18 as movemask_planes
from movemask.planes import pgx as pgx_planes
from movemask.planes.lc0 import HistoryFill


@dataclass(frozen=True, slots=True)
class PlaneEncoder:
    """Positions → an array `[B, *shape]` of this dtype."""

    name: str
    shape: tuple[int, ...]
    uses_history: bool
    encode_all: Callable[[Sequence[Position], Boards], NDArray[Any]]
    dtype: str = "float32"

    def encode(self, position: Position) -> NDArray[Any]:
        """One position's, of this shape."""
        found: NDArray[Any] = self.encode_all([position], Boards.of([position.board]))[0]
        return found


def plane_encoder(name: str, history_fill: HistoryFill = HistoryFill.FEN_ONLY) -> PlaneEncoder:
    """The encoder of that name; raises ContractError naming those there are."""
    if name == "lc0-112":
        return PlaneEncoder(name, _LC0_SHAPE, True, partial(lc0_planes.encode_all, fill=history_fill))
    if name not in _ENCODERS:
        raise ContractError(f"no plane encoder {name!r}; there are {', '.join(plane_encoder_names())}")
    return _ENCODERS[name]


def plane_encoder_names() -> tuple[str, ...]:
    """Names of all plane encoders."""
    return tuple(sorted((*_ENCODERS, "lc0-112")))


def _each(encode: Callable[[Position], NDArray[Any]]) -> Callable[[Sequence[Position], Boards], NDArray[Any]]:
    """One after the other: for inputs that are seldom asked for."""
    return lambda positions, _: np.stack([encode(position) for position in positions])


_LC0_SHAPE = (lc0_planes.PLANES, 8, 8)
_ENCODERS: dict[str, PlaneEncoder] = {
    encoder.name: encoder
    for encoder in (
        PlaneEncoder("fen-77", (fen_tokens.LENGTH,), False, _each(fen_tokens.encode), np.dtype(np.int32).name),
        PlaneEncoder("maia2-18", (maia_planes.MAIA2_PLANES, 8, 8), False, _each(maia_planes.encode_maia2)),
        PlaneEncoder("maia3-tokens-12", (64, maia_planes.PIECES), False, _each(maia_planes.encode_maia3)),
        PlaneEncoder("maia3-tokens-96", (64, 96), True, _each(maia_planes.encode_maia3_history)),
        PlaneEncoder("movemask-18", (movemask_planes.PLANES, 8, 8), False, movemask_planes.encode_all),
        PlaneEncoder("pgx-119", (8, 8, pgx_planes.PLANES), True, _each(pgx_planes.encode)),
    )
}
