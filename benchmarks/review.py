"""How well the review of a game finds what moves cost: `python -m benchmarks.review`.

Measures `games.costs` on 120 games that the network played against itself at rating 1200, and writes results/review.md.
The evaluations in the games are Stockfish's; the network does not see them here. The data are made by two commands:

    python -m benchmarks.review play    plays the games, with a seed; Stockfish evaluates their positions
    python -m benchmarks.review judge   draws 200 moves that cost nothing, by Stockfish at many more nodes
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import chess
import chess.pgn
import numpy as np
from chess.engine import Limit, SimpleEngine

from movemask.board.pgn import Game, read_games
from movemask.board.position import Elo, Position
from movemask.games.costs import BLUNDER, MISTAKE, Cost, Fact, costs_of
from movemask.network.files import shipped_models
from movemask.network.registry import open_model
from movemask.server.queue.pipeline import Pipeline
from training.strength import Policy, play, policies

HERE = Path(__file__).parent
GAMES, COSTLESS, RESULTS = HERE / "review-games.pgn", HERE / "review-costless.csv", HERE / "results" / "review.md"
COUNT, RATING, SEED = 120, 1200, 55
NODES, JUDGED_NODES = 15_000, 300_000
WANTED = 200  # moves that cost nothing
NOTHING = 0.005  # of the expected score, at both node counts
OPEN = (
    0.1  # a costless move counts if the expected score is at least this far from 0 and 1: there was something to lose
)
BETTER = 0.55  # expected score of a side that should not stalemate


@dataclass(frozen=True)
class Move:
    """A move of the games: Stockfish's expected scores for its player, and what the review says."""

    game: int
    ply: int  # from 1
    position: Position
    move: chess.Move
    chances: tuple[float, float] | None
    cost: Cost

    @property
    def lost(self) -> float:
        """What it lost by Stockfish."""
        return 0.0 if self.chances is None else max(0.0, self.chances[0] - self.chances[1])


def played(seed: int) -> Iterator[chess.pgn.Game]:
    """The games of the shipped network against itself."""
    (contract,) = shipped_models().glob("*.toml")
    model = open_model(contract, 1)
    boards = [chess.Board() for _ in range(COUNT)]

    def asked(positions: Sequence[Position], sides: Sequence[tuple[int, int]]) -> Iterator[Policy]:
        return policies(model, positions, [Elo(*side) for side in sides])

    play(boards, [(RATING, RATING)] * COUNT, asked, np.random.default_rng(seed), model.name)
    for number, board in enumerate(boards, 1):
        game = chess.pgn.Game.from_board(board)
        rating = str(RATING)
        game.headers.update(Event="Self-play", Round=str(number), White=model.name, Black=model.name)
        game.headers.update(WhiteElo=rating, BlackElo=rating, Result=board.result(claim_draw=True))
        yield game


def evaluate(games: Sequence[chess.pgn.Game], engine: SimpleEngine) -> None:
    """Writes Stockfish's evaluations into the games."""
    for number, game in enumerate(games):
        board = game.board()
        for node in [game, *game.mainline()]:
            if node.move:
                board.push(node.move)
            if not board.is_game_over():
                node.set_eval(engine.analyse(board, Limit(nodes=NODES), game=number)["score"])


def costless(moves: Sequence[Move], engine: SimpleEngine, seed: int) -> Iterator[tuple[Move, float, float]]:
    """Moves that cost nothing at both node counts, in a random order, with the expected scores before and after."""
    for place in np.random.default_rng(seed).permutation(len(moves)):
        move = moves[place]
        if move.chances is None or move.lost > NOTHING or not OPEN <= move.chances[0] <= 1 - OPEN:
            continue
        board = move.position.board.copy()
        if board.legal_moves.count() == 1:
            continue
        before = _expected(engine, board, board.turn)
        board.push(move.move)
        after = _expected(engine, board, not board.turn)
        if before - after <= NOTHING:
            yield move, before, after


def _expected(engine: SimpleEngine, board: chess.Board, side: chess.Color) -> float:
    """The expected score of a side by Stockfish, with lichess's formula."""
    if (outcome := board.outcome()) is not None:
        return 0.5 if outcome.winner is None else float(outcome.winner == side)
    score = engine.analyse(board, Limit(nodes=JUDGED_NODES), game=object())["score"]
    return score.pov(side).wdl(model="lichess").expectation()


