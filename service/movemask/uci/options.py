"""`Options`: the engine's options with their values, and the meaning of UCI_Elo for each model."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import chess
import chess.polyglot

from movemask.board.rating import MAX_RATING

#: Most threads of a network, as in the setting MOVEMASK_THREADS.
MAX_THREADS = 256


def _option(name: str, default: float | str, most: float = 1, least: float = 0) -> Any:
    """Returns an option: its name, its default and the bounds of a number.

    An int becomes a spin option, a bool a check, a float or a text a string.
    """
    return field(default=default, metadata={"name": name, "most": most, "least": least})


@dataclass(frozen=True, slots=True)
class Strengths:
    """A model's range of UCI_Elo: its measured strengths, or without a table the ratings that it was trained on.

    rows : Elo, with the rating and temperature that play at that Elo, in order of Elo; empty without a table
    """

    least: int = 1
    most: int = MAX_RATING
    rows: tuple[tuple[float, float, float], ...] = ()

    @classmethod
    def of(cls, contract: Mapping[str, Any]) -> Strengths:
        """From `[elo]` and `[[card.strength]]`; without them, any rating. Opening the model reports faults."""
        try:
            card = contract.get("card", {})
            elo = contract.get("elo", {"minimum": 1, "maximum": MAX_RATING})
            rows = tuple(
                (row["elo"], row["rating"], row["temperature"]) for row in card.get("strength", ())
            )
            low, high = (rows[0][0], rows[-1][0]) if rows else (elo["minimum"], elo["maximum"])
            return cls(max(1, round(low)), min(MAX_RATING, round(high)), rows)
        except (AttributeError, LookupError, TypeError, ValueError):
            return cls()

    def at(self, elo: float) -> tuple[float, float]:
        """Returns the rating and temperature that play at an Elo, interpolated between rows.

        Beyond them, the nearest row's.
        """
        first, last = self.rows[0], self.rows[-1]
        if not first[0] < elo < last[0]:
            return (first if elo <= first[0] else last)[1:]
        low, high = next(pair for pair in pairwise(self.rows) if elo <= pair[1][0])
        share = (elo - low[0]) / (high[0] - low[0])
        return low[1] + share * (high[1] - low[1]), low[2] + share * (high[2] - low[2])


@dataclass(slots=True)
class Options:
    """The values of the options, in the order in which a GUI shows them. A rating of 0 is the network's default."""

    model: str = _option("Model", "")
    self_elo: int = _option("SelfElo", 0, MAX_RATING)
    opponent_elo: int = _option("OpponentElo", 0, MAX_RATING)
    limit_strength: bool = _option("UCI_LimitStrength", False)
    uci_elo: int = _option("UCI_Elo", 1500, MAX_RATING, least=1)
    # title, rating or `none`, `computer` or `human`, name
    opponent: str = _option("UCI_Opponent", "")
    temperature: float = _option("Temperature", 1.0, 100)
    decay_moves: int = _option("TempDecayMoves", 0, 640)  # bounds as in lc0
    decay_delay_moves: int = _option("TempDecayDelayMoves", 0, 100)
    top_p: float = _option("TopP", 1.0, least=1e-9)
    seed: int = _option("Seed", 0, 2**31 - 1)
    # GUIs ask for Stockfish's bound; 218 lines are possible
    multi_pv: int = _option("MultiPV", 1, 500, least=1)
    show_wdl: bool = _option("UCI_ShowWDL", False)
    analyse: bool = _option("UCI_AnalyseMode", False)
    chess960: bool = _option("UCI_Chess960", False)
    ponder: bool = _option("Ponder", False)
    think_time: bool = _option("Think Time", False)
    move_overhead: int = _option("Move Overhead", 0, 5000)  # milliseconds
    book: str = _option("BookFile", "")  # a Polyglot opening book
    # folders of Syzygy tables, separated as in the system's PATH
    syzygy: str = _option("SyzygyPath", "")
    verbose: bool = _option("VerboseMoveStats", False)
    live: bool = _option("LogLiveStats", False)
    threads: int = _option("Threads", 1, MAX_THREADS, least=1)
    # MiB. Without effect: hosts set it, and nothing is searched
    hash_size: int = _option("Hash", 16, 2**25, least=1)
    models: Mapping[str, Strengths] = field(default_factory=dict)  # by name

    def set(self, name: str, value: str) -> None:
        """Sets an option. Raises ValueError, which names the fault; the option then keeps its value."""
        option = next(
            (option for option in _OPTIONS if option.metadata["name"].lower() == name.lower()), None
        )
        if option is None:
            raise ValueError(f"setoption: no option {name[:40]!r}")
        try:
            if option.name == "model" and self.models and value not in self.models:
                raise ValueError(f"no model {value[:60]!r}; available: {', '.join(self.models)}")
            read = _READERS.get(option.name, partial(_read, option))(value)
        except ValueError as error:
            raise ValueError(f"setoption: {name}: {error}") from None
        setattr(self, option.name, read)

    @property
    def strengths(self) -> Strengths:
        """The range of UCI_Elo for the model."""
        return self.models.get(self.model, Strengths())

    @property
    def by_table(self) -> bool:
        """Whether UCI_Elo is a measured strength, which decides both rating and temperature."""
        return self.limit_strength and bool(self.strengths.rows)

    @property
    def rating(self) -> float:
        """The rating to play at; 0 for the network's default."""
        if self.by_table:
            return self.strengths.at(self.uci_elo)[0]
        return self.uci_elo if self.limit_strength else self.self_elo

    def temperature_at(self, board: chess.Board) -> float:
        """Returns the temperature of a move, by lc0's rule (`src/mcts/search.cc`).

        After TempDecayDelayMoves moves it falls linearly to 0 over TempDecayMoves moves. A measured
        strength has its own temperature and no decay.
        """
        if self.by_table:
            return self.strengths.at(self.uci_elo)[1]
        past = board.ply() // 2 - self.decay_delay_moves
        if not self.decay_moves or past <= 0:
            return self.temperature
        return self.temperature * max(0, self.decay_moves - past) / self.decay_moves

    @property
    def elo(self) -> tuple[float, float] | None:
        """The ratings of the engine and its opponent; None for the network's defaults.

        The rating in UCI_Opponent counts only if the engine has its own rating, and no measured strength: strengths
        were measured with the same rating for both players.
        """
        own = self.rating
        announced_text = (*self.opponent.split(), "", "")[1][:9]
        known = own and not self.by_table and announced_text.isascii() and announced_text.isdigit()
        announced = min(int(announced_text), MAX_RATING) if known else 0
        other = self.opponent_elo or announced
        return (float(own or other), float(other or own)) if own or other else None

    def lines(self) -> list[str]:
        """Returns the lines that answer `uci`: each option with its type, default and bounds."""
        lines = []
        for option in _OPTIONS:
            value, bounds = getattr(self, option.name), option.metadata
            if option.name == "model":
                option_type = " var ".join([f"combo default {value}", *self.models])
            elif isinstance(value, bool):
                option_type = f"check default {str(value).lower()}"
            elif option.name == "uci_elo":
                low, high = self.strengths.least, self.strengths.most
                option_type = f"spin default {min(max(value, low), high)} min {low} max {high}"
            elif isinstance(value, int):
                option_type = f"spin default {value} min {bounds['least']} max {bounds['most']}"
            else:
                option_type = f"string default {(value or '<empty>') if isinstance(value, str) else f'{value:g}'}"
            lines.append(f"option name {bounds['name']} type {option_type}")
        return lines


