"""Plane encoders of other packages, by the entry point group `movemask.encoders`.

An entry point gives an object with `shape` (without the batch), `dtype`, `uses_history` and `encode(positions)`, which
returns an array `[B, *shape]`. It is imported when a contract or a caller names it, and not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.position import Position
from movemask.errors import ContractError, InferenceFailed

GROUP = "movemask.encoders"


@dataclass(frozen=True, slots=True)
class EncoderPosition:
    """A position as an encoder of another package gets it. Do not change its boards.

    board : the position
    history : up to eight known boards, newest first; the first is `board`
    """

    board: chess.Board
    history: tuple[chess.Board, ...]


class InstalledEncoder(Protocol):
    """What an entry point of the group must give."""

    shape: tuple[int, ...]
    dtype: str
    uses_history: bool

    def encode(self, positions: Sequence[EncoderPosition]) -> NDArray[Any]:
        """Returns the input of the positions, `[B, *shape]`."""
        ...


@cache
def installed_encoder(name: str) -> InstalledEncoder | None:
    """Returns the encoder of an installed package; None if no package has the name. Raises ContractError."""
    points = list(entry_points(group=GROUP, name=name))
    if not points:
        return None
    where = ", ".join(point.value for point in points)
    if len(points) > 1:
        raise ContractError(f"plane encoder {name!r}: more than one package has it: {where}")
    try:
        encoder: InstalledEncoder = points[0].load()
        shape, dtype = tuple(map(int, encoder.shape)), np.dtype(encoder.dtype)
        usable = isinstance(encoder.uses_history, bool) and callable(encoder.encode)
    except Exception as error:
        raise ContractError(
            f"plane encoder {name!r} cannot be loaded from {where}: {type(error).__name__}: {error}; it needs shape, "
            "dtype, uses_history and encode"
        ) from None
    if not usable or dtype.kind not in "fiub" or not shape or min(shape) < 1:
        raise ContractError(
            f"plane encoder {name!r} of {where}: shape must be sizes without the batch, dtype a number's, uses_history "
            "true or false, and encode a function"
        )
    return encoder


def installed_names() -> tuple[str, ...]:
    """Returns the names of the encoders of installed packages."""
    return tuple(sorted(entry_points(group=GROUP).names))


def encoded(name: str, encoder: InstalledEncoder, positions: Sequence[Position]) -> NDArray[Any]:
    """Returns what an encoder returns for positions.

    Raises InferenceFailed for another shape or dtype than it declares.
    """
    inputs = [
        EncoderPosition(position.board, tuple(entry.board for entry in position.history()))
        for position in positions
    ]
    try:
        planes = encoder.encode(inputs)
    except Exception as error:
        raise InferenceFailed(
            f"plane encoder {name!r}: encode failed: {type(error).__name__}: {error}"
        ) from error
    expected = (len(positions), *encoder.shape)
    if (
        not isinstance(planes, np.ndarray)
        or planes.shape != expected
        or planes.dtype != encoder.dtype
    ):
        got = f"{planes.dtype} {planes.shape}" if isinstance(planes, np.ndarray) else type(planes)
        raise InferenceFailed(
            f"plane encoder {name!r}: encode gave {got}; it declares {encoder.dtype} {expected}"
        )
    return planes
