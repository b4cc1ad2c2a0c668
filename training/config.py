"""A run: everything that decides what comes out, in one TOML file (`training/runs/`), read into one dataclass.

A key that is missing takes the default below; one that is misspelt or out of range is refused by name.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

STRICT = ConfigDict(extra="forbid")

#: Sources of games by many players (the data's README says which): held-out figures are taken on these alone.
MANY_PLAYERS = (
    "lichess:ahmed-ghaf-404/Lichess-Rapid-Games-Analysis",
    "lichess:HliasOuzounis/Ai-Guess-the-elo",
    "lichess:datasnaek-kaggle",
    "lichess:benwheeler12/ChessAuto",
    "lichess-database",  # what `training.games` calls the games of a downloaded .pgn.zst
)

Positive = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, config=STRICT)
class Data:
    """Which games, and which positions of them."""

    folder: Path = Path("runs/data")  # of the shards: runs that train on the same games share it
    games: tuple[Path, ...] = (Path("../shared/data/games_online.csv.zst"),)  # .csv.zst, .pgn.zst or .pgn
    source_prefixes: tuple[str, ...] = ("lichess",)  # CC0 at their origin; "" takes every source
    left_out_sources: tuple[str, ...] = ("lichess:jishanshaikh4/chess-games-dataset",)  # two players' bullet games
    shortest_seconds: int = 180  # of clock per game (base + 40 increments): no bullet
    games_per_shard: Positive = 8192
    processes: Positive = 2
    opening_plies: int = 8  # the first plies repeat from game to game …
    opening_share: Share = 0.3  # … so that only this share of them is trained on
    #: Added to a rating to bring it to lichess's scale. Roughly: the scales differ by rating and time control too.
    to_lichess: dict[Literal["lichess", "chesscom", "fide"], int] = Field(
        default_factory=lambda: {"lichess": 0, "chesscom": 200, "fide": 250}
    )


@dataclass(frozen=True, config=STRICT)
class Network:
    """The residual tower over the 64 squares."""

    width: Positive = 64  # filters
    depth: Positive = 5  # residual blocks


@dataclass(frozen=True, config=STRICT)
class Teaching:
    """The targets that a teacher gives (`training.teacher`), and how much they weigh beside the move played."""

    folder: Path = Path("runs/targets")  # runs that learn from the same targets share it
    bare: Share = 0.5  # of the positions that the network sees without the last moves
    asked: Share = 0.15  # of the positions, in a pass of the teacher; some more often: `training.teacher`
    passes: Positive = 3  # none asks about the positions of another
    threshold: Annotated[float, Field(ge=0.0001, lt=0.1)] = 0.002  # slots that the teacher gives less are left out
    processes: Positive = 2
    weight: Share = 0.9  # of the teacher in the policy's loss; the move played has the rest
    rules_weight: Annotated[float, Field(ge=0)] = (
        0.0  # of -ln of what the legal slots have together, added to the loss …
    )
    rules_share: Share = 0.25  # … of such a share of each batch, for their legal moves have to be found


@dataclass(frozen=True, config=STRICT)
class Training:
    """How long, how fast and towards what."""

    positions: Positive = 3_600_000
    batch: Positive = 512
    legality_weight: Share = 1.0  # of the loss that teaches the rules: 1 is plain cross-entropy, 0 the masked one
    value_weight: float = 0.2
    optimizer: Literal["muon", "adamw"] = "muon"
    learning_rate: float = 0.02  # of Muon's matrices; AdamW's parameters take `adamw_rate`
    adamw_rate: float = 2e-3
    weight_decay: float = 1e-4
    warm_up: Share = 0.02  # of all steps
    decay: Share = 0.4  # of all steps, at the end, down to zero
    checkpoint_seconds: Positive = 120
    validate_positions: Positive = 500_000  # between two validations
    start: Path | None = None  # checkpoint of a smaller network, whose weights this one begins with
    compile: bool = False
    mask_processes: Positive = 1  # that find the legal moves, where legality_weight is not 1


@dataclass(frozen=True, config=STRICT)
class Run:
    """One run, and where it keeps its checkpoints and log."""

    folder: Path = Path("runs/run")
    seed: int = 20261121
    data: Data = Field(default_factory=Data)
    network: Network = Field(default_factory=Network)
    teaching: Teaching | None = None  # without it the moves that were played are all there is
    training: Training = Field(default_factory=Training)


def load_run(file: Path) -> Run:
    """Reads a run's TOML; leaves the program with a line for each key that is wrong."""
    try:
        return TypeAdapter(Run).validate_python(tomllib.loads(file.read_text()), strict=False)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SystemExit(f"{file}: {error}") from None
    except ValidationError as error:
        lines = [f"{file}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)]
        raise SystemExit("\n".join(lines)) from None
