"""Held-out games of sources with many players as a PGN, for `movemask calibrate`: `python -m training.pgn FILE`."""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import islice
from pathlib import Path

import chess
import chess.pgn

from training.config import MANY_PLAYERS, Run
from training.data import games, split_of


def write_pgn(run: Run, file: Path, limit: int) -> None:
    """Writes the first `limit` games of the validation split."""
    held_out = (
        game for game in games(run, Counter()) if game.source in MANY_PLAYERS and split_of(game.moves) == "validation"
    )
    with open(file, "w") as out:
        for found in islice(held_out, limit):
            board = chess.Board()
            for uci in found.moves.split():
                board.push_uci(uci)
            game = chess.pgn.Game.from_board(board)
            game.headers["WhiteElo"], game.headers["BlackElo"] = str(found.white_elo), str(found.black_elo)
            print(game, file=out, end="\n\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="held-out games as PGN")
    parser.add_argument("file", type=Path)
    parser.add_argument("--games", type=int, default=500)
    arguments = parser.parse_args()
    write_pgn(Run(Path()), arguments.file, arguments.games)
