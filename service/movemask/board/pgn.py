"""Games from PGN, by python-chess: main lines of standard chess and Chess960, each played through."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TextIO, cast

import chess
import chess.pgn

from movemask.board.position import Elo, PlayedGame, Position, check_counters, check_length, status_names
from movemask.errors import InvalidPgn, LimitExceeded, MovemaskError


@dataclass(frozen=True, slots=True)
class Ply:
    """A position of a game with its history, and the move that was played there.

    chances : the mover's expected score before and after the move, by the engine evaluations in the PGN ([%eval]) and
        lichess's formula; None where one is missing
    """

    position: Position
    played: chess.Move
    elo: Elo | None
    chances: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Game:
    """A game whose moves are all legal; `headers` as in the PGN, `played` with all positions. `tree` has its comments
    and variations, if they were read."""

    headers: dict[str, str]
    chess960: bool
    plies: tuple[Ply, ...]
    played: PlayedGame
    tree: chess.pgn.Game | None = None

    def evaluated(self, tree: chess.pgn.Game) -> Game:
        """The game with the `chances` of the evaluations in a tree of it."""
        known = zip(self.plies, _chances(tree, self.played), strict=True)
        return replace(self, plies=tuple(replace(ply, chances=chances) for ply, chances in known))


#: Characters of one move's comments from which further ones are dropped.
_LONGEST_COMMENT = 10_000

#: The PGN standard's last glyph ($255).
_LAST_GLYPH = 255

#: Characters after which a line of moves is cut behind a comment: python-chess copies the rest of a line for each one.
_LONGEST_PIECE = 4_096

#: What python-chess passes over without a word: moves in another language's letters or in figurines, whose squares it
#: takes for a pawn's move, and whatever else is no move. Marks of a new move and of en passant are known.
_COMMENT = re.compile(r"\{[^}]*(?:\}|$)|;.*")
_UNREAD = re.compile(r"[^\W\d_]|[\u2654-\u265f\x00-\x08\x0e-\x1f]")
_MARKS = {"N", "TN", "ep", "e.p."}
_DIAGRAM = {"D", "(D)"}  # by itself: behind a letter it may belong to a move, as in the German Dd4

#: A comment, or a draw as people write it, which python-chess passes over too.
_DRAW = re.compile(r"(\{[^}]*(?:\}|$)|;.*)|\u00bd(?:[-\u2013]\u00bd)?")

_OPEN, _CLOSE, _NOT_BLANK = re.compile("[{;]"), re.compile("}"), re.compile(r"\s*\S")


#: python-chess's game, or the lines of one that cannot be played through, and what is made of it.
Parsed = tuple[chess.pgn.Game | list[str], Game | MovemaskError]


class Lines(Protocol):
    """A text that can be read line by line."""

    def readline(self) -> str: ...


def read_games(stream: Lines, max_moves: int | None = None) -> Iterator[Game | MovemaskError]:
    """The games of a PGN in order, with an InvalidPgn that says where in place of each that cannot be played through.

    A stream without any game yields one InvalidPgn. Raises LimitExceeded as soon as more than `max_moves` moves, or
    games, have been read in all, however long the game is, and any MovemaskError of the stream.
    """
    return (game for _, game in _read(stream, _MainLine, max_moves))


def read_trees(stream: Lines, max_moves: int | None = None) -> Iterator[Parsed]:
    """As `read_games`, each with python-chess's game, which keeps comments, glyphs and variations. The moves of
    variations count too, and there are no more variations than moves."""
    return _read(stream, _Tree, max_moves)


def _read(stream: Lines, builder: type[_Tree], max_moves: int | None) -> Iterator[Parsed]:
    number = 0
    left = dict.fromkeys(("moves", "variations"), math.inf if max_moves is None else max_moves)
    lines = _GameLines(stream)
    while True:
        lines.text, lines.unread, lines.comment = [], None, ""
        try:
            parsed = chess.pgn.read_game(cast(TextIO, lines), Visitor=lambda: builder(left))
            if parsed is None:
                break
            if lines.unclosed:
                why = f"the comment {lines.comment!r} is not closed, and takes all that follows"
                raise InvalidPgn(f"pgn: game {number + 1}: {why}")
            if lines.unread is not None and parsed.next() is not None:
                raise InvalidPgn(f"pgn: game {number + 1}: {lines.unread!r} is not a move in SAN")
            found: Parsed = parsed, _game(parsed, number + 1, with_tree=builder is _Tree)
        except InvalidPgn as error:
            found = lines.text, error
        except MovemaskError:  # too many moves, or the stream's own: a file that is cut short is not a game's fault
            raise
        except Exception as error:  # python-chess's: a $ followed by more digits than Python reads, and whatever else
            lines.end_game()
            why = f"{type(error).__name__}: {str(error)[:200]}"
            found = lines.text, InvalidPgn(f"pgn: game {number + 1}: cannot be read: {why}")
        number += 1
        if max_moves is not None and number > max_moves:
            raise LimitExceeded(f"pgn: more than {max_moves} games; send fewer at once")
        yield found
    if not number:
        yield [], InvalidPgn("pgn: there is no game in it")


class _GameLines:
    """The lines of a PGN, which is all that python-chess reads; knows where the current game ends. Long lines of moves
    come in pieces, and a draw in the standard's words."""

    def __init__(self, stream: Lines) -> None:
        self.text: list[str] = []  # whatever has been read since it was last emptied
        self.unread: str | None = None  # the first word since then that is no move
        self.comment = ""  # the beginning of the last brace comment that goes beyond its line or piece
        self._stream = stream
        self._pieces: Iterator[tuple[str, bool]] = iter(())
        self._in_comment = self._ended = False

    @property
    def unclosed(self) -> bool:
        """Whether the text has ended in a brace comment."""
        return self._in_comment and not self.text[-1]

    def readline(self) -> str:
        if (found := next(self._pieces, None)) is not None:
            piece, inside = found
            if inside and (not self._in_comment or "}" in piece):
                self.comment = piece[piece.index("{", piece.rfind("}") + 1) :].rstrip()[:40]
            self._in_comment = inside
            return piece
        line = self._stream.readline()
        self.text.append(line)
        self._ended = not line or (line.isspace() and not self._in_comment)
        if self._in_comment or not line.removeprefix("\ufeff").startswith(("[", "%")):
            line = _with_draw(line, self._in_comment)
            self.unread = self.unread or _unread(line, self._in_comment)
            self._pieces = _pieces(line, self._in_comment)
            return self.readline()
        return line

    def end_game(self) -> None:
        """Skips to the blank line that ends the game."""
        while not self._ended:
            self.readline()
        self._in_comment = False


