"""`Position`: a valid position, read by python-chess from a FEN or from moves, with its status and draws.

`PlayedGame` is the game that led to a position. All positions of a game share it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

import chess

from movemask.board.boards import Boards
from movemask.board.fen import MOVES_HINT, fen_in, looks_like_moves, read_fen
from movemask.board.moves import Notation, read_move
from movemask.board.repair import repaired
from movemask.errors import ASK_AS_CHESS960, IllegalMove, InvalidFen, InvalidPosition, LimitExceeded

#: Means the start position's FEN, as in UCI's `position startpos`.
START_WORD = "startpos"

#: Limits of a FEN. Its placement has at most 71 characters, the rest about 20; an EPD is longer.
MAX_LENGTH = 200
MAX_COUNTER = 1_000_000

#: A FEN in the form that python-chess writes, unless it drops castling rights. Recognising it saves writing it, which
#: takes python-chess as long as reading.
_AS_WRITTEN = re.compile(
    r"(?![^ ]*[1-8][1-8])[1-8PNBRQKpnbrqk/]+ [wb] (-|K?Q?k?q?) (?:-|[a-h][1-8]) (?:0|[1-9][0-9]*) [1-9][0-9]*"
)

#: A move number, with or without its move.
_NUMBERED = re.compile(r"\d+\.", re.ASCII)

#: Most positions that a network sees, including the current position.
_HISTORY = 8


@dataclass(frozen=True, slots=True)
class Elo:
    """Ratings of the side to move and of its opponent."""

    self: float
    opponent: float


#: Number of positions that `PlayedGame.followed` keeps.
_RECENT = 8


class SamePosition(Enum):
    """When two positions count as the same. The rules differ in the en-passant squares that count."""

    BY_LAWS = "laws"  # FIDE 9.2: squares where a capture is legal
    BY_LC0 = "lc0"  # squares that a pawn attacks, pinned or not, and always the FEN's square
    BY_SQUARE = "square"  # the square after every double push


class PlayedGame:
    """A game from its first known position.

    Time and memory are linear in the number of moves. Positions are kept without move stacks: all, or the newest
    `keep`. Repetitions are found while the game is played. Call `ended` before sharing the game.
    """

    def __init__(self, root: chess.Board, keep: int | None = None) -> None:
        self.last = root.copy(stack=False)  # the position after all moves so far; do not change it
        self._keep = keep
        self._boards = [root.copy(stack=False)] if keep is None else []
        self.plies = 0  # number of moves played
        self._since_zeroing: dict[Hashable, int] = {}
        self._earlier: list[int | None] = []
        # By ply: the rules by which the position differs from later positions with the same pieces.
        self._distinct: dict[int, set[SamePosition]] = {}
        self._remember()

    @classmethod
    def of(cls, board: chess.Board, keep: int | None = None) -> PlayedGame:
        """Returns the game in a board's move stack."""
        game = cls(board.root(), keep)
        for move in board.move_stack:
            game.play(move)
        return game.ended()

    def play(self, move: chess.Move) -> None:
        """Plays a legal move."""
        board = self.last
        if board.is_zeroing(move):
            self._since_zeroing.clear()
        board.push(move)
        if self._keep is None:
            self._boards.append(board.copy(stack=False))
            board.clear_stack()
        self.plies += 1
        self._remember()

    def followed(self, ply: int, move: chess.Move) -> PlayedGame:
        """This ended game up to `ply`, followed by a legal move. Finds repetitions of the kept positions only."""
        game = copy(self)
        plies = range(max(0, ply + 1 - _RECENT, self.plies + 1 - len(self._boards)), ply + 1)
        game._keep, game._boards = None, [self.board(place) for place in plies]
        game.plies, game._earlier = ply, self._earlier[: ply + 1]
        game._distinct = dict(self._distinct)
        game._since_zeroing = {
            _key(board): place for place, board in zip(plies, game._boards, strict=True)
        }
        game.last = game._boards[-1].copy(stack=False)
        game.play(move)
        return game.ended()

    def ended(self) -> PlayedGame:
        """Returns the game itself, after dropping data that only `play` needs."""
        self._since_zeroing.clear()
        if self._keep is not None:
            board = self.last
            self._boards = [board.copy(stack=False)]
            while board.move_stack and len(self._boards) < self._keep:
                board.pop()
                self._boards.insert(0, board.copy(stack=False))
        self.last = self._boards[-1]
        return self

    def board(self, ply: int) -> chess.Board:
        """Returns the position after `ply` moves of an ended game. Do not change it."""
        return self._boards[ply - self.plies - 1]

    def earlier(self, ply: int, same: SamePosition) -> int | None:
        """Returns the ply of the previous occurrence of the position at `ply`.

        None if there is none.
        """
        previous = self._earlier[ply]
        return None if previous is None or same in self._distinct.get(previous, ()) else previous

    def occurrences(self, ply: int, same: SamePosition) -> int:
        """Returns how often the position at `ply` has occurred up to that ply."""
        count = 1
        while (before := self.earlier(ply, same)) is not None:
            count, ply = count + 1, before
        return count

    def _remember(self) -> None:
        board, ply = self.last, self.plies
        key = _key(board)
        self._earlier.append(self._since_zeroing.get(key))
        self._since_zeroing[key] = ply
        # Pawn moves are zeroing: only the first position after a pawn move, or of the game, has an en-passant square.
        if board.ep_square is not None:
            self._distinct[ply] = {SamePosition.BY_SQUARE}
            if ply == 0 or board.has_pseudo_legal_en_passant():
                self._distinct[ply].add(SamePosition.BY_LC0)
            if board.has_legal_en_passant():
                self._distinct[ply].add(SamePosition.BY_LAWS)


