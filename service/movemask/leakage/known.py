"""Mean `raw` leakage of correctly read networks, with which that of another network is compared."""

from __future__ import annotations

#: On positions of lichess games: models/movemask-8.report.md. Maia-1 stands for the nearest of seven networks to the
#: mover's rating.
IN_GAMES = {"movemask-8": 0.00295, "Maia-1": 0.00562}

#: By phase: the highest of movemask-8 and Maia-1 1100, 1500 and 1900 on the diagnosis' probes and their histories
#: (`benchmarks.known_leakage`). A mistake in castling shows in openings.
BY_PHASE = {"opening": 0.0022, "middlegame": 0.0087, "endgame": 0.012}

#: By tag of the probes of the quick look, which takes every sixth probe of each group: the highest of the same four
#: (`benchmarks.known_leakage`). Of the diagnosis' mistakes that raise leakage at all, most raise it more than
#: twentyfold in some tag.
BY_TAG = {
    "castling": 0.0046,
    "promotion": 0.0064,
    "en_passant": 0.0049,
    "capture": 0.0033,
    "white": 0.0061,
    "black": 0.0068,
    "opening": 0.0011,
    "clock": 0.0085,
}
