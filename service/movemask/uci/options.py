"""The options that the engine offers, and their values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

import chess.polyglot

MAX_RATING = 5000  # as in `board.position`, whose numpy would delay `uciok`


def _option(name: str, default: float | str, most: float = 1, least: float = 0) -> Any:
    """A value that the GUI may set, with the option's name and the bounds of a number. Ints are spins, bools checks,
    floats and texts strings."""
    return field(default=default, metadata={"name": name, "most": most, "least": least})


@dataclass(frozen=True, slots=True)
class Strengths:
    """What UCI_Elo may be for a model: a rating that it was trained on, or with a table its measured strength.

    rows : Elo, and the rating and temperature that play at it, rising by Elo; empty without a table
    """

    least: int = 1
    most: int = MAX_RATING
    rows: tuple[tuple[float, float, float], ...] = ()

    @classmethod
    def of(cls, contract: Mapping[str, Any]) -> Strengths:
        """By `[elo]` and `[[card.strength]]`; any without them. Unchecked: opening the model reports faults."""
        try:
            card, elo = contract.get("card", {}), contract.get("elo", {"minimum": 1, "maximum": MAX_RATING})
            rows = tuple((row["elo"], row["rating"], row["temperature"]) for row in card.get("strength", ()))
            low, high = (rows[0][0], rows[-1][0]) if rows else (elo["minimum"], elo["maximum"])
            return cls(max(1, round(low)), min(MAX_RATING, round(high)), rows)
        except (AttributeError, LookupError, TypeError, ValueError):
            return cls()

    def at(self, elo: float) -> tuple[float, float]:
        """Rating and temperature of a strength, interpolated between the rows; of the nearest row beyond them."""
        from numpy import interp  # `uciok` need not wait for it

        elos, ratings, temperatures = zip(*self.rows, strict=True)
        return float(interp(elo, elos, ratings)), float(interp(elo, elos, temperatures))


@dataclass(slots=True)
class Options:
    """The values of the options, in the order that a GUI shows. Ratings of 0 stand for the network's default."""

    model: str = _option("Model", "")
    self_elo: int = _option("SelfElo", 0, MAX_RATING)
    opponent_elo: int = _option("OpponentElo", 0, MAX_RATING)
    limit_strength: bool = _option("UCI_LimitStrength", False)
    uci_elo: int = _option("UCI_Elo", 1500, MAX_RATING, least=1)
    opponent: str = _option("UCI_Opponent", "")  # title, rating or `none`, `computer` or `human`, name
    temperature: float = _option("Temperature", 0.0, 100)
    top_p: float = _option("TopP", 1.0)
    seed: int = _option("Seed", 0, 2**31 - 1)
    multi_pv: int = _option("MultiPV", 1, 500, least=1)  # GUIs ask for what Stockfish takes; 218 lines are possible
    show_wdl: bool = _option("UCI_ShowWDL", False)
    chess960: bool = _option("UCI_Chess960", False)
    ponder: bool = _option("Ponder", False)
    think_time: bool = _option("Think Time", False)
    book: str = _option("BookFile", "")  # a Polyglot opening book
    models: Mapping[str, Strengths] = field(default_factory=dict)  # by name

    def set(self, name: str, value: str) -> None:
        """Sets an option; ValueError that says what is wrong, which leaves it as it was."""
        option = next((one for one in _OPTIONS if one.metadata["name"].lower() == name.lower()), None)
        if option is None:
            raise ValueError(f"setoption: no option {name[:40]!r}")
        try:
            if option.name == "model" and self.models and value not in self.models:
                raise ValueError(f"no model {value[:60]!r}; available: {', '.join(self.models)}")
            read = _book(value) if option.name == "book" else _read(option, value)
        except ValueError as error:
            raise ValueError(f"setoption: {name}: {error}") from None
        setattr(self, option.name, read)

    @property
    def strengths(self) -> Strengths:
        """What UCI_Elo may be for the model."""
        return self.models.get(self.model, Strengths())

    @property
    def by_table(self) -> bool:
        """Whether UCI_Elo is a measured strength, which decides both rating and temperature."""
        return self.limit_strength and bool(self.strengths.rows)

    @property
    def player(self) -> tuple[float, float]:
        """The rating to play at, 0 for the network's default, and the temperature."""
        if self.by_table:
            return self.strengths.at(self.uci_elo)
        return self.uci_elo if self.limit_strength else self.self_elo, self.temperature

    @property
    def elo(self) -> tuple[float, float] | None:
        """The ratings of the engine and of its opponent; None for the network's default. Without a rating of its own,
        the engine does not take on the one that the GUI tells of the opponent; nor was its strength measured so."""
        own, _ = self.player
        told = (*self.opponent.split(), "", "")[1][:9]
        known = own and not self.by_table and told.isascii() and told.isdigit()
        announced = min(int(told), MAX_RATING) if known else 0
        other = self.opponent_elo or announced
        return (float(own or other), float(other or own)) if own or other else None

    def lines(self) -> list[str]:
        """What `uci` answers: each option with its type, default and bounds."""
        lines = []
        for option in _OPTIONS:
            value, bounds = getattr(self, option.name), option.metadata
            if option.name == "model":
                kind = " var ".join([f"combo default {value}", *self.models])
            elif isinstance(value, bool):
                kind = f"check default {str(value).lower()}"
            elif option.name == "uci_elo":
                low, high = self.strengths.least, self.strengths.most
                kind = f"spin default {min(max(value, low), high)} min {low} max {high}"
            elif isinstance(value, int):
                kind = f"spin default {value} min {bounds['least']} max {bounds['most']}"
            else:
                kind = f"string default {(value or '<empty>') if isinstance(value, str) else f'{value:g}'}"
            lines.append(f"option name {bounds['name']} type {kind}")
        return lines


_OPTIONS: list[Field[Any]] = [one for one in fields(Options) if one.metadata]


def _read(option: Field[Any], text: str) -> float | str:
    """A number between bounds, a flag or a text; raises ValueError."""
    kind: Any = type(option.default)
    least, most = option.metadata["least"], option.metadata["most"]
    if kind is str:
        return text
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError(f"{text[:40]!r} is neither true nor false")
        return text == "true"
    try:
        value: float = kind(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        a_number = "a whole number" if kind is int else "a number"
        raise ValueError(f"{text[:40]!r} is not {a_number} from {least:.15g} to {most:.15g}")
    return value


def _book(path: str) -> str:
    """The path of an opening book that can be read, or none; raises ValueError."""
    if path in ("", "<empty>"):
        return ""
    try:
        with chess.polyglot.open_reader(path) as book:
            entries = len(book)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path[:200]}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not entries:
        raise ValueError(f"{path[:200]}: contains no moves")
    return path
