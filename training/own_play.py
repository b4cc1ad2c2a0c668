"""Games of the teacher against itself → a shard and its targets: `python -m training.own_play RUN.toml --maia3 FOLDER`

For ratings that are rare among the games: both players' are drawn from 600 to 1100 or from 2100 to 2600, and moves from
what the teacher expects, at temperature 1. `training.train` finds both files by their names.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import chess
import numpy as np
from tqdm import tqdm

from movemask.board.position import Position
from movemask.encoding import movemask_planes, published
from movemask.encoding.vocabularies import vocabulary
from training.config import Run, load_run
from training.dataset import trained_on
from training.history import Histories
from training.replay import replay
from training.shards import EN_PASSANT, SYSTEMS, VOCABULARY, read_shard, write_shard
from training.targets import digest_of, write_targets
from training.teacher import BATCH, Answer, Teacher, packed

BANDS = ((600, 1100), (2100, 2600))
LONGEST = 200  # plies
RESULTS = {"1-0": 0, "1/2-1/2": 1, "0-1": 2, "*": -1}

Game = tuple[chess.Board, tuple[int, int], list[int], list[Answer]]  # board, White's and Black's rating, plies, answers


def play(run: Run, maia3: Path, games: int, number: int) -> int:
    """Writes shard `own-NUMBER` and its targets; how many positions they hold."""
    assert run.teaching is not None, "the run has no [teaching]"
    teacher, draw = Teacher(maia3), np.random.default_rng((run.seed, number, 1))
    played: list[Game] = []
    for _ in tqdm(range(0, games, BATCH), unit=" batches"):
        bands = draw.integers(len(BANDS), size=BATCH)
        batch: list[Game] = [(chess.Board(), tuple(draw.integers(*BANDS[band], 2).tolist()), [], []) for band in bands]
        while going := [game for game in batch if not _over(game[0])]:
            _move(teacher, going, draw)
        played += batch
    file = run.data.folder / f"train-own-{number:05}.shard"
    rows = [
        (*elo, RESULTS[board.result(claim_draw=True)], SYSTEMS.index("lichess"), False, len(plies))
        for board, elo, plies, _ in played
    ]
    write_shard(file, rows, [np.array(plies, dtype=np.uint16) for _, _, plies, _ in played])
    shard = read_shard(file)
    positions = replay(shard)
    place = np.argsort(Histories.of(positions, shard.games["plies"].astype(np.int64)).row_of)  # by row, in `answers`
    answers = [answer for game in played for answer in game[3]]
    kept = np.flatnonzero(trained_on(positions, run.data, draw))
    about = {"teacher": teacher.digest, "shard": digest_of(file), "seed": run.seed, "own play": True}
    targets = packed(kept, [answers[place[row]] for row in kept], run.teaching.threshold, about)
    write_targets(run.teaching.folder / f"{file.stem}.00.targets", targets)
    return len(kept)


def _move(teacher: Teacher, games: list[Game], draw: np.random.Generator) -> None:
    """Plays one move in each game."""
    positions = [Position(board.copy()) for board, *_ in games]
    tokens = np.stack([published.encode_maia3_history(position) for position in positions])
    ratings = np.array([elo if board.turn == chess.WHITE else elo[::-1] for board, elo, *_ in games])
    bitboards = np.stack([movemask_planes.bitboards(position) for position in positions])
    for (board, _, plies, answers), answer in zip(games, teacher.answers(tokens, ratings, bitboards), strict=True):
        slots, shares = answer
        slot = int(draw.choice(slots, p=shares.astype(np.float64) / shares.sum(dtype=np.float64)))
        plies.append(slot | (EN_PASSANT if board.has_legal_en_passant() else 0))
        answers.append(answer)
        board.push(vocabulary(VOCABULARY).move(slot, board))


def _over(board: chess.Board) -> bool:
    return len(board.move_stack) >= LONGEST or board.is_game_over() or board.is_repetition() or board.is_fifty_moves()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="games of the teacher against itself -> a shard and its targets")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-4.toml")
    parser.add_argument("--maia3", type=Path, required=True, help="the folder that training.maia3 made")
    parser.add_argument("--games", type=int, default=1024)
    parser.add_argument("--number", type=int, default=0, help="of the shard; another one is other games")
    arguments = parser.parse_args()
    print(f"{play(load_run(arguments.run), arguments.maia3, arguments.games, arguments.number):,} positions")


if __name__ == "__main__":
    main()
