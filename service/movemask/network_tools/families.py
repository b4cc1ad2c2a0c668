"""The families of networks for which `movemask models add` knows the contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from movemask.encoding.encoders import plane_encoder_names
from movemask.encoding.vocabularies import vocabulary, vocabulary_names
from movemask.encoding.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Family:
    """A family of networks: its encoders (`planes` lists alternatives), vocabulary, value and ratings.

    own : a vocabulary that is a file of moves, instead of the one with the name `vocabulary`
    terms : further keys of `[contract]`
    """

    name: str
    planes: tuple[str, ...]
    vocabulary: str
    value_order: str = "win_draw_loss"
    elo: Mapping[str, Any] | None = None
    whole_ratings: bool = False  # whether some exports take ratings as int64
    trained_with_mask: bool = False
    own: Vocabulary | None = None
    terms: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slots(self) -> Vocabulary:
        """The vocabulary."""
        return self.own or vocabulary(self.vocabulary)


_MAIA2_ELO = {
    "default": 1500,
    "minimum": 0,
    "maximum": 5000,
    "scale": "lichess",
    "edges": list(range(1100, 2001, 100)),
}
_MAIA3_ELO = {"default": 1500, "minimum": 600, "maximum": 2600, "scale": "lichess"}

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("lc0", ("lc0-112",), "lc0-1858"),
        Family("maia1", ("lc0-112",), "lc0-1858"),
        Family("maia2", ("maia2-18",), "maia2-1880", elo=_MAIA2_ELO),
        Family(
            "maia3",
            ("maia3-tokens-12", "maia3-tokens-96"),
            "maia3-4352",
            "loss_draw_win",
            _MAIA3_ELO,
            True,
            True,
        ),
        Family("alphazero", ("pgx-119",), "alphazero-4672"),
        Family("searchless", ("fen-77",), "uci-1968"),
        Family("movemask", ("movemask-tokens-99",), "movemask-1880", elo={"scale": "lichess"}),
    )
}


#: Name of the families that `chosen_families` makes.
MIXED = "of no known family"


def chosen_families(
    planes: str | None, words: Vocabulary | str | None, terms: Mapping[str, Any]
) -> list[Family]:
    """Returns a family for each vocabulary: the one given, or else every known one; with the planes given, or
    else any known.

    terms : further keys of `[contract]`, for a vocabulary that is given
    """
    encoders = plane_encoder_names() if planes is None else (planes,)
    if isinstance(words, Vocabulary):
        return [Family(MIXED, encoders, words.name, own=words, terms=terms)]
    names = vocabulary_names() if words is None else (words,)
    return [Family(MIXED, encoders, name, terms=terms if name == words else {}) for name in names]