def _key(board: chess.Board) -> Hashable:
    """Returns a key that is equal for positions that differ only in the en-passant square."""
    return (
        *(board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings),
        *(board.occupied_co[chess.WHITE], board.turn, board.castling_rights),
    )


class HistoryEntry(NamedTuple):
    """A game's position after `ply` moves. `earlier` is the ply of its previous occurrence, if any."""

    board: chess.Board
    ply: int
    earlier: int | None


class Position:
    """A valid position with the known moves that led to it."""

    __slots__ = ("_board", "_fen", "_game", "_ply", "black", "notation")

    def __init__(self, board: chess.Board) -> None:
        """From a valid board. Its move stack is the game that led to it."""
        self.black = board.turn == chess.BLACK  # to move
        self._board = board
        self._fen: str | None = None
        self._game: PlayedGame | None = None  # made from the board's move stack on first use
        self._ply = len(board.move_stack)
        self.notation: Notation | None = None  # of the moves given to `read`; None without moves

    def __repr__(self) -> str:
        return f"Position({self.fen!r})"

    @classmethod
    def along(cls, game: PlayedGame, ply: int) -> Position:
        """Returns the position of a game after `ply` moves. Shares the game."""
        position = cls(game.board(ply))
        position._game, position._ply = game, ply
        return position

    @classmethod
    def read(
        cls,
        fen: str | None = None,
        moves: Sequence[str] = (),
        *,
        chess960: bool = False,
        max_moves: int | None = None,
    ) -> Position:
        """Returns the position after `moves` (UCI or SAN) from `fen`, or from the start position.

        fen : a FEN or EPD, with blanks or underscores, or `startpos`
        chess960 : read castling rights and castling moves by Chess960's rules

        Raises InvalidFen, InvalidPosition, IllegalMove, or LimitExceeded for more than `max_moves`
        moves.
        """
        if max_moves is not None and len(moves) > max_moves:
            raise LimitExceeded(f"moves: {len(moves)} moves; at most {max_moves} are allowed")
        board = chess.Board(chess960=chess960) if fen is None else _board(fen, chess960=chess960)
        if not moves:
            position = cls(board)
            if fen is not None and is_as_written(fen, board):
                position._fen = fen
            return position
        game = PlayedGame(board, keep=_HISTORY)
        notation: Notation | None = None
        for ply, text in enumerate(moves):
            try:
                move, written = read_move(game.last, text)
            except ValueError as error:
                where = game.last.fen(en_passant="fen")
                hint = "; leave out move numbers" if _NUMBERED.match(text) else ""
                raise IllegalMove(f"moves[{ply}]: {text!r} {error} in {where!r}{hint}") from None
            notation = written if notation in (None, written) else Notation.MIXED
            game.play(move)
        position = cls.along(game.ended(), game.plies)
        position.notation = notation
        return position

    @classmethod
    def read_line(cls, line: str, *, chess960: bool = False) -> Position:
        """Returns the position in a line of a list: a FEN or EPD, with or without other columns.

        Raises InvalidFen, InvalidPosition or UnsupportedVariant.
        """
        fen, is_960 = fen_in(line)
        return cls(_valid(read_fen(fen), chess960=chess960 or is_960))

    @property
    def board(self) -> chess.Board:
        """The python-chess board; do not change it. Earlier positions are in `history`, not in its move stack."""
        return self._board

    @property
    def fen(self) -> str:
        """A FEN that gives the network the same input again.

        It keeps the en-passant square after every double push, because some networks read it (Maia-2's planes).
        python-chess by default writes only a square with a legal capture.
        """
        if self._fen is None:
            self._fen = self.board.fen(en_passant="fen")
        return self._fen

    def after(self, move: chess.Move) -> Position:
        """Returns the position after a legal move, with the history that a network sees."""
        game = (self.game or PlayedGame(self._board)).followed(self._ply, move)
        return Position.along(game, game.plies)

    def sans(self, moves: Iterable[chess.Move]) -> list[str]:
        """Returns legal moves in SAN.

        Works on a copy of the board, because other threads may read the board meanwhile.
        """
        board = self._board.copy(stack=False)
        return [board.san(move) for move in moves]

    @property
    def chess960(self) -> bool:
        """Whether castling follows Chess960."""
        return self._board.chess960

    @property
    def has_history(self) -> bool:
        """Whether moves that led here are known."""
        return self._ply > 0

    @property
    def game(self) -> PlayedGame | None:
        """The game that led here, and may continue beyond it; None if no move is known."""
        if self._game is None and self._ply:
            self._game = PlayedGame.of(self.board, keep=_HISTORY)
        return self._game

    def occurrences(self, same: SamePosition = SamePosition.BY_LAWS) -> int:
        """Returns how often the position has occurred in the known game, the current one included."""
        return 1 if self.game is None else self.game.occurrences(self._ply, same)

    @property
    def turn(self) -> Literal["white", "black"]:
        """`white` or `black`."""
        return "black" if self.black else "white"

    def status(self, *, has_legal_moves: bool) -> Literal["ongoing", "checkmate", "stalemate"]:
        """Returns `ongoing`, `checkmate` or `stalemate`.

        has_legal_moves : whether a legal move exists
        """
        if has_legal_moves:
            return "ongoing"
        return "checkmate" if self.board.is_check() else "stalemate"

    def history(
        self, limit: int = _HISTORY, same: SamePosition = SamePosition.BY_LAWS
    ) -> list[HistoryEntry]:
        """Returns the known positions up to this one, newest first, at most `limit` (8 or fewer)."""
        game = self.game
        if game is None:
            return [HistoryEntry(self.board, self._ply, None)]
        oldest = max(self._ply - limit + 1, 0)
        return [
            HistoryEntry(game.board(ply), ply, game.earlier(ply, same))
            for ply in range(self._ply, oldest - 1, -1)
        ]


