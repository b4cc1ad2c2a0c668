"""A run: everything that decides what comes out, in one TOML file (`training/runs/`), read into one dataclass.

A key that is missing takes the default below; one that is misspelt or out of range is an error that names it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

STRICT = ConfigDict(extra="forbid")
TEACHER_WIDTH = 256  # of the teacher's states, which those of the network are to match

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
    """The transformer over the 64 squares."""

    width: Positive = TEACHER_WIDTH
    layers: Positive = 4
    heads: Positive = 8
    hidden: Positive = 512
    activation: Literal["relu", "gelu"] = "relu"


@dataclass(frozen=True, config=STRICT)
class Teaching:
    """What the network learns from, and how much each part weighs."""

    teacher: Path = Path("../shared/maia3/maia3-5m.onnx")
    matched: tuple[int, ...] = (2, 4, 6, 8)  # after so many of the teacher's layers its state is that of each of ours
    apart: int = 51_200  # positions at the start in which each layer learns alone, on the teacher's own states
    states_weight: float = 1.0  # of the mean relative squared difference of the states
    bare: Share = 0.5  # of the positions that both see without the game before them
    #: A folder of the teacher's ready policies, which cost no run of it (`training.targets`).
    targets: Path | None = None
    targets_share: Share = 0.0  # of the batches that are taught by them, after the positions `apart`
    played_weight: Share = 0.1  # of the move that was played; the teacher's policy has the rest
    rules_weight: Annotated[float, Field(ge=0)] = 1.0  # of -ln of what the legal slots have together
    value_weight: float = 0.2


@dataclass(frozen=True, config=STRICT)
class Training:
    """How long and how fast."""

    positions: Positive = 20_000_000
    batch: Positive = 64
    learning_rate: float = 2e-3  # of Muon's matrices and of AdamW's parameters alike
    weight_decay: float = 0.01
    warm_up: int = 100  # steps at the beginning of each stretch
    threads: Positive = 1  # of the network; the teacher takes another
    checkpoint_seconds: Positive = 120
    validate_positions: Positive = 100_000  # between two validations
    validated: Positive = 2048  # positions of a validation
    compile: bool = False
    gatherers: int = 0  # processes that gather positions, for a GPU that would wait for one; 0: the teacher's thread
    #: Products of the network and the teacher in bfloat16: quick on GPUs and on processors with avx512_bf16, on others
    #: seven times slower than float32.
    bfloat16: bool = False


@dataclass(frozen=True, config=STRICT)
class Run:
    """One run, and where it keeps its checkpoints and log."""

    folder: Path = Path("runs/run")
    seed: int = 20261121
    data: Data = Field(default_factory=Data)
    network: Network = Field(default_factory=Network)
    teaching: Teaching = Field(default_factory=Teaching)
    training: Training = Field(default_factory=Training)


def load_run(file: Path) -> Run:
    """Reads a run's TOML; leaves the program with a line for each key that is wrong."""
    try:
        run = TypeAdapter(Run).validate_python(tomllib.loads(file.read_text()), strict=False)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SystemExit(f"{file}: {error}") from None
    except ValidationError as error:
        lines = [f"{file}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)]
        raise SystemExit("\n".join(lines)) from None
    if run.network.width != TEACHER_WIDTH:
        raise SystemExit(f"{file}: network.width: must be the teacher's, {TEACHER_WIDTH}, not {run.network.width}")
    return run
