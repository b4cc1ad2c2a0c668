"""Positions to measure with."""

from __future__ import annotations

import random

import chess


def random_games(count: int, seed: int = 1) -> list[str]:
    """FENs of positions of random games that are not over, of every length up to 150 plies."""
    rng = random.Random(seed)
    fens: list[str] = []
    while len(fens) < 4 * count:
        board = chess.Board()
        for _ in range(rng.randrange(1, 150)):
            moves = list(board.legal_moves)
            if not moves:
                break
            board.push(rng.choice(moves))
            if any(board.legal_moves):
                fens.append(board.fen())
    return rng.sample(fens, count)
