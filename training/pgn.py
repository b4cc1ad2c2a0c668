"""Held-out games by many players as a PGN, for `movemask calibrate`: `python -m training.pgn RUN.toml FILE`."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

import chess
import chess.pgn

from movemask.encoding.vocabularies import vocabulary
from training.config import Data, load_run
from training.samples import held_out_games
from training.shards import EN_PASSANT, VOCABULARY


def write_pgn(data: Data, file: Path, limit: int) -> None:
    """Writes the first `limit` games of the validation split."""
    slots = vocabulary(VOCABULARY)
    with open(file, "w") as out:
        for shard, number, plies in islice(held_out_games(data, "validation"), limit):
            board = chess.Board()
            for packed in plies:
                board.push(slots.move(packed & (EN_PASSANT - 1), board))
            game = chess.pgn.Game.from_board(board)
            row = shard.games[number]
            game.headers["WhiteElo"], game.headers["BlackElo"] = str(row["white_elo"]), str(row["black_elo"])
            print(game, file=out, end="\n\n")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="held-out games as PGN")
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--games", type=int, default=500)
    arguments = parser.parse_args()
    write_pgn(load_run(arguments.run).data, arguments.file, arguments.games)


if __name__ == "__main__":
    main()
