"""Sweeps: one position at many ratings, or by many networks, read once and masked once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import numpy as np

from movemask.board.position import Elo, Position
from movemask.errors import InvalidSweep, MovemaskError
from movemask.network.contract import Contract
from movemask.network.model import Model
from movemask.normalisation import Normalisation
from movemask.numeric.ragged import Float
from movemask.numeric.softmax import softmax
from movemask.pipeline import Answer, Caller, Pipeline, Query, evaluate_positions

R = TypeVar("R")

#: The ratings of a sweep that names none, as far as the network knows them.
RATINGS = range(800, 2501, 100)


class Vary(Enum):
    """Whose rating changes along a sweep."""

    BOTH = "both"
    SELF = "self"
    OPPONENT = "opponent"


@dataclass(frozen=True, slots=True)
class Series:
    """One network of a sweep: the position at each of these ratings."""

    pipeline: Pipeline
    elos: Sequence[Elo | None]


def usual_ratings(contract: Contract) -> list[float]:
    """Every hundred from 800 to 2500, as far as the network's range goes."""
    first, last = max(RATINGS[0], contract.elo.minimum), min(RATINGS[-1], contract.elo.maximum)
    inner = [rating for rating in RATINGS if first < rating < last]
    return sorted({float(first), *map(float, inner), float(last)}) if first <= last else [float(contract.elo.default)]


def elos_of(name: str, contract: Contract, ratings: Sequence[float] | None, vary: Vary, fixed: Elo | None) -> list[Elo]:
    """Both players' ratings at each point of a sweep.

    Parameters
    ----------
    ratings : those that vary; `usual_ratings` if None
    fixed : gives the rating of the side that does not vary; the network's default if None

    Raises InvalidSweep for a network that takes no ratings.
    """
    if not contract.takes_elo:
        raise InvalidSweep(
            f"ratings: model {name!r} plays at one rating only; name several in `models` to compare ratings"
        )
    default = contract.elo.default
    held = fixed or Elo(default, default)
    return [
        Elo(held.self if vary is Vary.OPPONENT else rating, held.opponent if vary is Vary.SELF else rating)
        for rating in (usual_ratings(contract) if ratings is None else ratings)
    ]


async def sweep(
    parts: Sequence[Series],
    position: Position,
    rule: Normalisation,
    write: Callable[[Answer], R],
    caller: Caller | None = None,
) -> list[R]:
    """`write(answer)` for every rating of every part, in order. Each network gets its ratings as one submission.

    `write` runs on several threads at once, and the answers share their position. Raises the first error of a point,
    and errors of the model and the queue.
    """

    async def points_of(part: Series) -> Sequence[R | MovemaskError]:
        queries = [Query(position=position, elo=elo, rule=rule) for elo in part.elos]
        return await part.pipeline.submit(queries, write, caller)

    points: list[R] = []
    for outcomes in await asyncio.gather(*map(points_of, parts)):
        for outcome in outcomes:
            if isinstance(outcome, MovemaskError):
                raise outcome
            points.append(outcome)
    return points


def curves(model: Model, positions: Sequence[Position]) -> list[Float]:
    """The policy of each position by rating, `[ratings, moves]`, both players' rating the same. Raises a ModelError."""
    elos = [Elo(rating, rating) for rating in RATINGS]
    swept = (evaluate_positions(model, [position] * len(elos), elos) for position in positions)
    return [softmax(one.unmasked.legal, one.batch.indptr).astype(np.float64).reshape(len(elos), -1) for one in swept]
