"""What each move of a game cost: the fall of the mover's expected score.

The rules decide first: mate, stalemate and other drawn ends, a mate in one allowed or missed. Then the evaluations in
the PGN (`[%eval]`). Then the network: the best of the moves that strong players would most likely play, against the
move that was played, both judged by the forecast after the opponent's likeliest replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

import chess

from movemask.board.pgn import Game
from movemask.board.position import Elo, Position
from movemask.errors import MovemaskError
from movemask.evaluate import Answer, Evaluator, Query
from movemask.games.forecast import Outlook, forecasts, submitted, value_after
from movemask.network.value import Value

#: Falls of the mover's expected score, 0 to 1. `python -m benchmarks.review` measures what they find.
MISTAKE, BLUNDER = 0.1, 0.2

#: Moves that are tried besides the played one, and replies to each that are looked at. Three of each find 3 % more.
TRIED = 2

#: The network's ratings while it judges, both players'.
STRONG = Elo(2500, 2500)

Mark = Literal["mistake", "blunder"]
Source = Literal["rules", "evaluations", "network"]


class Fact(Enum):
    """What the rules know of a move that had an alternative."""

    ALLOWS_MATE = "allows_mate"
    STALEMATES = "stalemates"
    DRAWS = "draws"
    MISSES_MATE = "misses_mate"

    @property
    def words(self) -> str:
        """The fact after the name of the move, as in `2. g4 allows mate in one`."""
        return {"allows_mate": "allows mate in one", "misses_mate": "misses mate in one"}.get(self.value, self.value)


class Better(NamedTuple):
    """A better move, and its probability at the ratings STRONG."""

    move: chess.Move
    probability: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What a move cost.

    lost : fall of the mover's expected score, 0 to 1; None if nothing tells the score before or after the move
    source : what told it
    better : the move that keeps most, where the network judged a mistake
    """

    lost: float | None = None
    source: Source | None = None
    fact: Fact | None = None
    better: Better | None = None

    @property
    def mark(self) -> Mark | None:
        """The move's mark.

        An avoidable mate in one, and a stalemate by the side with more material, is at least a mistake.
        """
        if self.lost is not None and self.lost >= BLUNDER:
            return "blunder"
        mistake = (self.lost is not None and self.lost >= MISTAKE) or self.fact in (Fact.ALLOWS_MATE, Fact.STALEMATES)
        return "mistake" if mistake else None


class _Ruled(NamedTuple):
    """What the rules know of a move: the mover's expected scores before and after it, and the fact."""

    before: float | None
    after: float | None
    fact: Fact | None


_SILENT = _Ruled(None, None, None)


_WORTH = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9}


class _Place(NamedTuple):
    """A move: the number of its game, and its place in the game from 0."""

    game: int
    ply: int


async def costs_of(evaluator: Evaluator, games: Sequence[Game]) -> list[list[Cost] | MovemaskError]:
    """What each move of each game cost; a game's first error in its place.

    A network without a value judges nothing. Raises errors of the model and the queue.
    """
    ruled = await asyncio.to_thread(lambda: [_rulings(game) for game in games])
    asked = [
        _Place(number, place)
        for number, game in enumerate(games)
        for place, (ply, known) in enumerate(zip(game.plies, ruled[number], strict=True))
        if ply.chances is None
        and None in (known.before, known.after)
        and evaluator.model.contract.outputs.value is not None
    ]
    judged = await _judged(evaluator, games, {place: ruled[place.game][place.ply] for place in asked})
    result: list[list[Cost] | MovemaskError] = []
    for number, game in enumerate(games):
        costs: list[Cost] = []
        for place, (ply, known) in enumerate(zip(game.plies, ruled[number], strict=True)):
            found = judged.get(_Place(number, place)) or _told(known, ply.chances)
            if isinstance(found, MovemaskError):
                result.append(found)
                break
            costs.append(found)
        else:
            result.append(costs)
    return result


def _told(known: _Ruled, chances: tuple[float, float] | None) -> Cost:
    """The cost by the rules, and by the evaluations where the rules are silent."""
    before, after = known.before, known.after
    if chances is not None:
        before, after = (chances[0] if before is None else before), (chances[1] if after is None else after)
    if before is None or after is None:
        return Cost(fact=known.fact)
    source: Source = "rules" if chances is None or known.after is not None else "evaluations"
    return Cost(max(0.0, before - after), source, known.fact)


def _rulings(game: Game) -> list[_Ruled]:
    """What the rules know of each move."""
    mates = [_mate_in_one(game.played.board(place)) for place in range(len(game.plies) + 1)]
    return [_ruling(game, place, mates) for place in range(len(game.plies))]


