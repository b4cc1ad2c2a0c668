"""The options that the engine offers, and their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

#: Of MultiPV. No position has more than 218 legal moves, but GUIs ask for what Stockfish takes, 500.
MAX_LINES = 500
MAX_RATING = 5000
MAX_SEED = 2**31 - 1


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
    names: tuple[str, ...] = ()
    told_opponent: int = 0  # by UCI_Opponent
    _readers: dict[str, Callable[[str], None]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._readers = {
            "model": self._set_model,
            "selfelo": lambda text: setattr(self, "self_elo", _integer(text, 0, MAX_RATING)),
            "opponentelo": lambda text: setattr(self, "opponent_elo", _integer(text, 0, MAX_RATING)),
            "uci_limitstrength": lambda text: setattr(self, "limit_strength", _flag(text)),
            "uci_elo": lambda text: setattr(self, "uci_elo", _integer(text, 1, MAX_RATING)),
            "temperature": lambda text: setattr(self, "temperature", _number(text, 0, 100)),
            "topp": lambda text: setattr(self, "top_p", _number(text, 0, 1)),
            "seed": lambda text: setattr(self, "seed", _integer(text, 0, MAX_SEED)),
            "multipv": lambda text: setattr(self, "multi_pv", _integer(text, 1, MAX_LINES)),
            "uci_showwdl": lambda text: setattr(self, "show_wdl", _flag(text)),
            "uci_chess960": lambda text: setattr(self, "chess960", _flag(text)),
            "ponder": lambda text: setattr(self, "ponder", _flag(text)),
            "uci_opponent": self._set_opponent,
        }

    def set(self, name: str, value: str) -> None:
        """Sets an option; ValueError that says what is wrong, which leaves it as it was."""
        reader = self._readers.get(name.lower())
        if reader is None:
            raise ValueError(f"setoption: no option {name[:40]!r}")
        try:
            reader(value)
        except ValueError as error:
            raise ValueError(f"setoption: {name}: {error}") from None

    @property
    def elo(self) -> tuple[float, float] | None:
        """The ratings of the engine and of its opponent; None for the network's default. Without a rating of its own,
        the engine does not take on the one that the GUI tells of the opponent."""
        own = self.uci_elo if self.limit_strength else self.self_elo
        other = self.opponent_elo or (self.told_opponent if own else 0)
        if not own and not other:
            return None
        return float(own or other), float(other or own)

    def lines(self) -> list[str]:
        """What `uci` answers: each option with its type, default and bounds."""
        names: Sequence[str] = self.names or ((self.model,) if self.model else ())
        variants = "".join(f" var {name}" for name in names)
        lines = [f"option name Model type combo default {self.model or (names[0] if names else '')}{variants}"]
        lines += [
            f"option name SelfElo type spin default {self.self_elo} min 0 max {MAX_RATING}",
            f"option name OpponentElo type spin default {self.opponent_elo} min 0 max {MAX_RATING}",
            f"option name UCI_LimitStrength type check default {_shown(self.limit_strength)}",
            f"option name UCI_Elo type spin default {self.uci_elo} min 1 max {MAX_RATING}",
            "option name UCI_Opponent type string default <empty>",
            f"option name Temperature type string default {self.temperature:g}",
            f"option name TopP type string default {self.top_p:g}",
            f"option name Seed type spin default {self.seed} min 0 max {MAX_SEED}",
            f"option name MultiPV type spin default {self.multi_pv} min 1 max {MAX_LINES}",
            f"option name UCI_ShowWDL type check default {_shown(self.show_wdl)}",
            f"option name UCI_Chess960 type check default {_shown(self.chess960)}",
            f"option name Ponder type check default {_shown(self.ponder)}",
        ]
        return lines

    def _set_model(self, text: str) -> None:
        if self.names and text not in self.names:
            raise ValueError(f"no model {text[:60]!r}; there are {', '.join(self.names)}")
        self.model = text

    def _set_opponent(self, text: str) -> None:
        """`UCI_Opponent`: title, rating or `none`, `computer` or `human`, name."""
        words = text.split()
        rating = words[1] if len(words) > 1 else "none"
        self.told_opponent = min(int(rating), MAX_RATING) if rating.isascii() and rating.isdigit() else 0


def _integer(text: str, least: int, most: int) -> int:
    if not text.removeprefix("-").isdigit() or not text.isascii() or not least <= int(text[:18]) <= most:
        raise ValueError(f"{text[:40]!r} is not a whole number from {least} to {most}")
    return int(text)


def _number(text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise ValueError(f"{text[:40]!r} is not a number from {least:g} to {most:g}")
    return value


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text[:40]!r} is neither true nor false")
    return text == "true"


def _shown(value: bool) -> str:
    return "true" if value else "false"
