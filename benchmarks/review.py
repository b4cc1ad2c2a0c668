"""How true the review of a game is: `python -m benchmarks.review`. Writes results/review.md.

The shipped network plays games against itself, with a seed, each at another rating. Their moves are judged by the
review with an engine and without one, and by Stockfish with five times the nodes. Its reasons (`loses a knight`) are
judged by what the position comes to when Stockfish plays on for both sides. How certain the judge is of the marks shows
a second one with twice its nodes. Needs Stockfish on PATH.
"""

from __future__ import annotations

import argparse
import asyncio
import re
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
from movemask.games.engine import DEEP, QUICK, Engine, Evaluation
from movemask.games.judging import judged
from movemask.games.reasons import reason_of
from movemask.network.files import shipped_models
from movemask.network.registry import open_model
from training.strength import Policy, play, policies

RESULTS = Path(__file__).parent / "results" / "review.md"
RATINGS = (900, 1200, 1500, 1800, 2100, 2400)
LONGEST = 60  # plies of a game
ROUNDS = 2  # games at each rating whose marks are judged
SENTENCES = 48  # further games whose reasons are judged
PLAYED_ON = 14  # plies that Stockfish plays on after a move that loses material
PLAYED_NODES = (300_000, 1_000_000)  # of each of them: more than the review's; more again where the reason fails
MATE_NODES = 5_000_000  # to find a mate
TIMES = 5  # as many nodes judge the review
HASH = 128  # MB of the judge
SEED = 71


@dataclass(frozen=True)
class Judged:
    """A move as the review and the judge see it."""

    review: Cost
    judge: Cost


def played(seed: int, ratings: Sequence[int]) -> list[Game]:
    """Games of the shipped network against itself, one at each of the ratings."""
    (contract,) = shipped_models().glob("*.toml")
    model = open_model(contract, 1)
    boards = [chess.Board() for _ in ratings]

    def policy_of(positions: Sequence[Position], sides: Sequence[tuple[int, int]]) -> Iterator[Policy]:
        return policies(model, positions, [Elo(*side) for side in sides])

    play(boards, [(rating, rating) for rating in ratings], policy_of, np.random.default_rng(seed), model.name)
    for board in boards:
        while len(board.move_stack) > LONGEST:
            board.pop()
    text = "\n\n".join(str(chess.pgn.Game.from_board(board)) for board in boards)
    return [game for game in read_games(text) if isinstance(game, Game)]


async def reviewed(game: Game, program: str) -> Costs:
    """What the review says with an engine."""
    costs = Costs.of(game)
    async with aclosing(Engine(program)) as engine, aclosing(judged(engine, {0: costs})) as looks:
        async for look in looks:
            costs = look.costs
    return costs


def by_judge(game: Game, engine: SimpleEngine, nodes: int) -> Costs:
    """What a judge says."""
    costs = Costs.of(game)
    for place in costs.missing[::-1]:
        info = engine.analyse(game.played.board(place), Limit(nodes=nodes), game=(game, nodes))
        costs = costs.evaluated(place, Evaluation(info["score"], tuple(info["pv"])))
    return costs


@dataclass(frozen=True)
class Claim:
    """A reason that the review gave, and whether it holds."""

    game: int
    move: str
    reason: str
    holds: bool


def claims(number: int, costs: Costs, engine: SimpleEngine) -> Iterator[Claim]:
    """The reasons of a game's moves."""
    for place, ply in enumerate(costs.game.plies):
        reason = reason_of(costs, place)
        if reason is None or reason in ("stalemates", "draws"):
            continue
        board = costs.game.played.board(place)
        yield Claim(number, board.variation_san([ply.played]), reason, holds(board, ply.played, reason, engine))


def holds(board: chess.Board, played: chess.Move, reason: str, engine: SimpleEngine) -> bool:
    """Whether a reason is true: by a mate that is found, or by the material after the best play of both sides."""
    after = board.copy(stack=False)
    after.push(played)
    words = reason.split()
    if words[1:3] == ["mate", "in"]:
        most = 1 if words[3] == "one" else int(words[3])
        where = after if words[0] == "allows" else board
        mate = engine.analyse(where, Limit(nodes=MATE_NODES, mate=most))["score"].relative.mate()
        return mate is not None and 0 < mate <= most
    if words[-1] == "mate":
        mating = board.copy(stack=False)
        mating.push_san(words[1])
        return mating.is_checkmate()
    sign, moved = -1, after
    if words[0] == "misses":
        sign, moved = 1, board.copy(stack=False)
        moved.push_san(words[1])
    worth = _worth(reason.partition("winning" if words[0] == "misses" else "loses")[2])
    return any(sign * _change(board, moved, engine, nodes) >= worth - max(1.0, worth / 4) for nodes in PLAYED_NODES)


def _worth(words: str) -> float:
    """What pieces in words are worth, in pawns: `a rook for two pawns` is 3."""
    numbers = {"a": 1, "the": 1, "two": 2, "three": 3, "four": 4}
    worth = {"exchange": 2, "pawn": 1, "knight": 3, "bishop": 3, "rook": 5, "queen": 9}
    lost, _, won = words.partition(" for ")

    def total(part: str) -> float:
        pieces = [piece.split() for piece in re.split(", | and ", part.strip()) if piece]
        return sum(numbers[count] * worth[name.rstrip("s")] for count, name, *_ in pieces)

    return total(lost) - total(won)


