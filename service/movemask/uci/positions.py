"""Reads `position`, and draws a board for `d`. Accepts faulty FENs that other engines accept, with a note."""

from __future__ import annotations

from collections.abc import Sequence

import chess
import chess.polyglot

from movemask.board.fen import MOVES_HINT, read_fen
from movemask.board.moves import read_move
from movemask.board.position import START_WORD, Position
from movemask.board.repair import fits_chess960, repaired
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


def read_position(tokens: Sequence[str], *, chess960: bool | None) -> tuple[chess.Board, list[str]]:
    """Returns the board of `position [startpos | fen FEN] [moves …]`, and notes about changes.

    The board has its history.

    chess960 : the option UCI_Chess960; None if the GUI has not set it

    Castling rights and en-passant squares that do not fit the position are dropped, because a GUI
    scores a refusal as a loss and shows no reason. Without the option, the rights tell whether it
    is Chess960; so do moves that only Chess960 allows. Positions that cannot arise in a game are
    accepted if the rules still apply to them. Raises ValueError.
    """
    at = tokens.index("moves") if "moves" in tokens else len(tokens)
    source, fields = tokens[:1], tokens[1:at]
    if source != [START_WORD] and (source != ["fen"] or not fields):
        raise ValueError("position: expected startpos or fen FEN")
    fen = " ".join(fields).strip("\"'") if source == ["fen"] else START_WORD
    notes: list[str] = []
    try:
        board = Position.read(fen, chess960=bool(chess960)).board.copy()
    except InvalidPosition as error:
        fen = read_fen(fen)
        board, notes = repaired(fen, chess960=chess960)
        if board.chess960 and not chess960:
            notes.insert(0, "these castling rights are Chess960's: read as Chess960")
        if board.status() & ~PLAYABLE:
            raise ValueError(_in_uci(error)) from None
    except RequestError as error:
        raise ValueError(_in_uci(error)) from None
    moves = tokens[at + 1 :]
    try:
        _play(board, moves)
    except ValueError:
        if not notes or board.chess960 or not fits_chess960(fen):
            raise
        board, _ = repaired(fen, chess960=True)
        notes = ["the moves castle as in Chess960: read as Chess960"]
        _play(board, moves)
    return board, [f"position: {note}" for note in notes]


def _play(board: chess.Board, moves: Sequence[str]) -> None:
    """Plays moves. Raises ValueError for the first that is not legal."""
    for number, text in enumerate(moves, 1):
        try:
            move, _ = read_move(board, text)
        except ValueError as error:
            raise ValueError(
                f"position: move {number}, {text[:20]!r}, {error} in {board.fen()!r}"
            ) from None
        board.push(move)


def _in_uci(error: RequestError) -> str:
    """Returns the message of an error about a FEN, without the API's field name and hints."""
    message = str(error).removeprefix("fen: ").removesuffix(MOVES_HINT)
    for hint in ("; valid as Chess960", "; without what does not fit"):
        message = message.partition(hint)[0]
    return f"position: {message}"


def picture_of(board: chess.Board) -> list[str]:
    """Returns the lines that `d` prints: the board, its FEN, its Polyglot key and the pieces that
    give check.
    """
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
