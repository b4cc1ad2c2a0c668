"""Reads `position`, and draws a board for `d`. Accepts faulty FENs that other engines accept, with a note."""

from __future__ import annotations

from collections.abc import Sequence

import chess
import chess.polyglot

from movemask.board.fen import MOVES_HINT, read_fen
from movemask.board.moves import read_move
from movemask.board.position import START_WORD, Position, board_of
from movemask.errors import InvalidPosition, RequestError

#: Positions that cannot arise in a game, but in which every rule still applies. Networks refuse them.
PLAYABLE = (
    chess.STATUS_TOO_MANY_WHITE_PAWNS
    | chess.STATUS_TOO_MANY_BLACK_PAWNS
    | chess.STATUS_TOO_MANY_WHITE_PIECES
    | chess.STATUS_TOO_MANY_BLACK_PIECES
    | chess.STATUS_TOO_MANY_CHECKERS
    | chess.STATUS_IMPOSSIBLE_CHECK
)


def read_position(tokens: Sequence[str], *, chess960: bool) -> tuple[chess.Board, list[str]]:
    """The board of `position [startpos | fen FEN] [moves …]` with its history, and notes about changes.

    Castling rights and en-passant squares that do not fit the position are dropped. A FEN that is valid only in
    Chess960 is read as Chess960. A refusal would be worse: a GUI scores it as a loss and shows no reason. Positions
    that cannot arise in a game are accepted if the rules still apply to them. Raises ValueError.
    """
    at = tokens.index("moves") if "moves" in tokens else len(tokens)
    source, fields = tokens[:1], tokens[1:at]
    if source != [START_WORD] and (source != ["fen"] or not fields):
        raise ValueError("position: expected startpos or fen FEN")
    fen = " ".join(fields).strip("\"'") if source == ["fen"] else START_WORD
    notes: list[str] = []
    try:
        board = Position.read(fen, chess960=chess960).board.copy()
    except InvalidPosition as error:
        board, notes = _mended(read_fen(fen), error, chess960=chess960)
    except RequestError as error:
        raise ValueError(_in_uci(error)) from None
    for number, text in enumerate(tokens[at + 1 :], 1):
        try:
            move, _ = read_move(board, text)
        except ValueError as error:
            raise ValueError(
                f"position: move {number}, {text[:20]!r}, {error} in {board.fen()!r}"
            ) from None
        board.push(move)
    return board, notes


def _mended(fen: str, error: InvalidPosition, *, chess960: bool) -> tuple[chess.Board, list[str]]:
    """The board of a FEN without its invalid rights, and notes. Raises ValueError if the board itself is invalid."""
    notes = []
    board = board_of(fen, chess960=chess960)
    if board.status() & chess.STATUS_BAD_CASTLING_RIGHTS and not chess960:
        as_960 = board_of(fen, chess960=True)
        if not as_960.status() & chess.STATUS_BAD_CASTLING_RIGHTS:
            board = as_960
            notes.append(
                "position: these castling rights are Chess960's: read and played as with "
                "setoption name UCI_Chess960 value true"
            )
    if board.status() & chess.STATUS_BAD_CASTLING_RIGHTS:
        board.castling_rights = board.clean_castling_rights()
        given, kept = fen.split()[2], board.castling_xfen()
        notes.append(
            f"position: castling rights {given} do not fit the king and rooks: read as {kept}"
        )
    if board.status() & chess.STATUS_INVALID_EP_SQUARE and board.ep_square is not None:
        notes.append(
            f"position: no pawn has just passed {chess.square_name(board.ep_square)}: read without en passant"
        )
        board.ep_square = None
    if board.status() & ~PLAYABLE:
        raise ValueError(_in_uci(error))
    return board, notes


def _in_uci(error: RequestError) -> str:
    """The message of an error about a FEN, without the API's field name."""
    return f"position: {str(error).removeprefix('fen: ').partition('; valid as Chess960')[0].removesuffix(MOVES_HINT)}"


def picture_of(board: chess.Board) -> list[str]:
    """The lines that `d` prints: the board, its FEN, its Polyglot key and the pieces that give check."""
    ranks = [f" {8 - number} {rank}" for number, rank in enumerate(str(board).splitlines())]
    checkers = " ".join(map(chess.square_name, board.checkers())) or "none"
    return [
        *ranks,
        "   a b c d e f g h",
        "",
        f"Fen: {board.fen()}",
        f"Key: {chess.polyglot.zobrist_hash(board):016X}",
        f"Checkers: {checkers}",
    ]
