"""How accurate each side's moves were, by lichess's formula (lichess.org/page/accuracy)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, harmonic_mean, pstdev

import chess

from movemask.games.costs import Costs

#: White's expected score in the start position, which lichess takes for 15 centipawns.
_START = 1 / (1 + math.exp(-0.00368208 * 15))

#: Fewest and most positions of a window, and the least and the greatest weight of a move, in points of 100.
_WINDOW, _WEIGHT = (2, 8), (0.5, 12.0)


def accuracy_of(lost: float) -> float:
    """Accuracy of a move that cost `lost` (0 to 1), 0 to 100. Like lichess, it adds a point for the engine's errors."""
    return min(100.0, max(0.0, 103.1668 * math.exp(-4.354415 * lost) - 3.1669 + 1))


def accuracies(costs: Costs) -> dict[chess.Color, float | None]:
    """Accuracy of each side over a game, 0 to 100; None for a side without moves, and if a move has no cost.

    The mean of two means: one weighted by how much the chances changed around each move, and the harmonic one. The
    first move may lack a cost, because lichess writes no evaluation of the first position.
    """
    scores, lost = costs.scores, [cost.lost for cost in costs]
    if scores and scores[0] is None and costs.game.played.board(0).fen() == chess.STARTING_FEN:
        scores[0] = _START
        lost[0] = 0.0 if lost[0] is None and scores[1] is not None else lost[0]
    known = [100 * score for score in scores if score is not None]
    if len(known) < len(scores) or None in lost:
        return {chess.WHITE: None, chess.BLACK: None}
    weights = _weights(known)
    sides: dict[chess.Color, float | None] = {}
    for side in (chess.WHITE, chess.BLACK):
        plies = [
            number for number, ply in enumerate(costs.game.plies) if ply.position.black is not side
        ]
        values = [accuracy_of(lost[ply] or 0.0) for ply in plies]
        if not values:
            sides[side] = None
            continue
        weighted = fmean(values, [weights[ply] for ply in plies])
        sides[side] = (weighted + harmonic_mean([max(value, 1e-9) for value in values])) / 2
    return sides


def _weights(percents: Sequence[float]) -> list[float]:
    """The weight of each move: how much White's chances vary in the window of positions that ends near it."""
    least, most = _WINDOW
    size = min(max(len(percents) // 10, least), most)
    first = [percents[:size]] * (min(size, len(percents)) - 2)
    windows = first + [percents[start : start + size] for start in range(len(percents) - size + 1)]
    least_weight, most_weight = _WEIGHT
    return [min(max(pstdev(window), least_weight), most_weight) for window in windows]
