"""Evaluations by a UCI engine, written as `[%eval]` where a game has none, so that its moves get their marks."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

import chess.engine
import chess.pgn

from movemask.board.moves import has_legal_move
from movemask.board.pgn import Game, Parsed
from movemask.errors import EngineFailed

#: Writes the evaluations into a game.
Evaluate = Callable[[Parsed], Awaitable[Parsed]]

#: Seconds in which an engine says that it is one, as in python-chess.
_STARTS_WITHIN = 10


@asynccontextmanager
async def evaluator(command: str, nodes: int, show: Callable[[str], object]) -> AsyncIterator[Evaluate]:
    """Starts the UCI engine of a command, for as long as the context lasts. Each position of a main line that has no
    evaluation gets one, from a search of so many nodes, which knows the moves before it; `show` gets the progress.
    Raises EngineFailed, which names the position."""
    try:
        words = [command] if shutil.which(command) else shlex.split(command) or [""]
        transport, engine = await asyncio.wait_for(chess.engine.popen_uci(words), _STARTS_WITHIN)
    except TimeoutError:
        raise EngineFailed(f"--engine {command}: is no UCI engine: no `uciok` in {_STARTS_WITHIN} seconds") from None
    except (OSError, ValueError, chess.engine.EngineError) as error:
        raise EngineFailed(f"--engine {command}: cannot be started as a UCI engine: {error}") from None
    number = count(1)

    async def evaluate(parsed: Parsed) -> Parsed:
        tree, game = parsed
        if not isinstance(tree, chess.pgn.Game) or not isinstance(game, Game):
            return parsed
        board = tree.board()
        try:
            for node in [tree, *tree.mainline()]:
                if node.move:
                    board.push(node.move)
                if node.eval() is None and has_legal_move(board):
                    info = await engine.analyse(board, chess.engine.Limit(nodes=nodes), game=tree)
                    node.set_eval(info["score"])
                    show(f"{next(number):,} positions evaluated")
        except (chess.engine.EngineError, KeyError) as error:
            why = "no score was given" if isinstance(error, KeyError) else error
            raise EngineFailed(f"--engine {command}: {why}, at {board.fen()!r}") from None
        finally:
            show(f"{'':40}\r")  # what is written next may go to the same terminal
        return tree, game.evaluated()

    try:
        yield evaluate
    finally:
        transport.close()
