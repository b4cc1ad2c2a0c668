"""A `Position`: what a request names, read by python-chess and known to be valid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import chess

from service.encoding.fen import board_of
from service.errors import IllegalMove, InvalidFen, InvalidPosition, LimitExceeded

#: A FEN's fields in order; the two counters may be left out (as in EPD), the others say what is legal.
FEN_FIELDS = ("piece placement", "side to move", "castling rights", "en-passant square")

START_FEN = chess.STARTING_FEN


@dataclass(frozen=True)
class Position:
    """A valid position with the game that led to it, as far as it is known.

    `board` is never changed once it is here; its move stack is the known history.
    """

    board: chess.Board

    @classmethod
    def read(
        cls,
        fen: str | None = None,
        moves: Sequence[str] = (),
        *,
        chess960: bool = False,
        max_moves: int | None = None,
    ) -> Position:
        """The position after `moves` (UCI) from `fen`, or from the start position.

        Raises InvalidFen, InvalidPosition, IllegalMove, or LimitExceeded for more than `max_moves` moves.
        """
        if max_moves is not None and len(moves) > max_moves:
            raise LimitExceeded(f"moves: {len(moves)} moves, at most {max_moves} are taken")
        board = _board(START_FEN if fen is None else fen, chess960=chess960)
        for ply, uci in enumerate(moves):
            try:
                move = board.parse_uci(uci)
                if not move:  # python-chess lets the null move, 0000, pass as legal
                    raise chess.IllegalMoveError
                board.push(move)
            except ValueError as error:
                why = "is not a UCI move" if isinstance(error, chess.InvalidMoveError) else "is not legal"
                where = board.fen(en_passant="fen")
                raise IllegalMove(f"moves[{ply}]: {uci!r} {why} in {where!r}") from None
        return cls(board)

    @cached_property
    def fen(self) -> str:
        """FEN with the en-passant field as given (not only where a capture is legal), so that it reads back
        the same."""
        return self.board.fen(en_passant="fen")

    @property
    def turn(self) -> str:
        """`white` or `black`."""
        return chess.COLOR_NAMES[self.board.turn]

    def status(self, *, has_legal_moves: bool) -> str:
        """`ongoing`, `checkmate` or `stalemate`, given whether a legal move exists."""
        if has_legal_moves:
            return "ongoing"
        return "checkmate" if self.board.is_check() else "stalemate"

    def history(self, limit: int) -> Iterator[tuple[chess.Board, bool]]:
        """Boards newest first, at most `limit`, each with whether its position occurred before in the known game."""
        if not self.board.move_stack:
            yield self.board, False
            return
        board = self.board.copy()
        for remaining in range(limit, 0, -1):
            yield board.copy(stack=False), bool(board.move_stack) and board.is_repetition(2)
            if remaining == 1 or not board.move_stack:
                return
            board.pop()


def _board(fen: str, *, chess960: bool) -> chess.Board:
    fields = fen.split()
    if 0 < len(fields) < len(FEN_FIELDS):
        missing = ", ".join(FEN_FIELDS[len(fields) :])
        raise InvalidFen(f"fen: {fen!r} is cut short: no {missing}")
    try:
        board = board_of(fen, chess960=chess960)
    except ValueError as error:
        raise InvalidFen(f"fen: {error}") from None
    status = board.status()
    if status != chess.STATUS_VALID:
        names = status_names(status)
        hint = ""
        if not chess960 and "BAD_CASTLING_RIGHTS" in names:
            other = chess.Board(fen, chess960=True).status()
            hint = "; valid as Chess960: ask with chess960 true" if other == chess.STATUS_VALID else ""
        raise InvalidPosition(f"fen: {fen!r} is not a valid position: {', '.join(names)}{hint}", names)
    return board


def status_names(status: chess.Status) -> tuple[str, ...]:
    """python-chess's names for the flags in `status`, such as `TOO_MANY_KINGS`."""
    return tuple(flag.name for flag in chess.Status if flag and flag & status and flag.name is not None)
