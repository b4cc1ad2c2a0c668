"""The families of networks for which `movemask models add` knows the contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Family:
    """A family of networks: its encoders (`planes` lists alternatives), vocabulary, value and ratings."""

    name: str
    planes: tuple[str, ...]
    vocabulary: str
    value_order: str = "win_draw_loss"
    elo: Mapping[str, Any] | None = None
    whole_ratings: bool = False  # whether some exports take ratings as int64
    trained_with_mask: bool = False


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
