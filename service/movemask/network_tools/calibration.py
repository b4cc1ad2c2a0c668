"""Fits a model's temperature to the moves of games and writes it into the model's contract."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import chess
import numpy as np
import tomlkit
from tomlkit.exceptions import TOMLKitError

from movemask.atomic_writes import atomic_write
from movemask.board.pgn import Lines, Ply, read_games
from movemask.errors import ContractError, InvalidPgn, MovemaskError
from movemask.evaluate import Evaluated, evaluate_positions
from movemask.network.contract import read_contract
from movemask.network.model import Model
from movemask.network.registry import model_files
from movemask.policy.ragged import Float, indptr_of
from movemask.policy.temperature import COLDEST, HOTTEST, TemperatureFit, fitted_temperature

#: A fit needs this many moves. With 500, the shipped network's standard error is about 4 %.
MINIMUM_MOVES = 500
#: A fit is refused if its standard error is above this share of the temperature.
MAX_RELATIVE_ERROR = 0.1

_BATCH = 256
_DIGITS = 6  # decimals of the contract's numbers; the loss is flat around its minimum


@dataclass(frozen=True, slots=True)
class Fitted:
    """A calibration, the size of its data, and the reason for each game that was left out."""

    calibration: TemperatureFit
    games: int
    positions: int
    left_out: tuple[str, ...]
    without_slot: int = (
        0  # played moves that were not judged, because the network has no slot for them
    )

    @property
    def refusal(self) -> str | None:
        """Why this fit must not be written; None if it is good."""
        fit = self.calibration
        if self.positions < MINIMUM_MOVES:
            return f"{self.positions} moves are too few, at least {MINIMUM_MOVES} are needed; give more games"
        if fit.at_bound:
            return (
                f"the fit ended at {fit.temperature:.4g}, a bound of the search ({COLDEST:g} to {HOTTEST:g}); these "
                "are not moves of players, or the contract misreads the network (`movemask models check --diagnose`)"
            )
        if fit.standard_error > MAX_RELATIVE_ERROR * fit.temperature:
            return f"the standard error is above {MAX_RELATIVE_ERROR:.0%} of the temperature; give more games"
        return None


def fitted(
    model: Model,
    stream: Lines,
    *,
    first_ply: int = 0,
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Fitted:
    """Returns the temperature fitted to the moves of a PGN.

    It takes the moves from `first_ply` of each game on, and at most `limit`.
    Games with errors are left out and listed in `left_out`. `progress` is called with the number of positions done.
    Raises InvalidPgn if there is no position, or a ModelError.
    """
    games = 0
    left_out: list[str] = []

    def read() -> Iterator[Ply]:
        nonlocal games
        for game in read_games(stream):
            if isinstance(game, MovemaskError):
                left_out.append(str(game))
            else:
                games += 1
                yield from game.plies[first_ply:]

    logits: list[Float] = []
    targets: list[int] = []
    without_slot = 0
    plies = islice(read(), limit)
    while chunk := list(islice(plies, _BATCH)):
        evaluated = evaluate_positions(
            model, [ply.position for ply in chunk], [ply.elo for ply in chunk]
        )
        known = played_logits(evaluated, [ply.played for ply in chunk])
        for row_logits, target in known:
            logits.append(row_logits)
            targets.append(target)
        without_slot += len(chunk) - len(known)
        if progress is not None:
            progress(len(targets))
    if not targets:
        short = (
            [f"{games} games end within the {first_ply} plies that are left out"] if games else []
        )
        raise InvalidPgn(f"games: no positions to fit to; {'; '.join(short + left_out[:3])}")
    indptr = indptr_of([len(row) for row in logits])
    calibration = fitted_temperature(np.concatenate(logits), indptr, np.array(targets))
    return Fitted(calibration, games, len(targets), tuple(left_out), without_slot)


def played_logits(evaluated: Evaluated, played: Sequence[chess.Move]) -> list[tuple[Float, int]]:
    """For each position of a batch, the logits of its moves, and the place of the played one among them.

    Positions whose played move has no slot are left out.
    """
    batch, legal = evaluated.batch, evaluated.unmasked.legal_logits
    places = [batch.find(row, move) for row, move in enumerate(played)]
    return [
        (legal[batch.legal(row)], place) for row, place in enumerate(places) if place is not None
    ]


def write(contract: Path, fit: Fitted, source: str) -> None:
    """Adds or replaces `[calibration]` in a contract. The rest of the file stays as it is. Raises ContractError."""
    try:
        table = tomlkit.parse(contract.read_text(encoding="utf-8"))
        section = tomlkit.table()
        for name in (
            "temperature",
            "standard_error",
            "cross_entropy_before",
            "cross_entropy_after",
        ):
            section[name] = round(getattr(fit.calibration, name), _DIGITS)
        section |= {"positions": fit.positions, "source": source}
        table["calibration"] = section
        with atomic_write(
            contract
        ) as stream:  # a service that starts meanwhile never sees half a file
            stream.write(tomlkit.dumps(table).encode())
    except (OSError, TOMLKitError) as error:
        raise ContractError(f"{contract}: the calibration cannot be written: {error}") from None


def copied(contract: Path, folder: Path) -> Path:
    """Copies a model into a folder, which is made if missing. Returns the new TOML.

    The TOML is written last, so that a service that starts meanwhile never sees half a model. Raises ContractError,
    also if the model is there already.
    """
    target, files = folder / contract.name, model_files(contract, read_contract(contract))
    if target.exists():
        raise ContractError(f"{target} already exists")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copyfile(file, folder / file.name)
        with atomic_write(target) as stream:
            stream.write(contract.read_bytes())
    except OSError as error:
        raise ContractError(
            f"{error.filename or folder}: {os.strerror(error.errno or 0)}"
        ) from None
    return target
