"""Games as their files hold them, one at a time: CSV as in the data's README, and PGN as lichess publishes it.

`records` only cuts a file into games, so that one process can feed several; `parse` reads a game and says what is
wrong with it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import chess
import chess.pgn
import zstandard

from movemask.board.pgn import rating_of
from training.config import Data

LICHESS_DATABASE = "lichess-database"
WORDS = {"bullet": 60, "blitz": 300, "rapid": 600, "classical": 1800}

Record = dict[str, str] | str  # a row of a CSV, or the text of a game


@dataclass(frozen=True)
class Game:
    """A game from the usual starting position that a run wants; `moves` are UCI, castling as python-chess writes it."""

    white_elo: int
    black_elo: int
    rating_system: str
    result: str
    source: str
    moves: list[chess.Move]


class Unwanted(Exception):
    """A game that is left out; the text is the reason, the same for all games left out for it."""


def records(file: Path) -> Iterator[Record]:
    """The games of a `.csv`, `.csv.zst`, `.pgn` or `.pgn.zst`, unread."""
    name = file.name.removesuffix(".zst")
    if not name.endswith((".csv", ".pgn")):
        raise SystemExit(f"{file}: neither .csv, .csv.zst, .pgn nor .pgn.zst")
    with open(file, "rb") as raw:
        binary: IO[bytes] = raw
        if file.suffix == ".zst":
            binary = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        text = io.TextIOWrapper(binary, encoding="utf-8", errors="replace", newline="")
        yield from csv.DictReader(text) if name.endswith(".csv") else _pgn_texts(text)


def parse(record: Record, data: Data) -> Game:
    """The game of a record; raises Unwanted with the reason."""
    return _from_pgn(record, data) if isinstance(record, str) else _from_row(record, data)


def _pgn_texts(lines: Iterator[str]) -> Iterator[str]:
    """Cuts at the first tag line after a line of moves."""
    game: list[str] = []
    moves = False
    for line in lines:
        tag = line.startswith("[") and not line.startswith("[%")
        if tag and moves:
            yield "".join(game)
            game, moves = [], False
        moves = moves or bool(line.strip() and not tag)
        game.append(line)
    if any(line.strip() for line in game):
        yield "".join(game)


def _from_row(row: dict[str, str], data: Data) -> Game:
    _want_source(row.get("source") or "", data)
    _want_time(row.get("time_control") or "", data)
    elos = _elos(row.get("white_elo"), row.get("black_elo"))
    system = row.get("rating_system") or "lichess"
    if system not in data.to_lichess:
        raise Unwanted("unknown rating system")
    board = chess.Board()
    moves = []
    for uci in (row.get("moves") or "").split():
        try:
            moves.append(board.push_uci(uci))
        except ValueError:
            raise Unwanted("illegal move") from None
    return _checked(Game(*elos, system, row.get("result") or "", row["source"], moves))


def _from_pgn(text: str, data: Data) -> Game:
    headers = chess.pgn.read_headers(io.StringIO(text))
    if headers is None:
        raise Unwanted("not a game")
    if headers.get("Variant", "Standard") not in ("Standard", "From Position") or "FEN" in headers:
        raise Unwanted("variant or a starting position of its own")
    _want_source(LICHESS_DATABASE, data)
    _want_time(headers.get("TimeControl", ""), data)
    elos = _elos(headers.get("WhiteElo"), headers.get("BlackElo"))
    if "BOT" in (headers.get("WhiteTitle"), headers.get("BlackTitle")):
        raise Unwanted("a bot's game")
    game = chess.pgn.read_game(io.StringIO(text), Visitor=_Quiet)
    if game is None or game.errors:
        raise Unwanted("illegal move")
    moves = list(game.mainline_moves())
    return _checked(Game(*elos, "lichess", headers.get("Result", ""), LICHESS_DATABASE, moves))


class _Quiet(chess.pgn.GameBuilder[chess.pgn.Game]):
    """Keeps what is wrong with a game in the game and out of the log; skips variations."""

    def begin_variation(self) -> chess.pgn.SkipType:
        return chess.pgn.SKIP

    def end_variation(self) -> None:
        """Nothing to end: none is begun."""

    def handle_error(self, error: Exception) -> None:
        self.game.errors.append(error)


def _want_source(source: str, data: Data) -> None:
    if not source.startswith(data.source_prefixes):
        raise Unwanted("source of another licence")
    if source in data.left_out_sources:
        raise Unwanted("source left out")


def _want_time(time_control: str, data: Data) -> None:
    seconds = WORDS.get(time_control)
    if seconds is None:
        base, _, increment = time_control.partition("+")
        if not base.isdigit():
            return  # unknown or untimed: not bullet
        seconds = int(base) + 40 * int(increment if increment.isdigit() else 0)
    if seconds < data.shortest_seconds:
        raise Unwanted("too fast")


def _elos(white: str | None, black: str | None) -> tuple[int, int]:
    ratings = rating_of(white), rating_of(black)
    if ratings[0] is None or ratings[1] is None:
        raise Unwanted("no ratings")
    return int(ratings[0]), int(ratings[1])


def _checked(game: Game) -> Game:
    if not game.moves:
        raise Unwanted("no moves")
    return game
