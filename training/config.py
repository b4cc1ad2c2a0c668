"""A run: everything that decides what comes out, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: Sources of games by many players (the data's README says which): held-out figures are taken on these alone.
MANY_PLAYERS = (
    "lichess:ahmed-ghaf-404/Lichess-Rapid-Games-Analysis",
    "lichess:HliasOuzounis/Ai-Guess-the-elo",
    "lichess:datasnaek-kaggle",
    "lichess:benwheeler12/ChessAuto",
)


@dataclass(frozen=True)
class Run:
    """Defaults are the run that made the shipped network."""

    folder: Path
    games: Path = Path("../shared/data/games_online.csv.zst")
    source_prefix: str = "lichess:"  # CC0 at their origin
    left_out_sources: tuple[str, ...] = ("lichess:jishanshaikh4/chess-games-dataset",)  # two players' bullet games
    shortest_seconds: int = 180  # of clock per game (base + 40 increments): no bullet
    plies_per_game: int = 32
    seed: int = 20261121

    filters: int = 64
    blocks: int = 5
    batch: int = 512
    positions: int = 3_600_000
    learning_rate: float = 4e-3
    weight_decay: float = 1e-4
    value_weight: float = 0.2
    checkpoint_every: int = 500  # steps
