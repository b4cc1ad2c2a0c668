"""Reads the positions of a chunk: games played through, FENs and EPDs line by line."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import chess

from movemask.board.moves import has_legal_move
from movemask.board.pgn import Game, read_games
from movemask.board.position import Elo, Position
from movemask.bulk.read import Chunk
from movemask.errors import MovemaskError
from movemask.leakage.kinds import KINDS

#: Examples kept of what was skipped, and the characters of each.
EXAMPLES, _EXAMPLE = 20, 300


@dataclass(frozen=True, slots=True)
class Choice:
    """Which positions are audited, and how.

    `every` takes every Nth ply of a game from `first_ply` on; `elo` is for positions without ratings.
    """

    kinds: tuple[str, ...] = KINDS
    least: float = 1e-4
    first_ply: int = 0
    every: int = 1
    chess960: bool = False
    elo: Elo | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A position, where it came from, and the move that was played there."""

    position: Position
    source: str
    item: int
    ply: int
    elo: Elo | None
    played: chess.Move | None


@dataclass(slots=True)
class Skipped:
    """Games and positions that were not audited: counts by reason, and a few examples."""

    reasons: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, reason: str, example: str) -> None:
        """Counts one; the example is shortened and made printable."""
        self.reasons[reason] += 1
        if len(self.examples) < EXAMPLES:
            shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in example[:_EXAMPLE])
            self.examples.append(shown + ("…" if len(example) > _EXAMPLE else ""))


def samples(chunk: Chunk, choice: Choice, skipped: Skipped) -> Iterator[Sample]:
    """The positions of a chunk; finished games and what cannot be read are skipped and counted."""
    read = _game_samples if chunk.form == "pgn" else _line_samples
    for number, text in chunk.items:
        yield from read(text, chunk.source, number, choice, skipped)


def _game_samples(text: str, source: str, number: int, choice: Choice, skipped: Skipped) -> Iterator[Sample]:
    for game in read_games(io.StringIO(text)):  # one, or several without headers
        if not isinstance(game, Game):
            why = re.sub(r"game \d+", f"game {number}", str(game), count=1)
            skipped.add("game that cannot be played through", f"{source}: {why}")
            continue
        for index, ply in enumerate(game.plies):
            if index >= choice.first_ply and (index - choice.first_ply) % choice.every == 0:
                yield Sample(ply.position, source, number, index, ply.elo or choice.elo, ply.played)


def _line_samples(text: str, source: str, number: int, choice: Choice, skipped: Skipped) -> Iterator[Sample]:
    try:
        position = Position.read(_fen_of(text), chess960=choice.chess960)
    except MovemaskError as error:
        skipped.add("line that is no position", f"{source}: line {number}: {error}")
        return
    if not has_legal_move(position.board):
        skipped.add("finished game", f"{source}: line {number}: {position.fen} has no legal move")
        return
    yield Sample(position, source, number, position.board.ply(), choice.elo, None)


def _fen_of(text: str) -> str:
    """The FEN of a line, without EPD operations and without text after a separator."""
    fields = re.split(r"[;|,\t]", text.strip('"'), maxsplit=1)[0].split()
    counters = [text for text in fields[4:6] if text.isdigit()]
    return " ".join([*fields[:4], *counters] if len(counters) == 2 else fields[:4])
