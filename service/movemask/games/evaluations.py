"""Evaluations by a UCI engine, written as `[%eval]` where a game has none, so that its moves get their marks."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

import chess.engine

from movemask.board.moves import has_legal_move
from movemask.board.pgn import Game
from movemask.errors import EngineFailed

#: Gives the positions of a game, in its tree, the evaluations that they lack.
Evaluate = Callable[[Game], Awaitable[Game]]

#: Seconds in which an engine has to say that it is one.
_STARTS_WITHIN = 10


@asynccontextmanager
async def evaluator(command: str, nodes: int, show: Callable[[str], object]) -> AsyncIterator[Evaluate]:
    """The UCI engine of a command, for as long as the context lasts; it searches so many nodes for each position, of
    which it knows the game. `show` gets the progress. Raises EngineFailed."""
    try:
        words = [command] if shutil.which(command) else shlex.split(command) or [""]
        transport, engine = await asyncio.wait_for(chess.engine.popen_uci(words), _STARTS_WITHIN)
    except (OSError, ValueError, TimeoutError, chess.engine.EngineError) as error:
        why = str(error) or f"no `uciok` within {_STARTS_WITHIN} seconds"
        raise EngineFailed(f"--engine {command}: cannot be started as a UCI engine: {why}") from None
    number, board = count(1), chess.Board()

    async def evaluate(game: Game) -> Game:
        nonlocal board
        assert game.tree is not None
        board = game.tree.board()
        for node in [game.tree, *game.tree.mainline()]:
            if node.move:
                board.push(node.move)
            if node.eval() is None and has_legal_move(board):
                info = await engine.analyse(board, chess.engine.Limit(nodes=nodes), game=game)
                node.set_eval(info.get("score"))
                show(f"{next(number):,} positions evaluated")
        show(f"{'':40}\r")  # the game may be written to the same terminal
        return game.evaluated(game.tree)

    try:
        yield evaluate
    except chess.engine.EngineError as error:
        raise EngineFailed(f"--engine {command}: {error}, at {board.fen()!r}") from None
    finally:
        transport.close()
