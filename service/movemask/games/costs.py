"""`Costs`: what each move of a game cost, the fall of the mover's expected score.

The rules decide first: mate, stalemate and other drawn ends, a mate in one. Then the evaluations in the PGN
(`[%eval]`), then an engine's. Without evaluations the rules alone mark a move, and few moves have a cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal, NamedTuple

import chess

from movemask.board.pgn import Game
from movemask.games.engine import DEEP, Evaluation
from movemask.games.forecast import value_after

#: lichess's thresholds, as falls of the mover's expected score, 0 to 1.
INACCURACY, MISTAKE, BLUNDER = 0.05, 0.1, 0.15

#: A move that costs this much by the engine's first search may get a mark.
_NEAR = 0.03

Mark = Literal["inaccuracy", "mistake", "blunder"]
Source = Literal["rules", "evaluations", "engine"]


class Fact(Enum):
    """What the rules know of a move that had an alternative."""

    ALLOWS_MATE = "allows_mate"
    STALEMATES = "stalemates"
    DRAWS = "draws"
    MISSES_MATE = "misses_mate"

    @property
    def words(self) -> str:
        """The fact after the name of the move, as in `2. g4 allows mate in one`."""
        return {"allows_mate": "allows mate in one", "misses_mate": "misses mate in one"}.get(
            self.value, self.value
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """What a move cost.

    lost : fall of the mover's expected score, 0 to 1; None if nothing tells the score before or after the move
    source : what told it
    line : where another move was better, the engine's best line, or the mate in one; else empty
    nodes : fewest nodes of the engine's evaluations that it stands on; None if it stands on none
    """

    lost: float | None = None
    source: Source | None = None
    fact: Fact | None = None
    line: tuple[chess.Move, ...] = ()
    nodes: int | None = None

    @property
    def mark(self) -> Mark | None:
        """The move's mark. None without a cost, whatever the rules know of the move: the game may have been lost."""
        if self.lost is None or self.lost < INACCURACY:
            return None
        return (
            "inaccuracy" if self.lost < MISTAKE else "mistake" if self.lost < BLUNDER else "blunder"
        )

    @property
    def points(self) -> int:
        """What it cost of 100 points, rounded down, so that 9.6 points are no 10 beside the mark of less than 10."""
        return int(100 * (self.lost or 0.0) + 1e-9)

    @property
    def is_key(self) -> bool:
        """Whether it is a mistake or a blunder or, if nothing tells its cost, the rules know that it is a fault."""
        return self.mark in ("mistake", "blunder") or (
            self.lost is None and self.fact not in (None, Fact.DRAWS)
        )


class _Ruled(NamedTuple):
    """What the rules know of a move: the mover's expected scores before and after it, the fact, and a missed mate."""

    before: float | None = None
    after: float | None = None
    fact: Fact | None = None
    mate: chess.Move | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a game's moves, each by the number of plies before it.

    evaluations : of an engine, by the number of plies before the position
    """

    game: Game
    ruled: tuple[_Ruled, ...]
    evaluations: Mapping[int, Evaluation] = field(default_factory=dict)

    @classmethod
    def of(cls, game: Game, search: MateSearch | None = None) -> Costs:
        """The costs by the rules and by the evaluations in the PGN. Raises Stopped if the search is stopped."""
        search = search or MateSearch()
        mates = [
            search.mate_in_one(game.played.board(place)) for place in range(len(game.plies) + 1)
        ]
        rulings = (_ruling(game, place, mates, search) for place in range(len(game.plies)))
        return cls(game, tuple(rulings))

    def evaluated(self, place: int, evaluation: Evaluation) -> Costs:
        """The costs with one more evaluation."""
        return replace(self, evaluations={**self.evaluations, place: evaluation})

    @property
    def missing(self) -> list[int]:
        """Positions that an engine should evaluate: those without a score and, for the line that is better than the
        move that was played, those before a marked move."""
        marked = {place for place, cost in enumerate(self) if cost.mark is not None}
        return [
            place
            for place, score in enumerate(self.game.scores)
            if (score is None or place in marked) and place not in self.evaluations
        ]

    def unsure(self, *, reasons: bool) -> set[int]:
        """Positions to search deeper: those around a move that the engine marks, or might; for `reasons`, also those
        around one that the PGN's evaluations or the rules mark."""
        places: set[int] = set()
        for place, cost in enumerate(self):
            by_engine = cost.source == "engine"
            if (cost.lost or 0.0) >= (_NEAR if by_engine else INACCURACY) and (
                by_engine or reasons
            ):
                places.update((place, place + 1))
        return {
            place
            for place in places
            if (known := self.evaluations.get(place)) is None or known.nodes < DEEP
            if not self.game.played.board(place).is_game_over()
        }

    @property
    def scores(self) -> list[float | None]:
        """White's expected score in each position, by the PGN and the engine; None where neither tells."""
        return [self.score(place) for place in range(len(self.game.scores))]

    def score(self, place: int) -> float | None:
        """White's expected score in one position."""
        score, evaluation = self.game.scores[place], self.evaluations.get(place)
        return score if score is not None or evaluation is None else evaluation.expected

    def __iter__(self) -> Iterator[Cost]:
        return (self[place] for place in range(len(self.ruled)))

    def __getitem__(self, place: int) -> Cost:
        known, ply = self.ruled[place], self.game.plies[place]
        scores = [self.score(place), self.score(place + 1)]
        mover = [
            1 - score if score is not None and ply.position.black else score for score in scores
        ]
        before = mover[0] if known.before is None else known.before
        after = mover[1] if known.after is None else known.after
        evaluation = self.evaluations.get(place)
        line = (
            (known.mate,)
            if known.mate is not None
            else ()
            if evaluation is None
            else evaluation.line
        )
        if before is None or after is None:
            return Cost(fact=known.fact, line=line if known.fact is Fact.MISSES_MATE else ())
        # The positions whose scores the rules do not know.
        places = [place + at for at, rule in enumerate((known.before, known.after)) if rule is None]
        by_engine = bool(places) and all(self.game.scores[at] is None for at in places)
        source: Source = "engine" if by_engine else "evaluations" if places else "rules"
        first = line[:1] == (ply.played,)
        is_free = first and by_engine and known.after is None
        lost = 0.0 if is_free else max(0.0, before - after)
        nodes = min(self.evaluations[at].nodes for at in places) if by_engine else None
        return Cost(lost, source, known.fact, () if first or lost < INACCURACY else line, nodes)


