"""Games from PGN, by python-chess: main lines of standard chess and Chess960, each played through."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import chess
import chess.engine
import chess.pgn

from movemask.board.evaluations import PREFIX, evaluation_of, profile_of, unreadable
from movemask.board.moves import NULL_MOVES, read_move
from movemask.board.position import (
    Elo,
    PlayedGame,
    Position,
    check_counters,
    check_length,
    status_names,
)
from movemask.board.repair import fits_chess960, repaired
from movemask.board.split import GameText, kind_of, split
from movemask.errors import InvalidPgn, LimitExceeded, MovemaskError


@dataclass(frozen=True, slots=True)
class Ply:
    """A position of a game with its history, and the move that was played there."""

    position: Position
    played: chess.Move
    elo: Elo | None


@dataclass(frozen=True, slots=True)
class Game:
    """A game whose moves are all legal.

    headers : the tags, without escapes
    played : all positions
    scores : White's expected score in each position, by its end or the PGN's evaluation; None without either
    repairs : notes on what was read otherwise than it stands there: castling rights, en passant, illegal moves
    unreadable : notes on evaluations that cannot be read
    tree : python-chess's game with comments and variations; None if they were not read
    """

    headers: dict[str, str]
    chess960: bool
    plies: tuple[Ply, ...]
    played: PlayedGame
    scores: tuple[float | None, ...]
    repairs: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    tree: chess.pgn.Game | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """All notes on how the game was read."""
        return self.repairs + self.unreadable


#: The PGN standard's last glyph ($255).
_LAST_GLYPH = 255

#: Tags that mean nothing if empty: the game then begins at the start position, and ends as its moves say.
_NOT_EMPTY = {"FEN", "Variant", "Result"}

#: Ratings that a player can have. Other numbers, such as 0 or 9999, stand for an unknown rating.
_LEAST_RATING, _MOST_RATING = 100, 4_000


#: Most evaluations of a game that are named as unreadable.
_MOST_NOTES = 5

#: A king on a centre square: players put both there to tell an electronic board the result, which broadcasts as moves.
_RESULT_BY_KINGS = re.compile(r"K[de][45][+#]?")


class Start(NamedTuple):
    """The position that a game begins with.

    fen : without rights that do not fit; None for the usual position
    notes : what was dropped
    may_be_960 : whether its rights, though read otherwise, fit Chess960
    """

    fen: str | None = None
    notes: tuple[str, ...] = ()
    may_be_960: bool = False


class Parsed(NamedTuple):
    """A text, python-chess's tree of its game, and the game or the error.

    Text outside games has no tree. It has an error, except after the last game and without words: then `game` is None.
    """

    text: GameText | None
    tree: chess.pgn.Game | None
    game: Game | MovemaskError | None


class Lines(Protocol):
    """A text that can be read line by line."""

    def readline(self) -> str: ...


def read_games(
    source: Lines | str, max_moves: int | None = None, *, partial: bool = False
) -> Iterator[Game | MovemaskError]:
    """Returns the games of a PGN in order.

    A game that cannot be played through, or text between games, gives an InvalidPgn. With `partial`, a game is read up
    to a move that cannot be played, with a note, if a move comes before it.

    A PGN without games yields one InvalidPgn. Raises LimitExceeded as soon as more than `max_moves`
    moves or games have been read, or for a game of more than `split.LONGEST` characters; and any
    MovemaskError of the source.
    """
    return (
        parsed.game
        for parsed in _read(source, _MainLine, max_moves, partial=partial)
        if parsed.game is not None
    )


def read_trees(
    source: Lines | str, max_moves: int | None = None, *, partial: bool = False
) -> Iterator[Parsed]:
    """Like `read_games`, with the text and python-chess's game, which keeps comments, glyphs and variations.

    `max_moves` also limits the moves in variations, and the variations.
    """
    return _read(source, _Tree, max_moves, partial=partial)


def read_game_text(text: GameText, number: int) -> Game | InvalidPgn:
    """Returns the game of a text that has been split already.

    `number` is the game's number in its file, for messages.
    """
    left = {"moves": math.inf, "variations": math.inf}
    game = _parsed(text, number, _MainLine, left, partial=False).game
    assert isinstance(game, Game | InvalidPgn)  # the only results without limits
    return game


def outside(text: GameText) -> InvalidPgn | None:
    """Returns the error for text before or between games.

    None for a game, for text after the last game, and for text without words.
    """
    return (
        InvalidPgn(f"pgn: text outside a game: {text.fault}")
        if text.role == "outside" and text.fault
        else None
    )


def no_game(text: GameText | None) -> InvalidPgn:
    """Returns the error for a file without games.

    `text` is its text outside games. None for an empty file.
    """
    return InvalidPgn(
        "pgn: there is no game in it"
        + (f": {text.fault}" if text is not None and text.fault else "")
    )


def odd_tags(tags: dict[str, str]) -> dict[str, str]:
    """Returns the tags with names that python-chess refuses, such as `White ACPL`."""
    return {name: value for name, value in tags.items() if not chess.pgn.TAG_NAME_REGEX.match(name)}


def rating_of(value: str | None) -> float | None:
    """Returns a tag's rating, a whole number from 100 to 4000.

    None for anything else, such as `?` and `0`.
    """
    if (
        not value
        or not value.isascii()
        or not value.isdigit()
        or len(value) > len(str(_MOST_RATING))
    ):
        return None
    return float(value) if _LEAST_RATING <= int(value) <= _MOST_RATING else None


def _read(
    source: Lines | str, builder: type[_Tree], max_moves: int | None, *, partial: bool
) -> Iterator[Parsed]:
    number = yielded = 0
    left = dict.fromkeys(("moves", "variations"), math.inf if max_moves is None else max_moves)
    stream = io.StringIO(source) if isinstance(source, str) else source
    trailing: GameText | None = None
    for text in split(iter(stream.readline, "")):
        if text.role == "game":
            number += 1
            parsed = _parsed(text, number, builder, left, partial=partial)
        else:
            trailing = text
            parsed = Parsed(text, None, outside(text))
        yielded += parsed.game is not None
        if max_moves is not None and yielded > max_moves:
            raise LimitExceeded(f"pgn: more than {max_moves} games; send fewer at once")
        if number or text.role != "trailing":
            yield parsed
    if not number:
        yield Parsed(trailing, None, no_game(trailing))


def _parsed(
    text: GameText, number: int, builder: type[_Tree], left: dict[str, float], *, partial: bool
) -> Parsed:
    """Parses a game with python-chess. Raises LimitExceeded; other errors are part of the result."""
    name = f"pgn: game {number}"
    try:
        if text.fault is not None:
            raise InvalidPgn(f"{name}: {text.fault}")
        if not text.movetext:
            raise InvalidPgn(f"{name}: no moves")
        start, before = _start(text.tags), dict(left)
        try:
            return _played(text, name, builder, left, start)
        except InvalidPgn as error:
            for another, is_partial in _other_readings(text, start, partial=partial):
                left.update(before)
                with suppress(InvalidPgn):
                    return _played(text, name, builder, left, another, partial=is_partial)
            raise error
    except InvalidPgn as error:
        return Parsed(text, None, error)
    except MovemaskError:  # too many moves
        raise
    except Exception as error:
        # from python-chess, such as for a $ with more digits than Python reads
        why = f"{type(error).__name__}: {str(error)[:200]}"
        return Parsed(text, None, InvalidPgn(f"{name}: cannot be read: {why}"))


def _other_readings(text: GameText, start: Start, *, partial: bool) -> Iterator[tuple[Start, bool]]:
    """How else to read a game that cannot be played through: the starts, and whether a part of the game is enough."""
    if start.may_be_960:
        note = "the game castles as in Chess960: read as Chess960"
        yield Start(repaired(fen_tag(text.tags), chess960=True)[0].fen(), (note,)), False
    if partial:
        yield start, True


def _played(
    text: GameText,
    name: str,
    builder: type[_Tree],
    left: dict[str, float],
    start: Start,
    *,
    partial: bool = False,
) -> Parsed:
    """Returns a game that is played through from a start. Raises InvalidPgn and LimitExceeded."""
    tree = chess.pgn.read_game(
        io.StringIO("".join(text.movetext)), Visitor=lambda: builder(text.tags, start, left)
    )
    assert tree is not None  # there is movetext
    game = _game(tree, text, name, start, with_tree=builder is _Tree, partial=partial)
    return Parsed(text, tree, game)


def fen_tag(tags: Mapping[str, str]) -> str:
    """Returns the FEN of the tags, without the semicolon that ends it in books.

    Empty without one.
    """
    fen, semicolon, _ = tags.get("FEN", "").partition(";")
    return fen.rstrip() if semicolon else fen


def _start(tags: Mapping[str, str]) -> Start:
    """Returns the start by the tags FEN and Variant.

    A FEN that cannot be repaired is left to python-chess, which names it.
    """
    fen, headers = fen_tag(tags), chess.pgn.Headers({}, Variant=tags.get("Variant", ""))
    if fen.strip() in ("", "?", "-"):
        return Start()
    variant = headers["Variant"].strip()
    is_named = variant not in ("", "?", "-") and not headers.is_wild()
    try:
        check_length(fen)
        if chess.Board(fen, chess960=headers.is_chess960()).is_valid():
            return Start(fen)
        board, notes = repaired(fen, chess960=headers.is_chess960() if is_named else None)
        if not board.is_valid():
            return Start(fen)
        may_be_960 = not board.chess960 and fits_chess960(fen)
        if not chess.Board(fen, chess960=board.chess960).is_valid():
            fen = board.fen(en_passant="fen")
        return Start(fen, tuple(notes), may_be_960)
    except ValueError:
        return Start(fen)


class _Tree(chess.pgn.GameBuilder[chess.pgn.Game]):
    """Builds a game with these tags and this start, and counts down the moves and variations `left`.

    Errors are kept in the game.

    Comments are added at the next move or variation: python-chess would join a move's comments anew for each one, in
    quadratic time.
    """

    def __init__(self, tags: dict[str, str], start: Start, left: dict[str, float]) -> None:
        super().__init__()
        self._tags = tags if start.fen is None else {**tags, "FEN": start.fen}
        self._left = left
        self._comments: list[str] = []

    def begin_headers(self) -> chess.pgn.Headers:
        headers, odd = super().begin_headers(), odd_tags(self._tags)
        for name, value in self._tags.items():
            empty = name in _NOT_EMPTY and value.strip() in ("", "?", "-")
            if name not in odd and not empty:
                headers[name] = value
        return headers

    def end_headers(self) -> chess.pgn.SkipType | None:
        try:
            check_length(self.game.headers.get("FEN", ""))
        except ValueError as error:
            self.handle_error(ValueError(f"FEN: {error}"))
            return chess.pgn.SKIP
        return None

    def visit_comment(self, comment: str) -> None:
        self._comments.append(comment)

    def _add_comments(self) -> None:
        if self._comments:
            super().visit_comment(" ".join(filter(None, self._comments)))
            self._comments = []

    def begin_parse_san(self, board: chess.Board, san: str) -> chess.pgn.SkipType | None:
        """Skips moves after an error: in a variation, python-chess would play those of the main line from its board."""
        return chess.pgn.SKIP if self.game.errors else None

    def parse_san(self, board: chess.Board, san: str) -> chess.Move:
        """Returns the move, or in a variation a null move.

        The error of a move that cannot be played says where in the game it is.
        """
        in_variation = len(self.variation_stack) > 1
        if in_variation and san in NULL_MOVES:
            return chess.Move.null()
        try:
            return read_move(board, san)[0]
        except ValueError as error:
            side = "White" if board.turn else "Black"
            place = f"in {board.fen()!r}, at {side}'s move {board.fullmove_number}"
            kind = ValueError if in_variation else _MoveError
            raise kind(f"{san!r} {error} {place}") from None

    def visit_move(self, board: chess.Board, move: chess.Move) -> None:
        self._count("moves")
        self._add_comments()
        super().visit_move(board, move)

    def begin_variation(self) -> None:
        """Counts variations, also without moves: python-chess copies the whole game so far for each one."""
        self._count("variations")
        self._add_comments()
        super().begin_variation()

    def end_variation(self) -> None:
        """Ends a variation. python-chess also calls it for a bracket behind an illegal move of the main line."""
        self._add_comments()
        if len(self.variation_stack) > 1:
            super().end_variation()

    def end_game(self) -> None:
        self._add_comments()
        super().end_game()

    def visit_result(self, result: str) -> None:
        """Takes the last result, unless a tag gives one: a result may also stand between moves."""
        if self._tags.get("Result", "*") in ("*", "?", "-", ""):
            self.game.headers["Result"] = result

    def visit_nag(self, nag: int) -> None:
        """Refuses a glyph beyond the standard: its number may be too long for JSON."""
        if nag > _LAST_GLYPH:
            self.handle_error(
                ValueError(f"${str(nag)[:20]} is not a glyph, which go to ${_LAST_GLYPH}")
            )
        super().visit_nag(nag)

    def _count(self, what: str) -> None:
        if self._left[what] < 1:
            raise LimitExceeded(f"pgn: more {what} than are taken at once; send fewer games")
        self._left[what] -= 1

    def handle_error(self, error: Exception) -> None:
        self.game.errors.append(error)


class _MoveError(ValueError):
    """A move of the main line that cannot be played."""


class _MainLine(_Tree):
    """Builds the main line only."""

    def visit_comment(self, comment: str) -> None:
        """Drops comments without an evaluation."""
        if PREFIX in comment:
            super().visit_comment(comment)

    def begin_variation(self) -> chess.pgn.SkipType:  # type: ignore[override]  # visitors may skip, the builder's type does not
        return chess.pgn.SKIP

    def end_variation(self) -> None:
        """Does nothing, because no variation was begun."""


def _game(
    parsed: chess.pgn.Game,
    text: GameText,
    name: str,
    start: Start,
    *,
    with_tree: bool,
    partial: bool,
) -> Game:
    headers = {**parsed.headers, **odd_tags(text.tags)}
    try:
        board = parsed.board()
        check_counters(board)
    except ValueError as error:
        raise InvalidPgn(f"{name}: {parsed.errors[0] if parsed.errors else error}") from None
    if type(board) is not chess.Board:
        raise InvalidPgn(
            f"{name}: the variant {headers.get('Variant', '?')[:40]!r} is not standard chess or Chess960"
        )
    if not board.is_valid():
        fen, names = headers.get("FEN", board.fen()), ", ".join(status_names(board.status()))
        raise InvalidPgn(f"{name}: {fen!r} is not a valid position: {names}")
    moves, repairs = list(parsed.mainline_moves()), list(start.notes)
    if parsed.errors:
        if moves and _is_result_by_kings(parsed.errors, text, len(moves)):
            repairs.append(f"the kings tell the result: {parsed.errors[0]}, and is left out")
        elif moves and partial and isinstance(parsed.errors[0], _MoveError):
            repairs.append(f"{parsed.errors[0]}: it is left out, and what follows it")
        else:
            raise InvalidPgn(f"{name}: {parsed.errors[0]}")
    if not moves:
        raise InvalidPgn(f"{name}: no moves")
    white, black = (rating_of(headers.get(f"{side}Elo")) for side in ("White", "Black"))
    white, black = (black if white is None else white), (white if black is None else black)
    elos = (
        (None, None) if white is None or black is None else (Elo(black, white), Elo(white, black))
    )
    game = PlayedGame(board)
    for move in moves:
        game.play(move)
    game.ended()
    plies = (
        Ply(Position.along(game, ply), move, elos[game.board(ply).turn])
        for ply, move in enumerate(moves)
    )
    nodes = [parsed, *parsed.mainline()]
    profile = profile_of(parsed.comment)
    scores = (_score(node, game.board(ply), profile.get(ply)) for ply, node in enumerate(nodes))
    return Game(
        headers,
        board.chess960,
        tuple(plies),
        game,
        tuple(scores),
        tuple(repairs),
        _unreadable(nodes, game),
        parsed if with_tree else None,
    )


def _is_result_by_kings(errors: Sequence[Exception], text: GameText, played: int) -> bool:
    """Returns whether the moves that cannot be played tell the result.

    They do if there are one or two after the first `played`, and each puts a king on a centre
    square.
    """
    line: list[str] = []
    depth = 0
    for word in map(str.strip, text.movetext):
        if word[0] in "()":
            depth += word.count("(") - word.count(")")
        elif not depth and word[0] != "{" and kind_of(word) == "move":
            line.append(word)
    rest = line[played:]
    return (
        len(errors) == 1
        and isinstance(errors[0], _MoveError)
        and len(rest) in (1, 2)
        and all(map(_RESULT_BY_KINGS.fullmatch, rest))
    )


def _score(
    node: chess.pgn.GameNode, board: chess.Board, in_profile: chess.engine.PovScore | None
) -> float | None:
    """Returns White's expected score in a position; None if it is unknown."""
    if (outcome := board.outcome()) is not None:
        return 0.5 if outcome.winner is None else float(outcome.winner)
    evaluation = evaluation_of(node.comment, board.turn) or in_profile
    return None if evaluation is None else expected_score(evaluation)


def _unreadable(nodes: Sequence[chess.pgn.GameNode], game: PlayedGame) -> tuple[str, ...]:
    """Notes on the evaluations of a line that cannot be read; `_MOST_NOTES` and their number."""
    faults = [
        (ply, node, command)
        for ply, node in enumerate(nodes)
        if PREFIX in node.comment
        for command in unreadable(node.comment)
    ]
    notes = []
    for ply, node, command in faults[:_MOST_NOTES]:
        place = "before the first move"
        if node.move is not None:
            place = f"after {game.board(ply - 1).variation_san([node.move])}"
        notes.append(f"the evaluation {command!r} {place} cannot be read")
    if (more := len(faults) - _MOST_NOTES) > 0:
        notes.append(f"{more} more evaluations cannot be read")
    return tuple(notes)


def expected_score(evaluation: chess.engine.PovScore) -> float:
    """Returns White's expected score, 0 to 1, by an engine's evaluation and lichess's formula."""
    return evaluation.white().wdl(model="lichess").expectation()
