"""Reads tests/data: perft suites, tricky positions, lc0's slots, Maia-2's moves, pgx's games.

Sources: tests/data/README.md.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import chess

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Perft:
    fen: str
    chess960: bool
    nodes: dict[int, int]  # by depth


@cache
def perft(name: str) -> tuple[Perft, ...]:
    """The suite `standard` or `chess960`."""
    suite = []
    for line in (DATA / f"perft_{name}.epd").read_text().splitlines():
        if line and not line.startswith("#"):
            fen, *fields = (part.strip() for part in line.split(";"))
            nodes = dict(field[1:].split() for field in fields if field.startswith("D") and field[1].isdigit())
            suite.append(Perft(fen, name == "chess960", {int(depth): int(count) for depth, count in nodes.items()}))
    return tuple(suite)


@cache
def tricky() -> tuple[tuple[str, int, frozenset[str]], ...]:
    """FEN, number of legal moves, flags."""
    rows = []
    for line in (DATA / "fens_tricky.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            fen, moves, flags, *_ = (part.strip() for part in line.split("|"))
            rows.append((fen, int(moves), frozenset(flags.split(","))))
    return tuple(rows)


@cache
def lc0_slots() -> tuple[tuple[str, dict[str, int]], ...]:
    """FEN and lc0's policy index of each legal move (UCI, castling as e1g1)."""
    rows = [json.loads(line) for line in (DATA / "lc0_slots.jsonl").read_text().splitlines()]
    return tuple((row["fen"], row["slots"]) for row in rows)


@cache
def maia2_moves() -> tuple[str, ...]:
    """The moves of Maia-2 in the order of its logits."""
    return tuple((DATA / "maia2_moves.txt").read_text().split())


def pgx_positions() -> Iterator[tuple[str, list[str], list[int], list[float]]]:
    """FEN, the game's moves so far, the legal slots and a weighted sum of each plane observed, all pgx's own."""
    with gzip.open(DATA / "pgx.jsonl.gz", "rt") as rows:
        for row in rows:
            record = json.loads(row)
            yield record["fen"], record["moves"], record["slots"], record["observation"]


def suite(name: str, every: int = 1) -> Iterator[chess.Board]:
    """The valid positions of every Nth line of a perft suite."""
    for line in perft(name)[::every]:
        board = chess.Board(line.fen, chess960=line.chess960)
        if board.is_valid():
            yield board


def played(rng: random.Random, count: int, chess960: bool = False) -> Iterator[chess.Board]:
    """Positions of random games."""
    while count > 0:
        board = chess.Board.from_chess960_pos(rng.randrange(960)) if chess960 else chess.Board()
        for _ in range(rng.randrange(1, 200)):
            moves = list(board.legal_moves)
            if not moves or not count:
                break
            board.push(rng.choice(moves))
            yield board.copy(stack=False)
            count -= 1


def random_game(seed: int, plies: int = 120) -> list[chess.Move]:
    """A random game that castles, promotes and takes en passant where it can, so that few plies show much."""
    draw, board = random.Random(seed), chess.Board()
    while len(board.move_stack) < plies and not board.is_game_over():
        moves = list(board.legal_moves)
        rare = [m for m in moves if m.promotion or board.is_castling(m) or board.is_en_passant(m)]
        pawns = [m for m in moves if board.piece_type_at(m.from_square) == chess.PAWN]
        pool = rare if rare and draw.random() < 0.8 else pawns if pawns and draw.random() < 0.5 else moves
        board.push(draw.choice(pool))
    return list(board.move_stack)