def ends_in_comment(line: str, inside: bool) -> bool:
    """Whether a brace comment is open at the end of a line of moves; braces after a semicolon do not count."""
    *_, (_, ends) = _pieces(line, inside)
    return ends


def _with_draw(line: str, inside: bool) -> str:
    """A line of moves, in which a draw as people write it, comments aside, is `1/2-1/2`."""
    comment, closed, moves = line.partition("}") if inside else ("", "", line)
    return comment + closed + _DRAW.sub(lambda found: found[1] or "1/2-1/2", moves)


def _unread(line: str, inside: bool) -> str | None:
    """The first word of a line of moves, comments aside, that python-chess would pass over; None if all is well."""
    moves = _COMMENT.sub(" ", line.partition("}")[2] if inside else line)
    for word in moves.split():
        rest = chess.pgn.MOVETEXT_REGEX.sub("", word).lstrip("0123456789.")
        if rest not in _MARKS and word not in _DIAGRAM and _UNREAD.search(rest):
            return word[:40]
    return None


def _pieces(line: str, inside: bool) -> Iterator[tuple[str, bool]]:
    """A line of moves in pieces that end behind a comment, and whether a brace comment is open at each one's end."""
    begin = place = 0
    blank = ""  # in front of later pieces: % and ; mean more at the beginning of a line
    while found := (_CLOSE if inside else _OPEN).search(line, place):
        if found[0] == ";":
            break
        inside, place = not inside, found.end()
        if not inside and place - begin > _LONGEST_PIECE and _NOT_BLANK.match(line, place):
            yield f"{blank}{line[begin:place]} ", False  # a line that ends with its comment would be the file's end
            begin, blank = place, " "
    yield f"{blank}{line[begin:]}", inside


