"""Games of the teacher against itself → a shard of the training split: `python -m training.own_play RUN.toml`

For ratings that are rare among the games: both players' are drawn from 600 to 1100 or from 2100 to 2600, and moves from
what the teacher expects, at temperature 1. `training.train` finds the shard by its name.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import chess
import numpy as np
import torch

from movemask.board.position import Position, boards_of
from movemask.encoding.movemask_planes import encode_tokens
from movemask.encoding.vocabularies import vocabulary
from training.config import Run, load_run
from training.games import Game
from training.maia3 import Teacher
from training.shards import VOCABULARY, pack, write_shard
from training.strength import Policy, play

BANDS = ((600, 1100), (2100, 2600))
AT_ONCE = 256  # games
SOURCE = "own play"


def own_play(run: Run, games: int, number: int) -> Path:
    """Writes shard `own-NUMBER`."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    teacher = Teacher(run.teaching.teacher, device, bfloat16=run.training.bfloat16)
    draw = np.random.default_rng((run.seed, number))
    played = []
    for start in range(0, games, AT_ONCE):
        boards = [chess.Board() for _ in range(min(AT_ONCE, games - start))]
        bands = draw.integers(len(BANDS), size=len(boards))
        ratings = [tuple(draw.integers(*BANDS[band], size=2).tolist()) for band in bands]
        play(boards, ratings, partial(_policies, teacher, device), draw, f"own play from game {start}")
        played += [
            pack(Game(*elos, "lichess", board.result(claim_draw=True), SOURCE, board.move_stack))
            for board, elos in zip(boards, ratings, strict=True)
        ]
    file = run.data.folder / f"train-own-{number:05}.shard"
    write_shard(file, [row for row, _ in played], [plies for _, plies in played])
    return file


@torch.no_grad()
def _policies(
    teacher: Teacher, device: str, positions: Sequence[Position], elos: Sequence[tuple[int, int]]
) -> Iterator[Policy]:
    slots = [vocabulary(VOCABULARY).legal_slots(position) for position in positions]
    legal = torch.zeros(len(slots), len(vocabulary(VOCABULARY)), dtype=torch.bool)
    for row, (_, places) in enumerate(slots):
        legal[row, places] = True
    tokens = torch.from_numpy(encode_tokens(positions, boards_of(positions)))
    ratings = torch.tensor(elos)
    lesson = teacher.lesson(*(part.to(device) for part in (tokens, ratings[:, 0], ratings[:, 1], legal)))
    expected = lesson.logits.cpu().double().masked_fill(~legal, -torch.inf).softmax(1).numpy()
    for (moves, places), shares in zip(slots, expected, strict=True):
        yield list(moves), shares[places] / shares[places].sum()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="games of the teacher against itself -> a shard")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-5.toml")
    parser.add_argument("--games", type=int, default=1024)
    parser.add_argument("--number", type=int, default=0, help="of the shard; another one is other games")
    arguments = parser.parse_args()
    print(own_play(load_run(arguments.run), arguments.games, arguments.number))


if __name__ == "__main__":
    main()