def _ruling(game: Game, place: int, mates: Sequence[bool]) -> _Ruled:
    board, following = game.played.board(place), game.played.board(place + 1)
    end = value_after(following, None)
    before = 1.0 if mates[place] else None
    if board.legal_moves.count() == 1:
        return _Ruled(0.0, 0.0, None)
    if end is not None and end.score == 1:
        return _Ruled(1.0, 1.0, None)
    if end is not None:
        spoilt = following.is_stalemate() and _ahead(board) and any(_goes_on(board, move) for move in board.legal_moves)
        return _Ruled(before, end.score, Fact.STALEMATES if spoilt else Fact.DRAWS)
    if mates[place + 1]:
        avoidable = any(not _mate_in_one(_after(board, move)) for move in board.legal_moves)
        return _Ruled(before if avoidable else 0.0, 0.0, Fact.ALLOWS_MATE if avoidable else None)
    return _Ruled(before, None, Fact.MISSES_MATE if before else None)


def _ahead(board: chess.Board) -> bool:
    """Whether the side to move has more material."""
    own, other = (
        sum(_WORTH[piece] * len(board.pieces(piece, side)) for piece in _WORTH) for side in (board.turn, not board.turn)
    )
    return own > other


def _goes_on(board: chess.Board, move: chess.Move) -> bool:
    return not _after(board, move).is_game_over()


def _mate_in_one(board: chess.Board) -> bool:
    """Whether the side to move can mate at once."""
    return any(_after(board, move).is_checkmate() for move in board.legal_moves if board.gives_check(move))


def _after(board: chess.Board, move: chess.Move) -> chess.Board:
    board = board.copy(stack=False)
    board.push(move)
    return board


async def _judged(
    evaluator: Evaluator, games: Sequence[Game], asked: Mapping[_Place, _Ruled]
) -> dict[_Place, Cost | MovemaskError]:
    """The network's judgement of moves, where the rules know at most one of the two scores."""
    judged: dict[_Place, Cost | MovemaskError] = {}
    plies = {place: games[place.game].plies[place.ply] for place in asked}
    queries = [Query(position=ply.position, elo=STRONG) for ply in plies.values()]
    likeliest: dict[_Place, dict[chess.Move, float]] = {}  # strong players' moves, with their probabilities
    for place, outlook in zip(plies, await submitted(evaluator, queries, _outlook), strict=True):
        if isinstance(outlook, MovemaskError):
            judged[place] = outlook
        elif asked[place] == _SILENT and outlook.moves[0][0] == plies[place].played:
            judged[place] = Cost(0.0, "network")  # a strong player's first choice
        else:
            likeliest[place] = dict(outlook.moves)
    tried = [
        (place, move)
        for place, moves in likeliest.items()
        for move in dict.fromkeys([*moves, plies[place].played])
        if (asked[place].after if move == plies[place].played else asked[place].before) is None
    ]
    scores = await _scores(evaluator, [plies[place].position.after(move) for place, move in tried])
    compared: dict[_Place, dict[chess.Move, float]] = {}
    for (place, move), score in zip(tried, scores, strict=True):
        if isinstance(score, MovemaskError):
            judged.setdefault(place, score)
        elif score is not None:
            compared.setdefault(place, {})[move] = score
    for place, found in compared.items():
        judged.setdefault(place, _compared(asked[place], plies[place].played, found, likeliest[place]))
    return judged


def _compared(
    known: _Ruled, played: chess.Move, scores: Mapping[chess.Move, float], likeliest: Mapping[chess.Move, float]
) -> Cost:
    """The played move against the best of the moves that were tried."""
    best = max(scores, key=lambda move: scores[move])
    before = scores[best] if known.before is None else known.before
    after = scores[played] if known.after is None else known.after
    lost = max(0.0, before - after)
    better = Better(best, likeliest[best]) if lost >= MISTAKE and best != played else None
    return Cost(lost, "network" if known == _SILENT else "rules", known.fact, better)


def _outlook(answer: Answer) -> Outlook:
    return Outlook.of(answer, TRIED)


async def _scores(evaluator: Evaluator, positions: Sequence[Position]) -> list[float | MovemaskError | None]:
    """The expected score of whoever has just moved, after the likeliest replies of a strong player."""
    ends = [value_after(position.board, None) for position in positions]
    going = [position for position, end in zip(positions, ends, strict=True) if end is None]
    queries = [Query(position=position, elo=STRONG) for position in going]
    outlooks = await submitted(evaluator, queries, _outlook)
    known = [outlook for outlook in outlooks if isinstance(outlook, Outlook)]
    values = iter(await forecasts(evaluator, known))
    found = iter([next(values) if isinstance(outlook, Outlook) else outlook for outlook in outlooks])
    after = [next(found) if end is None else end.flipped() for end in ends]  # for the side to move
    return [1 - value.score if isinstance(value, Value) else value for value in after]
