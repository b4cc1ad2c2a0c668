"""Shards: games packed at little more than a byte a ply, and read back with every byte checked.

A ply is the slot of its move in `movemask-1880` (eleven bits) and whether en passant was legal before it
(one bit): with that each position follows from the last without generating moves (`training.replay`). A shard is a
zstandard frame with a checksum around numpy's own format, written beside its place and renamed into it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import chess
import numpy as np
import zstandard
from numpy.typing import NDArray

from movemask.encoding.vocabularies import vocabulary
from training.config import MANY_PLAYERS
from training.games import Game

VOCABULARY = "movemask-1880"
SYSTEMS = ("lichess", "chesscom", "fide")
EN_PASSANT = 1 << 11  # the flag above the slot
LONGEST = 2000  # plies that are kept of a game
MAX_UNPACKED_BYTES = 1 << 28  # bytes that a shard may unpack to
GAME = np.dtype(
    [
        ("white_elo", "<i2"),
        ("black_elo", "<i2"),
        ("result", "i1"),  # 0 White won, 1 draw, 2 Black won, -1 unknown
        ("system", "u1"),  # of SYSTEMS
        ("many_players", "?"),
        ("plies", "<u2"),
    ]
)


class ShardError(Exception):
    """A shard that cannot be read; the text names the file."""


@dataclass(frozen=True)
class Shard:
    """games GAME `[G]`, plies uint16 `[P]` one game after another."""

    games: NDArray[np.void]
    plies: NDArray[np.uint16]


def pack(game: Game) -> tuple[tuple[object, ...], NDArray[np.uint16]]:
    """A row of GAME and the plies, at most LONGEST."""
    board = chess.Board()
    slots = vocabulary(VOCABULARY)
    plies = []
    for move in game.moves[:LONGEST]:
        flag = EN_PASSANT if board.ep_square is not None and board.has_legal_en_passant() else 0
        plies.append(slots.slot(move, board) | flag)
        board.push(move)
    result = {"1-0": 0, "1/2-1/2": 1, "0-1": 2}.get(game.result, -1)
    system = SYSTEMS.index(game.rating_system)
    row = (game.white_elo, game.black_elo, result, system, game.source in MANY_PLAYERS, len(plies))
    return row, np.array(plies, dtype=np.uint16)


def write_shard(file: Path, rows: Sequence[tuple[object, ...]], plies: Sequence[NDArray[np.uint16]]) -> None:
    """Writes a shard whole or not at all."""
    all_plies = np.concatenate(plies).astype("<u2") if plies else np.empty(0, dtype="<u2")
    buffer = io.BytesIO()
    # the two bytes of a ply lie apart: zstandard finds more in like beside like
    np.savez(buffer, games=np.array(rows, dtype=GAME), plies=all_plies.view(np.uint8).reshape(-1, 2).T)
    half = file.with_suffix(".part")
    half.write_bytes(zstandard.ZstdCompressor(level=19, write_checksum=True).compress(buffer.getvalue()))
    os.replace(half, file)


def read_shard(file: Path) -> Shard:
    """Raises ShardError for a file that is cut off, changed or something else."""
    try:
        packed = file.read_bytes()
        unpacked = zstandard.ZstdDecompressor().decompress(packed, max_output_size=MAX_UNPACKED_BYTES)
        with np.load(io.BytesIO(unpacked), allow_pickle=False) as arrays:
            games, planes = arrays["games"], arrays["plies"]
    except (OSError, ValueError, KeyError, EOFError, zstandard.ZstdError) as error:
        raise ShardError(f"{file}: not a whole shard: {error}") from None
    if games.dtype != GAME or planes.dtype != np.uint8 or planes.ndim != 2 or len(planes) != 2:
        raise ShardError(f"{file}: not a shard of this version")
    plies: NDArray[np.uint16] = np.ascontiguousarray(planes.T).view("<u2").reshape(-1)
    if games["plies"].sum() != len(plies) or (plies & 0x7FF).max(initial=0) >= len(vocabulary(VOCABULARY)):
        raise ShardError(f"{file}: its games and its plies do not agree")
    return Shard(games, plies)
