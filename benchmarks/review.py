"""How true the review of a game is: `python -m benchmarks.review`. Writes results/review.md.

The shipped network plays games against itself, with a seed, each at another rating. Their moves are judged by the
review with an engine and without one, and by Stockfish with five times the nodes. Needs Stockfish on PATH.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import chess
import chess.pgn
import numpy as np
from chess.engine import Limit, SimpleEngine

from movemask.board.pgn import Game, read_games
from movemask.board.position import Elo, Position
from movemask.games.costs import BLUNDER, INACCURACY, MISTAKE, Cost, Costs
from movemask.games.engine import CLEAR, DEEP, QUICK, Engine, Evaluation
from movemask.games.judging import judged
from movemask.network.files import shipped_models
from movemask.network.registry import open_model
from training.strength import Policy, play, policies

RESULTS = Path(__file__).parent / "results" / "review.md"
RATINGS = (900, 1200, 1500, 1800, 2100, 2400)
LONGEST = 60  # plies of a game
TIMES = 5  # as many nodes judge the review
HASH = 128  # MB of the judge
SEED = 63


@dataclass(frozen=True)
class Judged:
    """A move as the review and the judge see it."""

    review: Cost
    judge: Cost


def played(seed: int) -> list[Game]:
    """Games of the shipped network against itself, one at each rating."""
    (contract,) = shipped_models().glob("*.toml")
    model = open_model(contract, 1)
    boards = [chess.Board() for _ in RATINGS]

    def asked(positions: Sequence[Position], sides: Sequence[tuple[int, int]]) -> Iterator[Policy]:
        return policies(model, positions, [Elo(*side) for side in sides])

    play(boards, [(rating, rating) for rating in RATINGS], asked, np.random.default_rng(seed), model.name)
    for board in boards:
        while len(board.move_stack) > LONGEST:
            board.pop()
    text = "\n\n".join(str(chess.pgn.Game.from_board(board)) for board in boards)
    return [game for game in read_games(text) if isinstance(game, Game)]


async def reviewed(game: Game, program: str) -> Costs:
    """What the review says with an engine."""
    costs = Costs.of(game)
    async with aclosing(Engine(program)) as engine, aclosing(judged(engine, {0: costs})) as found:
        async for look in found:
            costs = look.costs
    return costs


def by_judge(game: Game, engine: SimpleEngine) -> Costs:
    """What the judge says."""
    costs = Costs.of(game)
    for place in costs.missing[::-1]:
        info = engine.analyse(game.played.board(place), Limit(nodes=TIMES * DEEP), game=game)
        costs = costs.evaluated(place, Evaluation(info["score"], tuple(info["pv"])))
    return costs


def row(name: str, moves: Sequence[Judged]) -> str:
    """How right the marks of a review are, and how many faults it finds."""

    def worth(least: float) -> list[Judged]:
        return [move for move in moves if (move.judge.lost or 0.0) >= least]

    marks = [move for move in moves if move.review.mark in ("mistake", "blunder")]
    right = sum((move.judge.lost or 0.0) >= INACCURACY for move in marks)
    slight = [move for move in moves if move.review.mark == "inaccuracy"]
    slightly = sum((move.judge.lost or 0.0) >= INACCURACY for move in slight)
    nearly = sum((move.judge.lost or 0.0) >= INACCURACY / 2 for move in slight)
    faults = worth(MISTAKE)
    found = sum(move.review.mark in ("mistake", "blunder") for move in faults)
    blunders = worth(BLUNDER)
    big = sum(move.review.mark in ("mistake", "blunder") for move in blunders)
    return (
        f"| {name} | {_of(right, len(marks))} | {_of(found, len(faults))} | {_of(big, len(blunders))} "
        f"| {_of(slightly, len(slight))} | {_of(nearly, len(slight))} |"
    )


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({part / whole:.0%})" if whole else "")


def report(games: Sequence[Game], program: str) -> str:
    """The figures as Markdown."""
    network = next(shipped_models().glob("*.toml")).stem
    with SimpleEngine.popen_uci(program) as engine:
        name = engine.id["name"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    reviews = [asyncio.run(reviewed(game, program)) for game in games]
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with SimpleEngine.popen_uci(program, timeout=None) as engine:
        engine.configure({"Hash": HASH})
        judges = [by_judge(game, engine) for game in games]
    with_engine, without = (
        [Judged(*move) for one, judge in zip(found, judges, strict=True) for move in zip(one, judge, strict=True)]
        for found in (reviews, [Costs.of(game) for game in games])
    )
    positions = sum(len(review.evaluations) for review in reviews)
    heads = ["review", "mistakes and blunders that are at least inaccuracies", "mistakes and blunders found"]
    heads += ["blunders found", "inaccuracies that cost 5 points", "inaccuracies that cost 2.5"]
    marks = (
        f"{100 * INACCURACY:.0f} points an inaccuracy,\n{100 * MISTAKE:.0f} a mistake, {100 * BLUNDER:.0f} a blunder"
    )
    return f"""# How true the review is

`python -m benchmarks.review` wrote this on {date.today()}, from {len(games)} games of {network} against
itself at ratings {RATINGS[0]} to {RATINGS[-1]}, at most {LONGEST} plies each: {len(with_engine)} moves. The review's
engine is {name} at {QUICK:,} nodes a position, and at {CLEAR:,} or {DEEP:,} near a mark. The judge is the same at
{TIMES * DEEP:,}.
The costs are by lichess's formula and thresholds: {marks}.

| {" | ".join(heads)} |
|---|--:|--:|--:|--:|--:|
{row("with an engine", with_engine)}
{row("without", without)}

The engine took {1000 * cpu / positions:.0f} ms of CPU a position, and here, on a machine that was doing other things,
{1000 * seconds / positions:.0f} ms.
"""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    program = shutil.which("stockfish")
    if program is None:
        raise SystemExit("stockfish is not on PATH (Debian: apt-get install stockfish; PATH=$PATH:/usr/games)")
    RESULTS.write_text(report(played(parser.parse_args().seed), program))
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
