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

#: Seconds in which an engine has to say that it is one.
_STARTS_WITHIN = 30


@asynccontextmanager
async def evaluator(
    command: str, nodes: int, show: Callable[[str], object]
) -> AsyncIterator[Callable[[Game], Awaitable[Game]]]:
    """Starts the UCI engine of a command; yields what evaluates the positions of a game, in its tree, that have no
    evaluation, by so many nodes each. `show` gets the progress. Raises EngineFailed."""
    try:
        words = [command] if shutil.which(command) else shlex.split(command) or [""]
        transport, engine = await chess.engine.UciProtocol.popen(words)
    except (OSError, ValueError) as error:
        raise EngineFailed(f"--engine {command}: {error}") from None
    number, where = count(1), "at its start"

    async def evaluate(game: Game) -> Game:
        nonlocal where
        assert game.tree is not None
        board = game.tree.board()
        for node in [game.tree, *game.tree.mainline()]:
            if node.move:
                board.push(node.move)
            if node.eval() is None and has_legal_move(board):
                where = f"at {board.fen()!r}"
                info = await engine.analyse(board, chess.engine.Limit(nodes=nodes), game=game)
                node.set_eval(info.get("score"))
                show(f"{next(number):,} positions evaluated")
        show(f"{'':40}\r")  # the game may be written to the same terminal
        return game.evaluated(game.tree)

    try:
        await asyncio.wait_for(engine.initialize(), _STARTS_WITHIN)
        yield evaluate
    except (TimeoutError, chess.engine.EngineError) as error:
        show("\n")
        why = str(error) or f"no `uciok` in {_STARTS_WITHIN} seconds, so it is no UCI engine"
        raise EngineFailed(f"--engine {command}: {where}: {why}") from None
    finally:
        transport.close()
        await engine.returncode  # or else it may outlive the event loop
