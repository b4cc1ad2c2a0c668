"""The options that the engine offers, and their values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import chess.polyglot

MAX_RATING = 5000
MAX_SEED = 2**31 - 1

#: Of MultiPV. No position has more than 218 legal moves, but GUIs ask for what Stockfish takes, 500.
_MAX_LINES = 500

#: The field of each option, and the bounds of numbers. Ints are spins, bools checks, floats and texts strings.
_OPTIONS: dict[str, tuple[str, float, float]] = {
    "SelfElo": ("self_elo", 0, MAX_RATING),
    "OpponentElo": ("opponent_elo", 0, MAX_RATING),
    "UCI_LimitStrength": ("limit_strength", 0, 1),
    "UCI_Elo": ("uci_elo", 1, MAX_RATING),
    "Temperature": ("temperature", 0, 100),
    "TopP": ("top_p", 0, 1),
    "Seed": ("seed", 0, MAX_SEED),
    "MultiPV": ("multi_pv", 1, _MAX_LINES),
    "UCI_ShowWDL": ("show_wdl", 0, 1),
    "UCI_Chess960": ("chess960", 0, 1),
    "Ponder": ("ponder", 0, 1),
    "Think Time": ("think_time", 0, 1),
    "BookFile": ("book", 0, 0),
}


@dataclass(slots=True)
class Options:
    """The values of the options. Ratings of 0 stand for the network's default."""

    model: str | None = None
    self_elo: int = 0
    opponent_elo: int = 0
    limit_strength: bool = False
    uci_elo: int = 1500
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    multi_pv: int = 1
    show_wdl: bool = False
    chess960: bool = False
    ponder: bool = False
    think_time: bool = False
    book: str = ""  # a Polyglot opening book's file
    names: tuple[str, ...] = ()
    announced: int = 0  # the opponent's rating, by UCI_Opponent

    def set(self, name: str, value: str) -> None:
        """Sets an option; ValueError that says what is wrong, which leaves it as it was."""
        option = next((one for one in ("Model", "UCI_Opponent", *_OPTIONS) if one.lower() == name.lower()), None)
        if option is None:
            raise ValueError(f"setoption: no option {name[:40]!r}")
        try:
            if option == "Model":
                if self.names and value not in self.names:
                    raise ValueError(f"no model {value[:60]!r}; there are {', '.join(self.names)}")
                self.model = value
            elif option == "UCI_Opponent":  # title, rating or `none`, `computer` or `human`, name
                rating = (*value.split(), "", "")[1]
                self.announced = min(int(rating), MAX_RATING) if rating.isascii() and rating.isdigit() else 0
            else:
                field, least, most = _OPTIONS[option]
                setattr(self, field, _read(type(getattr(self, field)), value, least, most))
        except ValueError as error:
            raise ValueError(f"setoption: {name}: {error}") from None

    @property
    def elo(self) -> tuple[float, float] | None:
        """The ratings of the engine and of its opponent; None for the network's default. Without a rating of its own,
        the engine does not take on the one that the GUI tells of the opponent."""
        own = self.uci_elo if self.limit_strength else self.self_elo
        other = self.opponent_elo or (self.announced if own else 0)
        if not own and not other:
            return None
        return float(own or other), float(other or own)

    def lines(self) -> list[str]:
        """What `uci` answers: each option with its type, default and bounds."""
        names = self.names or ((self.model,) if self.model else ())
        variants = "".join(f" var {name}" for name in names)
        lines = [f"option name Model type combo default {self.model or (names[0] if names else '')}{variants}"]
        for name, (field, least, most) in _OPTIONS.items():
            value = getattr(self, field)
            if isinstance(value, bool):
                kind = f"check default {str(value).lower()}"
            elif isinstance(value, int):
                kind = f"spin default {value} min {least} max {most}"
            else:
                kind = f"string default {(value or '<empty>') if isinstance(value, str) else f'{value:g}'}"
            lines.append(f"option name {name} type {kind}")
        lines.insert(5, "option name UCI_Opponent type string default <empty>")
        return lines


def _read(kind: type, text: str, least: float, most: float) -> float | str:
    """A number between bounds, a flag, or the path of a book; raises ValueError."""
    if kind is str:
        return _book("" if text == "<empty>" else text)
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
    if path:
        try:
            with chess.polyglot.open_reader(path) as book:
                entries = len(book)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path[:200]}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
        if not entries:
            raise ValueError(f"{path[:200]}: holds no moves")
    return path
