"""The probes: positions of real games, grouped by what they test, with the moves that people played there.

`training/probes.py` makes `probes.jsonl.gz` from lichess games (CC0) that are not in our training data, except for the
openings, which are counted over many games.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

import chess

from movemask.board.position import Elo, Position

FILE = "probes.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Probe:
    """A position with its history, how often each move was played in it, and how the game ended for the mover."""

    group: str
    position: Position
    played: Mapping[chess.Move, int]
    elo: Elo | None
    result: int | None  # 0 win, 1 draw, 2 loss

    @property
    def tags(self) -> frozenset[str]:
        """Its group, and further properties."""
        board = self.position.board
        tags = {self.group, "black" if board.turn == chess.BLACK else "white"}
        if any(map(board.is_capture, self.played)):
            tags.add("capture")
        if board.turn == chess.BLACK and self.group in ("opening", "general"):
            tags.add(f"{self.group}_black")
        return frozenset(tags)


@cache
def probes() -> tuple[Probe, ...]:
    """All probes, in the order of the file."""
    packed = resources.files("movemask.tasks").joinpath(FILE).read_bytes()
    return tuple(_probe(json.loads(line)) for line in gzip.decompress(packed).splitlines())


def _probe(row: Mapping[str, object]) -> Probe:
    fen, moves, played, elo = row["fen"], row["moves"], row["played"], row.get("elo")
    assert isinstance(fen, str)
    assert isinstance(moves, list)
    assert isinstance(played, dict)
    assert elo is None or isinstance(elo, list)
    result = row.get("result")
    assert result is None or isinstance(result, int)
    return Probe(
        str(row["group"]),
        Position.read(fen, moves),
        {chess.Move.from_uci(uci): count for uci, count in played.items()},
        Elo(*map(float, elo)) if elo else None,
        result,
    )