class _Tree(chess.pgn.GameBuilder[chess.pgn.Game]):
    """Builds a game. Errors are kept in it, not logged; the moves and variations `left` are counted down."""

    def __init__(self, left: dict[str, float]) -> None:
        super().__init__()
        self._left = left

    def end_headers(self) -> chess.pgn.SkipType | None:
        try:
            check_length(self.game.headers.get("FEN", ""))
        except ValueError as error:
            self.handle_error(ValueError(f"FEN: {error}"))
            return chess.pgn.SKIP
        return None

    def visit_comment(self, comment: str) -> None:
        """Keeps comments up to a length: python-chess joins all of a move's again for each one, in quadratic time."""
        if len(self.starting_comment) + len(self.variation_stack[-1].comment) < _LONGEST_COMMENT:
            super().visit_comment(comment)

    def visit_move(self, board: chess.Board, move: chess.Move) -> None:
        self._count("moves")
        super().visit_move(board, move)

    def begin_variation(self) -> None:
        """Counts variations, also those without a move: python-chess copies the whole game so far for each."""
        self._count("variations")
        super().begin_variation()

    def visit_nag(self, nag: int) -> None:
        """Refuses a glyph that no standard has: its number may be too long for JSON."""
        if nag > _LAST_GLYPH:
            self.handle_error(ValueError(f"${str(nag)[:20]} is not a glyph, which go to ${_LAST_GLYPH}"))
        super().visit_nag(nag)

    def _count(self, what: str) -> None:
        if self._left[what] < 1:
            raise LimitExceeded(f"pgn: more {what} than are taken at once; send fewer games")
        self._left[what] -= 1

    def handle_error(self, error: Exception) -> None:
        self.game.errors.append(error)


class _MainLine(_Tree):
    """Builds the main line only."""

    def visit_comment(self, comment: str) -> None:
        """Drops comments that hold no evaluation."""
        if "[%eval" in comment:
            super().visit_comment(comment)

    def begin_variation(self) -> chess.pgn.SkipType:  # type: ignore[override]  # visitors may skip, the builder's type does not
        return chess.pgn.SKIP

    def end_variation(self) -> None:
        """Does nothing: no variation is begun."""


def _game(parsed: chess.pgn.Game, number: int, *, with_tree: bool) -> Game:
    headers = dict(parsed.headers)
    name = f"pgn: game {number}"
    if parsed.errors:
        raise InvalidPgn(f"{name}: {parsed.errors[0]}")
    try:
        board = parsed.board()
        check_counters(board)
    except ValueError as error:
        raise InvalidPgn(f"{name}: {error}") from None
    if type(board) is not chess.Board:
        raise InvalidPgn(f"{name}: the variant {headers.get('Variant', '?')[:40]!r} is not standard chess or Chess960")
    if not board.is_valid():
        raise InvalidPgn(f"{name}: {board.fen()!r} is not a valid position: {', '.join(status_names(board.status()))}")
    moves = list(parsed.mainline_moves())
    if not moves:
        raise InvalidPgn(f"{name}: no moves")
    white, black = (_rating(headers.get(f"{side}Elo")) for side in ("White", "Black"))
    white, black = (black if white is None else white), (white if black is None else black)
    elos = (None, None) if white is None or black is None else (Elo(black, white), Elo(white, black))
    game = PlayedGame(board)
    for index, move in enumerate(moves):
        if not move or not game.last.is_legal(move):
            raise InvalidPgn(f"{name}: ply {index + 1}: {move.uci()} is not legal in {game.last.fen()!r}")
        game.play(move)
    game.ended()
    chances = _chances(parsed, game)
    plies = (
        Ply(Position.along(game, ply), move, elos[game.board(ply).turn], known)
        for ply, (move, known) in enumerate(zip(moves, chances, strict=True))
    )
    return Game(headers, board.chess960, tuple(plies), game, parsed if with_tree else None)


def _chances(parsed: chess.pgn.Game, game: PlayedGame) -> Iterator[tuple[float, float] | None]:
    """`Ply.chances` of each move. Only the position that ends a game needs no evaluation."""
    before = _expected(parsed, game.board(0))
    for ply, node in enumerate(parsed.mainline(), 1):
        after = _expected(node, game.board(ply))
        mover = game.board(ply - 1).turn
        yield None if before is None or after is None else (before[mover], after[mover])
        before = after


def _expected(node: chess.pgn.GameNode, board: chess.Board) -> dict[chess.Color, float] | None:
    """Each side's expected score, 0 to 1."""
    if (outcome := board.outcome()) is not None:
        white = 0.5 if outcome.winner is None else float(outcome.winner)
    elif (score := node.eval()) is not None:
        white = score.white().wdl(model="lichess").expectation()
    else:
        return None
    return {chess.WHITE: white, chess.BLACK: 1 - white}


def _rating(header: str | None) -> float | None:
    return float(header) if header and header.isascii() and header.isdigit() and len(header) <= 4 else None