class Draw(Enum):
    """Why a game is drawn, by precedence. The first three end the game; the player to move may claim the last two."""

    INSUFFICIENT_MATERIAL = "insufficient_material"
    SEVENTYFIVE_MOVES = "seventyfive_moves"
    FIVEFOLD_REPETITION = "fivefold_repetition"
    FIFTY_MOVES = "fifty_moves"
    THREEFOLD_REPETITION = "threefold_repetition"

    @property
    def claimable(self) -> bool:
        """Whether the game continues unless a player claims the draw."""
        return self in (Draw.FIFTY_MOVES, Draw.THREEFOLD_REPETITION)


def draw_of(position: Position) -> Draw | None:
    """Returns the reason why a position with a legal move is drawn; None if it is not.

    Counts repetitions in the known game. A claim needs the position on the board: moves that would
    lead to a repetition are not looked for.
    """
    board = position.board
    count = position.occurrences(SamePosition.BY_LAWS) if position.has_history else 1
    # The cheap test goes first: this runs for every position, and most have a pawn, rook or queen.
    material = not (board.pawns or board.rooks or board.queens) and board.is_insufficient_material()
    for draw, holds in (
        (Draw.INSUFFICIENT_MATERIAL, material),
        (Draw.SEVENTYFIVE_MOVES, board.halfmove_clock >= 150),
        (Draw.FIVEFOLD_REPETITION, count >= 5),
        (Draw.FIFTY_MOVES, board.halfmove_clock >= 100),
        (Draw.THREEFOLD_REPETITION, count >= 3),
    ):
        if holds:
            return draw
    return None