def read() -> list[Game]:
    """The games of the data."""
    with GAMES.open() as stream:
        return [game for game in read_games(stream) if isinstance(game, Game)]


def judged(games: Sequence[Game]) -> list[Move]:
    """The moves with what the review says of them, by rules and network alone."""
    (contract,) = shipped_models().glob("*.toml")
    bare = [replace(game, plies=tuple(replace(ply, chances=None) for ply in game.plies)) for game in games]
    with closing(Pipeline(open_model(contract, 1), max_batch=64, max_waiting=1 << 20)) as pipeline:
        costs = asyncio.run(costs_of(pipeline, bare))
    return [
        Move(number, place, ply.position, ply.played, ply.chances, cost)
        for number, (game, known) in enumerate(zip(games, costs, strict=True), 1)
        if isinstance(known, list)
        for place, (ply, cost) in enumerate(zip(game.plies, known, strict=True), 1)
    ]


def report(moves: Sequence[Move]) -> str:
    """The figures as Markdown."""
    with COSTLESS.open() as stream:
        free = {(int(row["game"]), int(row["ply"])) for row in csv.DictReader(stream)}

    def row(name: str, chosen: Sequence[Move]) -> str:
        marks = [move.cost.mark for move in chosen]
        share = f"{(marks.count('mistake') + marks.count('blunder')) / max(1, len(marks)):.1%}"
        return f"| {name} | {len(chosen)} | {marks.count('mistake')} | {marks.count('blunder')} | {share} |"

    stalemates = [move for move in moves if move.cost.fact is Fact.STALEMATES]
    rows = [
        row("avoidable moves that allow mate in one", [m for m in moves if m.cost.fact is Fact.ALLOWS_MATE]),
        row(f"stalemates by a side that expected more than {BETTER}", [m for m in stalemates if _better(m)]),
        row("moves that cost nothing", [m for m in moves if (m.game, m.ply) in free]),
        row(f"moves that lost {100 * BLUNDER:.0f} points or more", [m for m in moves if m.lost >= BLUNDER]),
        row(
            f"moves that lost {100 * MISTAKE:.0f} to {100 * BLUNDER:.0f} points",
            [m for m in moves if MISTAKE <= m.lost < BLUNDER],
        ),
        row("all moves", moves),
    ]
    found = [m for m in moves if m.cost.mark is not None]
    right = sum(m.lost >= MISTAKE for m in found) / len(found)
    return f"""# What the review finds

`python -m benchmarks.review` wrote this on {date.today()}, from {COUNT} games ({len(moves):,} moves) of the shipped
network against itself at rating {RATING}. What moves cost is by Stockfish 15.1 at {NODES:,} nodes a position, for the
{len(free)} moves that cost nothing also at {JUDGED_NODES:,}; these have an alternative, and an expected score of
{OPEN} to {1 - OPEN}.

| moves | number | called a mistake | called a blunder | both |
|---|--:|--:|--:|--:|
{chr(10).join(rows)}

Of the moves that are called a mistake or a blunder, {right:.0%} lost {100 * MISTAKE:.0f} points or more.
"""


def _better(move: Move) -> bool:
    return move.chances is not None and move.chances[0] > BETTER


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("play", "judge", "measure"), default="measure")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    if arguments.what == "measure":
        RESULTS.write_text(report(judged(read())))
        print(RESULTS.read_text())
        return
    stockfish = shutil.which("stockfish") or "/usr/games/stockfish"
    with SimpleEngine.popen_uci(stockfish) as engine:
        if arguments.what == "play":
            games = list(played(arguments.seed))
            evaluate(games, engine)
            GAMES.write_text("".join(f"{game}\n\n" for game in games))
            return
        moves = [
            Move(number, place, ply.position, ply.played, ply.chances, Cost())
            for number, game in enumerate(read(), 1)
            for place, ply in enumerate(game.plies, 1)
        ]
        with COSTLESS.open("w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(["game", "ply", "fen", "move", "before", "after"])
            for _, (move, before, after) in zip(range(WANTED), costless(moves, engine, arguments.seed), strict=False):
                fen = move.position.fen
                writer.writerow([move.game, move.ply, fen, move.move.uci(), f"{before:.4f}", f"{after:.4f}"])


if __name__ == "__main__":
    main()
