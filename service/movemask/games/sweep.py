"""Sweeps: one position at many ratings, or by many networks. The position is read and masked once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from movemask.board.position import Elo, Position
from movemask.errors import InvalidSweep, MovemaskError
from movemask.evaluate import Answer, Evaluator, Query
from movemask.network.contract import Contract
from movemask.policy.normalisation import Normalisation

R = TypeVar("R")

#: The ratings of a sweep that names no ratings, within the network's range.
RATINGS = range(800, 2501, 100)


class Vary(Enum):
    """Whose rating changes along a sweep."""

    BOTH = "both"
    SELF = "self"
    OPPONENT = "opponent"


@dataclass(frozen=True, slots=True)
class Series:
    """One network of a sweep, and the ratings at each point."""

    evaluator: Evaluator
    elos: Sequence[Elo | None]


def usual_ratings(contract: Contract) -> list[float]:
    """Every hundred from 800 to 2500 within the network's range, and the ends of that span."""
    first, last = max(RATINGS[0], contract.elo.minimum), min(RATINGS[-1], contract.elo.maximum)
    inner = [rating for rating in RATINGS if first < rating < last]
    return (
        sorted({float(first), *map(float, inner), float(last)})
        if first <= last
        else [float(contract.elo.default)]
    )


def elos_of(
    name: str, contract: Contract, ratings: Sequence[float] | None, vary: Vary, fixed: Elo | None
) -> list[Elo]:
    """Both players' ratings at each point of a sweep.

    Parameters
    ----------
    ratings : the ratings that vary; `usual_ratings` if None
    fixed : holds the rating of the side that does not vary; the network's default if None

    Raises InvalidSweep for a network that takes no ratings.
    """
    if not contract.takes_elo:
        raise InvalidSweep(
            f"ratings: model {name!r} plays at one rating only; name several in `models` to compare ratings"
        )
    default = contract.elo.default
    others = fixed or Elo(default, default)
    return [
        Elo(
            others.self if vary is Vary.OPPONENT else rating,
            others.opponent if vary is Vary.SELF else rating,
        )
        for rating in (usual_ratings(contract) if ratings is None else ratings)
    ]


async def sweep(
    series: Sequence[Series],
    position: Position,
    rule: Normalisation,
    write: Callable[[Answer], R],
) -> list[R]:
    """`write(answer)` for every rating of every network, in order. Each network gets one submission.

    `write` runs on several threads at once, and all answers hold the same `Position`. If a point fails, its error is
    raised; so are errors of the model and the queue.
    """

    async def points_of(network: Series) -> Sequence[R | MovemaskError]:
        queries = [Query(position=position, elo=elo, rule=rule) for elo in network.elos]
        return await network.evaluator.submit(queries, lambda answer, _: write(answer))

    points: list[R] = []
    for outcomes in await asyncio.gather(*map(points_of, series)):
        for outcome in outcomes:
            if isinstance(outcome, MovemaskError):
                raise outcome
            points.append(outcome)
    return points
