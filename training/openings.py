"""What a model plays in the starting position and in ten famous openings, for two ratings: a table for the report."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from movemask.board.moves import moves_of
from movemask.board.position import Elo, Position
from movemask.network.model import Model
from movemask.pipeline import evaluate_positions

RATINGS = (1100, 2200)
SHOWN = 3
OPENINGS = {
    "start": "",
    "King's Pawn": "e2e4",
    "Open Game": "e2e4 e7e5",
    "Ruy Lopez": "e2e4 e7e5 g1f3 b8c6 f1b5",
    "Italian": "e2e4 e7e5 g1f3 b8c6 f1c4",
    "Sicilian": "e2e4 c7c5 g1f3",
    "French": "e2e4 e7e6 d2d4 d7d5",
    "Caro-Kann": "e2e4 c7c6 d2d4 d7d5",
    "Queen's Gambit": "d2d4 d7d5 c2c4",
    "King's Indian": "d2d4 g8f6 c2c4 g7g6 b1c3",
    "King's Gambit": "e2e4 e7e5 f2f4",
}


def table(model: Model) -> str:
    """Markdown: an opening a row, a rating a column, each with the three likeliest moves; how far they are apart."""
    lines = ["| opening | " + " | ".join(str(rating) for rating in RATINGS) + " | total variation |"]
    lines.append("|---" * (len(RATINGS) + 2) + "|")
    for name, moves in OPENINGS.items():
        position = Position.read(moves=moves.split())
        elos = [Elo(rating, rating) for rating in RATINGS]
        codes, probabilities, indptr, _ = evaluate_positions(model, [position] * len(elos), elos).policies.lists
        cells = []
        by_move = []
        for start, end in pairwise(indptr):
            pairs = list(zip(moves_of(codes[start:end]), probabilities[start:end], strict=True))
            cells.append(", ".join(f"{position.board.san(move)} {100 * p:.0f} %" for move, p in pairs[:SHOWN]))
            by_move.append(dict(pairs))
        apart = np.sum([abs(by_move[0][move] - by_move[1][move]) for move in by_move[0]]) / 2
        lines.append(f"| {name} | {' | '.join(cells)} | {apart:.2f} |")
    return "\n".join(lines) + "\n"