def boards_of(positions: Sequence[Position]) -> Boards:
    """Returns the positions as bitboards, `[B]`."""
    return Boards.of([position.board for position in positions])


def _board(text: str, *, chess960: bool) -> chess.Board:
    if text == START_WORD:
        return chess.Board(chess960=chess960)
    try:
        check_length(text)
    except ValueError as error:
        raise InvalidFen(f"fen: {error}") from None
    return _valid(read_fen(text), chess960=chess960)


def _valid(fen: str, *, chess960: bool) -> chess.Board:
    """Returns the board of a FEN.

    Raises InvalidFen, or InvalidPosition for a position that breaks the laws.
    """
    try:
        board = board_of(fen, chess960=chess960)
    except ValueError as error:
        raise InvalidFen(f"fen: {error}") from None
    status = board.status()
    if status != chess.STATUS_VALID:
        names = status_names(status)
        hint = ""
        other, _ = repaired(fen, chess960=chess960 or None)
        if other.is_valid() and other.chess960 != chess960:
            hint = f"; valid as Chess960: {ASK_AS_CHESS960}"
        elif other.is_valid():
            hint = f"; without what does not fit: {other.fen(en_passant='fen')!r}"
        raise InvalidPosition(
            f"fen: {fen!r} is not a valid position: {', '.join(names)}{hint}", names
        )
    return board


def board_of(fen: str, *, chess960: bool = False) -> chess.Board:
    """Returns the board of a FEN.

    Raises ValueError in python-chess's words, or for a FEN beyond the limits.
    """
    check_length(fen)
    board = chess.Board(fen, chess960=chess960)
    check_counters(board)
    return board


def is_as_written(fen: str, board: chess.Board) -> bool:
    """Returns whether python-chess writes a valid board as the FEN that it was read from."""
    match = None if board.chess960 else _AS_WRITTEN.fullmatch(fen)
    # python-chess silently drops a queenside right of a side without a rook on its first rank.
    return match is not None and len(match[1].strip("-")) == board.castling_rights.bit_count()


def check_length(fen: str) -> None:
    """Raises ValueError for more than MAX_LENGTH characters."""
    if len(fen) > MAX_LENGTH:
        hint = MOVES_HINT if looks_like_moves(fen[:40]) else ""
        raise ValueError(
            f"{len(fen)} characters; at most {MAX_LENGTH} are allowed: {fen[:40]!r}…{hint}"
        )


def check_counters(board: chess.Board) -> None:
    """Raises ValueError for a half-move clock or move number beyond MAX_COUNTER."""
    for name, number in (
        ("half-move clock", board.halfmove_clock),
        ("move number", board.fullmove_number),
    ):
        if number > MAX_COUNTER:
            raise ValueError(f"the {name} is {number}; at most {MAX_COUNTER} is allowed")


def status_names(status: chess.Status) -> tuple[str, ...]:
    """Returns python-chess's names for the flags in `status`, such as `TOO_MANY_KINGS`."""
    return tuple(
        flag.name for flag in chess.Status if flag and flag & status and flag.name is not None
    )
