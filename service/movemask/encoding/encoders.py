"""Plane encoders by name. A new one is a module beside this and a line in `_ENCODERS`.

Most make planes; those of networks that read squares or characters make tokens. Here and in contracts both are called
planes: the input that stands for a position.
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
from movemask.encoding import lc0, movemask_planes, published
from movemask.encoding.lc0 import HistoryFill
from movemask.errors import ContractError


@dataclass(frozen=True, slots=True)
class PlaneEncoder:
    """Encodes positions as an array `[B, *shape]` of this dtype."""

    name: str
    shape: tuple[int, ...]
    uses_history: bool
    encode_all: Callable[[Sequence[Position], Boards], NDArray[Any]]
    dtype: str = "float32"

    def encode(self, position: Position) -> NDArray[Any]:
        """The input of a single position."""
        planes: NDArray[Any] = self.encode_all([position], Boards.of([position.board]))[0]
        return planes


def plane_encoder(name: str, history_fill: HistoryFill = HistoryFill.FEN_ONLY) -> PlaneEncoder:
    """The encoder of that name; raises ContractError, which lists the known names."""
    if name == "lc0-112":
        return PlaneEncoder(name, (lc0.PLANES, 8, 8), True, partial(lc0.encode_all, fill=history_fill))
    if name not in _ENCODERS:
        raise ContractError(f"no plane encoder {name!r}; there are {', '.join(plane_encoder_names())}")
    return _ENCODERS[name]


def plane_encoder_names() -> tuple[str, ...]:
    """Names of all plane encoders."""
    return tuple(sorted((*_ENCODERS, "lc0-112")))


def _each(encode: Callable[[Position], NDArray[Any]]) -> Callable[[Sequence[Position], Boards], NDArray[Any]]:
    """Encodes positions one by one; for inputs that are rarely used."""
    return lambda positions, _: np.stack([encode(position) for position in positions])


_ENCODERS: dict[str, PlaneEncoder] = {
    encoder.name: encoder
    for encoder in (
        PlaneEncoder("fen-77", (published.FEN_LENGTH,), False, _each(published.encode_fen), "int32"),
        PlaneEncoder("maia2-18", (published.MAIA2_PLANES, 8, 8), False, published.encode_maia2),
        PlaneEncoder("maia3-tokens-12", (64, published.PIECES), False, published.encode_maia3),
        PlaneEncoder("maia3-tokens-96", (64, 96), True, _each(published.encode_maia3_history)),
        PlaneEncoder("movemask-tokens-99", (64, movemask_planes.TOKENS), True, movemask_planes.encode_tokens),
        PlaneEncoder("pgx-119", (8, 8, published.PGX_PLANES), True, _each(published.encode_pgx)),
    )
}
