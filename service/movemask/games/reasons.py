"""Why a move was a mistake, in a few words, such as `loses the knight on f5` or `allows mate in 3`.

The words come from the rules and the engine's lines alone. A line that shows neither a mate nor material gives none:
most positional mistakes have no reason here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import chess

from movemask.games.costs import INACCURACY, Costs, Fact
from movemask.games.engine import DEEP, Evaluation

#: A loss of material must also be seen in the evaluations: centipawns that they fall at least, for each pawn's worth.
_SEEN = 100

#: Plies of a line within which a quiet position must come: what is captured later is less certain.
_SOON = 9

_WORTH = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9}
_MINOR = (chess.KNIGHT, chess.BISHOP)
_NUMBERS = ("no", "a", "two", "three", "four")


def reason_of(costs: Costs, place: int) -> str | None:
    """Why the move after `place` plies was a mistake, as in `10. Bxb5 loses a bishop`; None if nothing shows it."""
    cost = costs[place]
    mate = costs.ruled[place].mate
    if cost.fact is Fact.MISSES_MATE and mate is not None:
        return f"misses {_name(costs.game.played.board(place), mate)} mate"
    if cost.fact is not None:
        return cost.fact.words
    before, after = (costs.evaluations.get(at) for at in (place, place + 1))
    if (cost.lost or 0.0) < INACCURACY or after is None or after.nodes < DEEP:
        return None
    board, played = costs.game.played.board(place), costs.game.plies[place].played
    if allowed := _mate(board, (played, *after.line), after, not board.turn):
        return f"allows mate in {_few(allowed)}"
    if before is None or before.nodes < DEEP or not before.line or before.line[0] == played:
        return None
    if missed := _mate(board, before.line, before, board.turn):
        return f"misses mate in {_few(missed)} with {_name(board, before.line[0])}"
    return _material(board, played, before, after)


def _name(board: chess.Board, move: chess.Move) -> str:
    return board.san(move).rstrip("#")


def _mate(
    board: chess.Board, line: Sequence[chess.Move], evaluation: Evaluation, winner: chess.Color
) -> int | None:
    """Moves of `winner` until the mate that an evaluation promises, if its line ends with it."""
    moves = evaluation.score.pov(winner).mate()
    if moves is None or moves <= 0:
        return None
    board = board.copy(stack=False)
    for move in line:
        board.push(move)
    return moves if board.is_checkmate() and board.turn != winner else None


@dataclass(frozen=True)
class _Balance:
    """What the side to move loses and wins along a line, up to a quiet position.

    places : where the lost pieces stood after the first move
    is_soon : whether the line has a quiet position within `_SOON` plies
    """

    lost: Counter[chess.PieceType]
    won: Counter[chess.PieceType]
    places: tuple[tuple[chess.PieceType, chess.Square], ...] = ()
    is_soon: bool = False

    @property
    def pawns(self) -> int:
        """What is won less what is lost, in pawns."""
        won, lost = (
            sum(_WORTH[kind] * count for kind, count in side.items())
            for side in (self.won, self.lost)
        )
        return won - lost


def _material(
    board: chess.Board, played: chess.Move, before: Evaluation, after: Evaluation
) -> str | None:
    """What the move loses, or does not win, on balance."""
    bad = _balance(board, (played, *after.line), max)
    good = _balance(board, before.line, min)
    if bad is None:
        return None
    fall = _centipawns(before, board.turn) - _centipawns(after, board.turn)
    best = before.line[0]
    # A castling move of Chess960 ends on its own rook.
    prize = board.piece_type_at(best.to_square) if board.is_capture(best) else None
    if good is not None and not good.is_soon and prize and good.pawns >= _WORTH[prize]:
        # What the first move takes is won, whatever the line wins later.
        good = _Balance(Counter(), Counter([prize]), is_soon=True)
    gain = 0 if good is None else good.pawns
    missing = gain - bad.pawns
    if missing < 1 or fall < _SEEN * max(missing, gain, -bad.pawns):
        return None
    if good is not None and gain > -bad.pawns:  # the greater of both is said
        won = _words(_Balance(good.won, good.lost))
        return f"misses {_name(board, best)} winning {won}" if good.is_soon else None
    return f"loses {_words(bad)}" if bad.is_soon and bad.pawns < 0 else None


def _centipawns(evaluation: Evaluation, side: chess.Color) -> int:
    return max(-1500, min(1500, evaluation.score.pov(side).score(mate_score=10_000)))


def _balance(
    board: chess.Board, line: Sequence[chess.Move], chosen: Callable[..., _Balance]
) -> _Balance | None:
    """The balance of a line; None if it promotes a pawn or has no quiet position.

    Of its quiet positions the one counts that is `chosen` by what is won, so that a late capture, of which the engine
    is less certain, gives no reason.
    """
    side, board = board.turn, board.copy(stack=False)
    lost, won = Counter[chess.PieceType](), Counter[chess.PieceType]()
    origins: dict[chess.Square, chess.Square] = {}
    places: list[tuple[chess.PieceType, chess.Square]] = []
    found: list[_Balance] = []
    for number, move in enumerate(line):
        if move.promotion is not None:
            return None
        if board.is_capture(move):
            taken_at = move.to_square
            if board.is_en_passant(move):
                taken_at = chess.square(
                    chess.square_file(move.to_square), chess.square_rank(move.from_square)
                )
            taken = board.piece_type_at(taken_at)
            assert taken is not None
            if board.turn == side:
                won[taken] += 1
            else:
                lost[taken] += 1
                places.append((taken, origins.pop(taken_at, taken_at)))
        if board.turn == side and number:
            origins[move.to_square] = origins.pop(move.from_square, move.from_square)
        board.push(move)
        if number and _is_quiet(board):  # the first move alone shows nothing
            is_soon = found[0].is_soon if found else number < _SOON
            found.append(_netted(lost, won, tuple(places), is_soon))
    return chosen(found, key=lambda balance: balance.pawns) if found else None


def _is_quiet(board: chess.Board) -> bool:
    """Whether neither side can win material at once."""
    if board.is_check() or board.is_game_over():
        return False
    other = board.copy(stack=False)
    other.push(chess.Move.null())
    return not _can_win(board) and not _can_win(other)


def _can_win(board: chess.Board) -> bool:
    """Whether the side to move has a promotion, or a capture of something undefended or worth more than the taker."""
    for move in board.legal_moves:
        if move.promotion is not None:
            return True
        if not board.is_capture(move):
            continue
        taken = board.piece_type_at(move.to_square) or chess.PAWN
        taker = board.piece_type_at(move.from_square)
        if _WORTH[taken] > _WORTH.get(taker or chess.KING, 0) and taker != chess.KING:
            return True
        after = board.copy(stack=False)
        after.push(move)
        if not any(
            answer.to_square == move.to_square for answer in after.generate_legal_captures()
        ):
            return True
    return False


def _netted(
    lost: Counter[chess.PieceType],
    won: Counter[chess.PieceType],
    places: tuple[tuple[chess.PieceType, chess.Square], ...],
    is_soon: bool,
) -> _Balance:
    """The balance without what was traded: equal pieces, and knights for bishops."""
    lost, won = lost - won, won - lost
    for own in _MINOR:
        for other in _MINOR:
            traded = min(lost[own], won[other])
            lost[own] -= traded
            won[other] -= traded
    return _Balance(+lost, +won, places, is_soon)


def _words(balance: _Balance) -> str:
    """A loss in words, such as `the knight on f5`, `the exchange` or `a rook for two pawns`."""
    lost, won = Counter(balance.lost), Counter(balance.won)
    if len(balance.places) == 1 and lost.total() == 1 and not won:
        ((kind, square),) = balance.places
        return f"the {chess.piece_name(kind)} on {chess.square_name(square)}"
    words = []
    minor = next((kind for kind in _MINOR if won[kind]), None)
    if lost[chess.ROOK] and minor is not None:
        lost[chess.ROOK] -= 1
        won[minor] -= 1
        words.append("the exchange")
    words += _listed(lost)
    gains = _listed(+won)
    return _joined(words) + (f" for {_joined(gains)}" if gains else "")


def _joined(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _few(count: int) -> str:
    return "one" if count == 1 else str(count)


def _listed(pieces: Counter[chess.PieceType]) -> list[str]:
    """Pieces in words, the most valuable first."""
    return [
        _counted(kind, pieces[kind])
        for kind in sorted(pieces, key=lambda kind: -kind)
        if pieces[kind]
    ]


def _counted(kind: chess.PieceType, count: int) -> str:
    name = chess.piece_name(kind)
    if kind == chess.QUEEN and count == 1:
        return "the queen"
    return f"{_NUMBERS[count] if count < len(_NUMBERS) else count} {name}{'s' if count > 1 else ''}"
