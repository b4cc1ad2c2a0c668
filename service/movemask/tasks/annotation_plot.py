"""Plots the surprise of a game's moves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # after the choice of a backend without a screen

from movemask.tasks.games import GameReport


def plot(reports: Sequence[GameReport], file: Path) -> None:
    """Writes the surprise of each move of some games, in nats, a row for each. The ending of the file's name chooses
    the format: .png, .svg or .pdf. White's moves are light, Black's dark; the lines are the sides' means."""
    figure, rows = plt.subplots(len(reports), 1, figsize=(10, 2.6 * len(reports)), squeeze=False, layout="constrained")
    for (axes,), report in zip(rows, reports, strict=True):
        headers = report.game.headers
        for turn, colour, edge, side in (
            ("white", "#e8d7b8", "#8a7a5a", report.white),
            ("black", "#3b4a5a", "#3b4a5a", report.black),
        ):
            moves = [move for move in report.moves if move.position.turn == turn]
            if side is None:
                continue
            name = headers.get(turn.capitalize(), "?")
            rating = headers.get(f"{turn.capitalize()}Elo", "")
            label = f"{name} {rating}".strip() + f": mean {side.cross_entropy:.2f}"
            plies, surprises = [move.ply for move in moves], [move.surprise for move in moves]
            axes.bar(plies, surprises, color=colour, edgecolor=edge, linewidth=0.5, label=label)
            axes.axhline(side.cross_entropy, color=edge, linewidth=1, linestyle="--")
        last = report.moves[-1].ply
        axes.set_xlim(0.4, last + 0.6)
        axes.set_ylabel("surprise, nats")
        axes.legend(loc="upper left", fontsize="small")
        highest = sorted(report.moves, key=lambda move: -move.surprise)[:3]
        for move in highest:
            number = f"{(move.ply + 1) // 2}{'.' if move.position.turn == 'white' else '…'}"
            axes.annotate(
                number + move.position.board.san(move.move),
                (move.ply, move.surprise),
                ha="center",
                va="bottom",
                fontsize="small",
            )
        axes.margins(y=0.25)
    rows[-1][0].set_xlabel("ply")
    figure.savefig(file, dpi=120)
    plt.close(figure)