def _change(before: chess.Board, after: chess.Board, engine: SimpleEngine, nodes: int) -> float:
    """Pawns that the side to move in `before` wins when both sides play their best from `after` on; mates count 9."""
    side, board = before.turn, after.copy(stack=False)
    balances: list[float] = []
    for _ in range(PLAYED_ON):
        if board.is_game_over():
            break
        best = engine.play(board, Limit(nodes=nodes)).move
        assert best is not None
        board.push(best)
        balances.append(_material(board, side))
    if board.is_checkmate():
        return -9.0 if board.turn == side else 9.0
    # The middle of the last plies: half of an exchange may be played.
    return float(np.median(balances[-5:] or [_material(board, side)])) - _material(before, side)


def _material(board: chess.Board, side: chess.Color) -> float:
    worth = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9}
    return sum(
        value * (len(board.pieces(kind, side)) - len(board.pieces(kind, not side))) for kind, value in worth.items()
    )


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
    detected = sum(move.review.mark in ("mistake", "blunder") for move in faults)
    same = sum(move.review.mark == move.judge.mark for move in moves)
    marked = marks + [move for move in moves if move.review.mark == "inaccuracy"]
    right_all = sum(move.judge.mark is not None for move in marked)
    blunders = worth(BLUNDER)
    big = sum(move.review.mark in ("mistake", "blunder") for move in blunders)
    return (
        f"| {name} | {_of(right, len(marks))} | {_of(detected, len(faults))} | {_of(big, len(blunders))} "
        f"| {_of(slightly, len(slight))} | {_of(nearly, len(slight))} | {_of(right_all, len(marked))} "
        f"| {_of(same, len(moves))} |"
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
        judges, second = ([by_judge(game, engine, times * TIMES * DEEP) for game in games] for times in (1, 2))
    with_engine, without, by_second = (
        [Judged(*move) for one, judge in zip(costs, judges, strict=True) for move in zip(one, judge, strict=True)]
        for costs in (reviews, [Costs.of(game) for game in games], second)
    )
    positions = sum(len(review.ruled) + 1 for review in reviews)
    heads = ["review", "mistakes and blunders that are at least inaccuracies", "mistakes and blunders found"]
    heads += ["blunders found", "inaccuracies that cost 5 points", "inaccuracies that cost 2.5"]
    heads += ["marks of all kinds that cost 5 points", "moves with the judge's mark or none"]
    marks = (
        f"{100 * INACCURACY:.0f} points an inaccuracy,\n{100 * MISTAKE:.0f} a mistake, {100 * BLUNDER:.0f} a blunder"
    )
    return f"""# How true the review is

`python -m benchmarks.review` wrote this on {date.today()}, from {len(games)} games of {network} against
itself at ratings {RATINGS[0]} to {RATINGS[-1]}, at most {LONGEST} plies each: {len(with_engine)} moves. The review's
engine is {name} at {QUICK:,} nodes a position, and at {DEEP:,} near a mark.
The judge is the same at {TIMES * DEEP:,}, and the second judge at {2 * TIMES * DEEP:,}: how far it agrees
with the judge shows how certain the judge is.
The costs are by lichess's formula and thresholds: {marks}.

| {" | ".join(heads)} |
|---|--:|--:|--:|--:|--:|--:|--:|
{row("with an engine", with_engine)}
{row("without", without)}
{row("the second judge", by_second)}

The engine took {1000 * cpu / positions:.0f} ms of CPU a position, and here, on a machine that was doing other things,
{1000 * seconds / positions:.0f} ms.
"""


def sentences(seed: int, program: str) -> str:
    """How true the reasons are, as Markdown."""
    games = played(seed, RATINGS * (SENTENCES // len(RATINGS)))
    reasons, faults = [], 0
    with SimpleEngine.popen_uci(program, timeout=None) as engine:
        engine.configure({"Hash": HASH})
        for number, game in enumerate(games):
            costs = asyncio.run(reviewed(game, program))
            faults += sum(cost.mark in ("mistake", "blunder") for cost in costs)
            reasons += list(claims(number, costs, engine))
            print(f"{number + 1} of {len(games)} games, {len(reasons)} reasons", flush=True)
    wrong = [claim for claim in reasons if not claim.holds]
    lines = "".join(f"\n- game {claim.game}: {claim.move} {claim.reason}" for claim in wrong)
    return f"""
In {len(games)} other games the review gave {len(reasons)} reasons, beside {faults} mistakes and blunders.
{len(reasons) - len(wrong)} of the reasons hold: Stockfish finds the mate within {MATE_NODES:,} nodes,
or the material is lost or won, to a pawn or a quarter, after it has played on for both sides.
It plays {PLAYED_ON} plies at {PLAYED_NODES[0]:,} nodes and, if a reason does not hold, again at {PLAYED_NODES[1]:,}.
{"The others:" if wrong else ""}
{lines}
"""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    program = shutil.which("stockfish")
    if program is None:
        raise SystemExit("stockfish is not on PATH (Debian: apt-get install stockfish; PATH=$PATH:/usr/games)")
    seed = parser.parse_args().seed
    RESULTS.write_text(report(played(seed, RATINGS * ROUNDS), program) + sentences(seed + 1, program))
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
