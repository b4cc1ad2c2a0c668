"""Plays games between two UCI engines with clocks, and says who won and what went wrong.

    python examples/tournament.py --games 100 --seconds 10 --increment 0.1 \\
        "movemask uci --elo 1100 --temperature 1" "movemask uci --elo 1900 --temperature 1"

python-chess's engine API speaks to them and judges their moves. Each engine has White in half of the games. Exits with
1 if a move was illegal, a clock ran out or an engine did not answer. `--second-option "Skill Level=0"` sets an option.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
import time
from collections import Counter

import chess
import chess.engine
import chess.pgn

#: Seconds beyond its clock after which an engine that is silent counts as stalled.
STALLED = 10


async def play(engines: list[chess.engine.UciProtocol], seconds: float, increment: float) -> tuple[chess.pgn.Game, str]:
    """One game of White's engine against Black's, and what ended it."""
    board, clocks, this = chess.Board(), [seconds, seconds], object()
    ended = "loss on time"
    while not board.is_game_over(claim_draw=True):
        mover = 0 if board.turn else 1
        limit = chess.engine.Limit(
            white_clock=clocks[0], black_clock=clocks[1], white_inc=increment, black_inc=increment
        )
        started = time.perf_counter()
        try:
            result = await asyncio.wait_for(engines[mover].play(board, limit, game=this), clocks[mover] + STALLED)
        except (TimeoutError, chess.engine.EngineTerminatedError):
            ended = "stall"
            break
        except chess.engine.EngineError:  # python-chess's, for a move that is not legal
            ended = "illegal move"
            break
        clocks[mover] -= time.perf_counter() - started
        if clocks[mover] < 0:
            break
        clocks[mover] += increment
        assert result.move is not None
        board.push(result.move)
    else:
        outcome = board.outcome(claim_draw=True)
        assert outcome is not None
        ended = outcome.termination.name.lower().replace("_", " ")
    game = chess.pgn.Game.from_board(board)
    if ended in ("loss on time", "stall", "illegal move"):
        game.headers["Result"] = "0-1" if board.turn else "1-0"
    else:
        game.headers["Result"] = board.result(claim_draw=True)
    game.headers["Termination"] = ended
    return game, ended


async def tournament(
    commands: list[str], options: list[list[str]], games: int, seconds: float, increment: float, pgn: str | None
) -> int:
    """Plays the games and prints the score of the first engine; 1 if anything went wrong."""
    opened = [await chess.engine.popen_uci(shlex.split(command)) for command in commands]
    engines = [protocol for _, protocol in opened]
    for engine, texts in zip(engines, options, strict=True):
        await engine.configure(dict(text.split("=", 1) for text in texts))
    score: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    plies = 0
    for number in range(games):
        white = number % 2
        game, ended = await play([engines[white], engines[1 - white]], seconds, increment)
        game.headers.update({"Round": str(number + 1), "White": commands[white], "Black": commands[1 - white]})
        result = game.headers["Result"]
        won = {"1-0": white == 0, "0-1": white == 1}.get(result)
        score["drawn" if won is None else "won" if won else "lost"] += 1
        endings[ended] += 1
        plies += game.end().ply()
        if pgn is not None:
            with open(pgn, "a") as file:
                print(game, end="\n\n", file=file)
    for engine in engines:
        await engine.quit()
    print(f"{commands[0]} against {commands[1]}: {games} games, {plies} plies")
    print(f"won {score['won']}, drawn {score['drawn']}, lost {score['lost']}")
    print("; ".join(f"{name} {times}" for name, times in endings.most_common()))
    return int(any(endings[name] for name in ("loss on time", "stall", "illegal move")))


def main() -> int:
    parser = argparse.ArgumentParser(description="Games between two UCI engines.")
    parser.add_argument("engines", nargs=2, metavar="COMMAND", help="How an engine is started.")
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10, help="Each side's clock.")
    parser.add_argument("--increment", type=float, default=0.1, help="Seconds added after each move.")
    parser.add_argument("--first-option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--second-option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--pgn", help="File that the games are added to.")
    arguments = parser.parse_args()
    options = [arguments.first_option, arguments.second_option]
    return asyncio.run(
        tournament(arguments.engines, options, arguments.games, arguments.seconds, arguments.increment, arguments.pgn)
    )


if __name__ == "__main__":
    sys.exit(main())
