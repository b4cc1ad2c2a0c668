"""The words that a request may hold, for the service and its clients."""

from __future__ import annotations

from typing import Literal

#: What to add to the answer to a position of a batch, or to a move,
Include = Literal["san", "logit", "statistics", "illegal"]

#: to a single position, to a sweep, to games, and to a split PGN.
PolicyInclude = Literal[Include, "forecast"]
SweepInclude = Literal["san", "statistics"]
SplitInclude = Literal["tree", "partial"]
GamesInclude = Literal[SplitInclude, "forecast", "evaluations", "reasons", "ratings"]

#: How a move is chosen: the most probable, or drawn by probability.
Method = Literal["greedy", "sample"]

#: Whose rating changes along a sweep.
VaryName = Literal["both", "self", "opponent"]

#: How castling is written in another program's policy: e1g1, or e1h1.
CastlingName = Literal["king_two_squares", "king_takes_rook"]