_WORTH = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9}

#: Most moves that are tried to tell whether another move would have been better. Games of Stockfish with random moves
#: need 27 for a position, scans for mates included, and 179 at most; a contrived position needs thousands.
MOST_TRIED = 256


class Stopped(Exception):
    """A search was stopped."""


class _TooManyMoves(Exception):
    """A question takes more moves than `MOST_TRIED`."""


class MateSearch:
    """Looks for mates in one and for moves that avoid them, and counts the moves that it tries.

    tried : number of moves tried so far, each by copying the board or looking for a check
    stopped : another thread may set it, which ends the search
    """

    def __init__(self) -> None:
        self.tried = 0
        self.stopped = False
        self._end = math.inf

    def mate_in_one(self, board: chess.Board) -> chess.Move | None:
        """A move that mates at once; None without one."""
        for move in board.legal_moves:
            self._count()
            if board.gives_check(move) and self._after(board, move).is_checkmate():
                return move
        return None

    def any_move(self, board: chess.Board, test: Callable[[chess.Board], bool]) -> bool | None:
        """Whether a legal move leads to a board that satisfies `test`; None beyond `MOST_TRIED` moves."""
        self._end = self.tried + MOST_TRIED
        try:
            return any(test(self._after(board, move)) for move in board.legal_moves)
        except _TooManyMoves:
            return None
        finally:
            self._end = math.inf

    def _after(self, board: chess.Board, move: chess.Move) -> chess.Board:
        self._count()
        after = board.copy(stack=False)
        after.push(move)
        return after

    def _count(self) -> None:
        self.tried += 1
        if self.stopped:
            raise Stopped
        if self.tried > self._end:
            raise _TooManyMoves


def _ruling(
    game: Game, place: int, mates: Sequence[chess.Move | None], search: MateSearch
) -> _Ruled:
    """What the rules know of a move. `mates` : the mate in one of each position."""
    board, following, mate = game.played.board(place), game.played.board(place + 1), mates[place]
    before = None if mate is None else 1.0
    if board.legal_moves.count() == 1:
        return _Ruled(0.0, 0.0)
    end = value_after(following, None)
    if end is not None and end.score == 1:
        return _Ruled(1.0, 1.0)
    if end is not None:
        spoilt = (
            following.is_stalemate()
            and _ahead(board)
            and search.any_move(board, lambda after: not after.is_game_over())
        )
        return _Ruled(before, end.score, Fact.STALEMATES if spoilt else Fact.DRAWS, mate)
    if mates[place + 1] is not None:
        avoidable = search.any_move(board, lambda after: search.mate_in_one(after) is None)
        if avoidable is None:
            return _Ruled(before, 0.0, None, mate)
        return _Ruled(
            before if avoidable else 0.0, 0.0, Fact.ALLOWS_MATE if avoidable else None, mate
        )
    return _Ruled(before, None, None if mate is None else Fact.MISSES_MATE, mate)


def _ahead(board: chess.Board) -> bool:
    """Whether the side to move has more material."""
    own, other = (
        sum(_WORTH[piece] * len(board.pieces(piece, side)) for piece in _WORTH)
        for side in (board.turn, not board.turn)
    )
    return own > other
