"""Positions for the diagnosis that the service ships.

`python -m training.probes RUN.toml service/movemask/network_tools/probes.jsonl.gz` writes them.

From lichess games (CC0) by many players. Each group is there for mistakes that show in it and hardly elsewhere: the
rare kinds of move, high half-move clocks, ratings far apart, and openings, where thousands of games say how often each
move is played. In `rights` one of two castling rights is taken away, so that one castling is legal and the other not.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import chess
import numpy as np

from movemask.board.position import Position
from movemask.encoding.vocabularies import vocabulary
from training.config import Data, load_run
from training.samples import Sample, held_out_games, samples
from training.shards import EN_PASSANT, VOCABULARY

PER_GAME = 200
BEFORE = 8  # plies of history
OPENINGS, OPENING_PLIES, OPENING_GAMES = 500, 14, 60_000
WANTED: dict[str, tuple[int, Callable[[Sample], bool]]] = {
    "clock": (1000, lambda s: s.position.board.halfmove_clock >= 16),
    "en_passant": (120, lambda s: s.position.board.has_legal_en_passant()),
    "promotion": (200, lambda s: any(move.promotion for move in s.position.board.legal_moves)),
    "castling": (250, lambda s: any(map(s.position.board.is_castling, s.position.board.legal_moves))),
    "ratings": (400, lambda s: abs(s.elo.self - s.elo.opponent) >= 200),
    "general": (500, lambda s: True),
}
RIGHTS = 60

Row = dict[str, object]


def sampled(data: Data, seed: int) -> Iterator[Row]:
    """Rows of all groups but the last two, from the validation split, rare kinds first."""
    pool = samples(data, "validation", PER_GAME, seed)
    counts: Counter[str] = Counter()
    rights = 0
    for index in np.random.default_rng(seed).permutation(len(pool)):
        sample = pool[index]
        kind = next((k for k, (limit, fits) in WANTED.items() if counts[k] < limit and fits(sample)), None)
        if kind is not None:
            counts[kind] += 1
            yield _row(kind, sample)
        if rights < RIGHTS and (halves := list(_one_right_less(sample))):
            rights += 1
            yield from halves


def openings(data: Data) -> Iterator[Row]:
    """The openings played most often in the training split, with how often each move followed."""
    slots = vocabulary(VOCABULARY)
    followed: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for number, (_, _, plies) in enumerate(held_out_games(data, "train")):
        if number == OPENING_GAMES:
            break
        moves = [packed & (EN_PASSANT - 1) for packed in plies[:OPENING_PLIES]]
        for ply, slot in enumerate(moves):
            followed[tuple(moves[:ply])][slot] += 1
    for line in sorted(followed, key=lambda line: -followed[line].total())[:OPENINGS]:
        board = chess.Board()
        for slot in line:
            board.push(slots.move(slot, board))
        played = {slots.move(slot, board).uci(): count for slot, count in followed[line].items()}
        moves_so_far = [move.uci() for move in board.move_stack]
        yield {"group": "opening", "fen": chess.STARTING_FEN, "moves": moves_so_far, "played": played}


def _row(group: str, sample: Sample) -> Row:
    """The position as a FEN some plies before and the moves since, so that it can be read with its history."""
    board = sample.position.board.copy()
    moves: list[str] = []
    while board.move_stack and len(moves) < BEFORE:
        moves.insert(0, board.pop().uci())
    row: Row = {"group": group, "fen": Position(board).fen, "moves": moves, "played": {sample.played.uci(): 1}}
    row["elo"] = [int(sample.elo.self), int(sample.elo.opponent)]
    if sample.result >= 0:
        row["result"] = sample.result
    return row


def _one_right_less(sample: Sample) -> Iterator[Row]:
    """Where both castlings are legal: the position with the one right alone, and with the other."""
    board = sample.position.board
    if sum(map(board.is_castling, board.legal_moves)) == 2:
        for rook in chess.scan_forward(board.clean_castling_rights() & board.occupied_co[board.turn]):
            alone = board.copy(stack=False)
            alone.castling_rights &= ~(board.occupied_co[board.turn] & ~chess.BB_SQUARES[rook])
            yield {"group": "rights", "fen": Position(alone).fen, "moves": [], "played": {}}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="probes for the diagnosis")
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path, help="such as service/movemask/network_tools/probes.jsonl.gz")
    arguments = parser.parse_args()
    run = load_run(arguments.run)
    rows = [*sampled(run.data, run.seed), *openings(run.data)]
    lines = sorted(json.dumps(row, separators=(",", ":")) for row in rows)
    with open(arguments.file, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
        packed.write("\n".join(lines).encode() + b"\n")
    print(dict(Counter(str(row["group"]) for row in rows)), arguments.file.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
