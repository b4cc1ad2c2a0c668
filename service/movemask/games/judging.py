"""`judged`: games judged by an engine in two searches, a quick one of all positions and a deeper one near marks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from movemask.errors import MovemaskError
from movemask.games.costs import Costs
from movemask.games.engine import DEEP, QUICK, Evaluation, Evaluations


class Progress(NamedTuple):
    """How far the engine is: with its first search of every position, and with the second, deeper one of some."""

    done: int
    of: int
    deeper: int = 0
    of_deeper: int | None = None  # None before it is known


class Look(NamedTuple):
    """A position that the engine has evaluated: the number of its game, the plies before it, and the game's costs."""

    game: int
    position: int
    costs: Costs
    progress: Progress


class _Search(NamedTuple):
    game: int
    position: int
    nodes: int


def judged(
    evaluations: Evaluations, games: Mapping[int, Costs], *, reasons: bool = True
) -> AsyncGenerator[Look, None]:
    """Each position that is evaluated, as it comes: first all with few nodes, forwards, game by game; then those
    around moves that are marked, or nearly, with more, each game from its end, so that the engine's hash helps.
    Without `reasons` those that the PGN's evaluations mark are not searched deeper.

    Raises errors of the engine's queue at once, not when the first position is asked for. What the queue refuses to
    search deeper keeps its first evaluation.
    """
    latest = dict(games)
    first = [
        _Search(number, place, QUICK) for number, costs in latest.items() for place in costs.missing
    ]

    def started(searches: Sequence[_Search]) -> AsyncGenerator[tuple[int, Evaluation], None]:
        boards = [latest[one.game].game.played.board(one.position) for one in searches]
        return evaluations.of(boards, [one.nodes for one in searches])

    async def looks(
        searches: Sequence[_Search], source: AsyncGenerator[tuple[int, Evaluation], None]
    ) -> AsyncGenerator[tuple[int, int, Costs], None]:
        async with aclosing(source):
            async for number, evaluation in source:
                game, position, _ = searches[number]
                latest[game] = latest[game].evaluated(position, evaluation)
                yield game, position, latest[game]

    def searches_again() -> list[_Search]:
        return [
            _Search(number, place, DEEP)
            for number, costs in latest.items()
            for place in sorted(costs.unsure(reasons=reasons), reverse=True)
        ]

    async def both(
        source: AsyncGenerator[tuple[int, Evaluation], None],
    ) -> AsyncGenerator[Look, None]:
        done = 0
        async with aclosing(looks(first, source)) as stream:
            async for look in stream:
                done += 1
                yield Look(*look, Progress(done, len(first)))
        deeper, of_deeper = 0, 0
        while done == len(first) and deeper == of_deeper and (searches := searches_again()):
            of_deeper += len(searches)
            try:
                source = started(searches)
            except MovemaskError:
                return
            async with aclosing(looks(searches, source)) as stream:
                async for look in stream:
                    deeper += 1
                    yield Look(*look, Progress(done, len(first), deeper, of_deeper))

    return both(started(first))