_OPTIONS: list[Field[Any]] = [option for option in fields(Options) if option.metadata]


def _read(option: Field[Any], text: str) -> float | str:
    """Returns a number between bounds, a flag or a text. Raises ValueError."""
    python_type: Any = type(option.default)
    least, most = option.metadata["least"], option.metadata["most"]
    if python_type is str:
        return text
    if python_type is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{text[:40]!r} is neither true nor false")
        return text.lower() == "true"
    try:
        value: float = python_type(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        a_number = "a whole number" if python_type is int else "a number"
        raise ValueError(f"{text[:40]!r} is not {a_number} from {least:.15g} to {most:.15g}")
    return value


def _book(path: str) -> str:
    """Returns the path of a readable opening book; an empty text for no book. Raises ValueError."""
    if path in ("", "<empty>"):
        return ""
    try:
        with chess.polyglot.open_reader(path) as book:
            entries = len(book)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path[:200]}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if not entries:
        raise ValueError(f"{path[:200]}: contains no moves")
    return path


def _syzygy(path: str) -> str:
    """Folders with Syzygy tables; an empty text for no tables. Raises ValueError."""
    if path in ("", "<empty>"):
        return ""
    for folder in path.split(os.pathsep):
        try:
            has_tables = any(file.suffix == ".rtbw" for file in Path(folder).iterdir())
        except OSError as error:
            raise ValueError(f"{folder[:200]}: cannot be read: {error.strerror}") from None
        if not has_tables:
            raise ValueError(f"{folder[:200]}: contains no Syzygy tables (.rtbw, .rtbz)")
    return path


_READERS: dict[str, Callable[[str], str]] = {"book": _book, "syzygy": _syzygy}
