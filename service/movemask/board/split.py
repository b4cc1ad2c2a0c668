r"""Splits text into the games of a PGN: their tags, their moves and comments, and text outside games.

One pattern reads comments, tags and the rest. The rules:

- A game begins at a tag that follows movetext. Tags may repeat, and empty lines may stand anywhere.
- Without tags, a game begins at `1.` at the start of a line, and at a move after a result, unless its number continues
  the game before.
- Text after a result is outside games. Elsewhere a word that is neither tag nor move is an error of its game.
- Comments are `{…}`, `;…` to the end of the line, and outside braces a line that begins with `%`.

python-chess reads the moves. Time and memory are linear in the length of a game. Source of the format: the PGN
standard, sections 3 to 8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import chess.pgn

from movemask.errors import LimitExceeded

#: Most characters of a game; no real game reaches it. A whole game is in memory at once.
LONGEST = 1 << 24

_BLOCK = 1 << 14  # characters read at once
_LONGEST_TAG = 1 << 11  # a tag this close to the end of what was read may continue behind it
_MOST_QUOTED = 40  # characters of the text that an error quotes

_DASH = "[-\u2010-\u2013\u2212]"
_IN_NAME = r"[^\s\"\\\[\]{}();]"
_NAME = rf"[^\W_]{_IN_NAME}*+(?:[ \t\xa0]+{_IN_NAME}++){{0,4}}"  # some programs write names of several words
_TOKEN = re.compile(
    rf"""(?P<gap>\s*+)(?:
    (?P<comment> \{{[^}}]*\}}? | ;[^\n]* )
  | (?P<escape> ^%[^\n]* )
  | \[\s* (?P<name>{_NAME}) \s*" (?:
        (?P<value> (?: [^"\\\n\[] | \\[\s\S] | "(?!\s*\]) | \n(?!\s*[\[\n]) | \[(?!{_NAME}\s*"(?!\s*\])) )*+ ) "\s*\]
      | (?P<damaged> [^"\n\[\]]* ) "?\]?
    )
  | \[\s* (?P<bare>\w++) [^\S\n]*+[:=]?+[^\S\n]*+ (?P<unquoted>[^"\n\[\]]*+) \](?=\s*(?:\[|$))
  | (?P<bracket> [()] )
  | (?P<result> \*+ | (?:1{_DASH}0|0{_DASH}1|1/2{_DASH}1/2|\xbd{_DASH}\xbd)(?![\w/\-]) )
  | (?P<number> \d{{1,4}} )\s*(?P<dots> [.\u2026][\s.\u2026]* )
  | (?P<word> \[ | [^\s{{;()\[*]+ )
    )""",
    re.VERBOSE | re.MULTILINE,
)

#: Movetext up to the next token that matters in a game: a tag, a result, a bracket, `1.` on a new line.
_MOVES = re.compile(rf"(?:[^\[{{;()*\xbd01\n]++|\{{[^}}]*+\}}|[01](?!{_DASH}[01]|/2)|\n\s*+(?=[^\s1%]|1(?!\s*\.)))*+")
_REST_OF_LINE = re.compile(r"[^\n\[]*")
_ESCAPED = re.compile(r'\\(["\\])')

#: Signs of typesetting, and what python-chess reads in their place.
SIGNS = {0xD7: "x", 0xBD: "1/2", 0x2212: "-", **dict.fromkeys(range(0x2010, 0x2014), "-")}

#: Text that python-chess skips without an error: letters of another language, figurines, control characters. It takes
#: the squares of such a move for a pawn's move. The marks of a new move, of en passant and of a diagram are allowed.
_UNREAD = re.compile(r"[^\W\d_]|[\u2654-\u265f\x00-\x08\x0e-\x1f]")
_MARKS = {"N", "TN", "ep", "e.p."}
_DIAGRAM = {"D", "(D)"}  # words of their own: after a letter they may belong to a move, as in the German Dd4
_PADDING = "\x00\x1a"  # zeros that fill a block, and DOS's end of file

#: Tags with a meaning for movemask, by their names in lower case. Case does not matter.
_KNOWN = {
    name.lower(): name
    for name in (
        *("Event", "Site", "Date", "Round", "White", "Black", "Result"),
        *("WhiteElo", "BlackElo", "SetUp", "FEN", "Variant", "ECO", "Opening", "UTCDate"),
    )
}


@dataclass(slots=True)
class GameText:
    """A game, or text outside games, as it stands in a text.

    role : `game`; `outside` for text before or between games; `trailing` for text after the last game
    line : number of its first line, from 1
    text : all of it as written, with LF as the end of lines
    tags : values by name, without escapes; the last value if a name is repeated
    movetext : comments and moves as written, in pieces, each with the number of its first line. A piece before the
        tags has only comments
    moves_at : offset in `text` of the first comment or move after the tags; -1 if there is none
    unread : line and text of the first word outside the movetext that is neither tag nor move
    unclosed : beginning of a brace comment that continues to the end of the whole text
    """

    role: Literal["game", "outside", "trailing"] = "game"
    line: int = 0
    text: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    movetext: list[tuple[int, str]] = field(default_factory=list)
    moves_at: int = -1
    unread: tuple[int, str] | None = None
    unclosed: str | None = None


def split(lines: Iterable[str], longest: int | None = LONGEST) -> Iterator[GameText]:
    """The games of a text in order, and the text outside them.

    `lines` may be a file or any other source of lines. Raises LimitExceeded for a game of more than `longest`
    characters.
    """
    return _Splitter(lines, longest).parts()


def begins_with_tag(line: str) -> bool:
    """Whether a line begins with a tag, as a PGN does."""
    match = _TOKEN.match(line.lstrip("\ufeff"))
    return match is not None and match["name"] is not None


def escaped(value: str) -> str:
    """A tag's value, escaped to stand between quotation marks."""
    return value.replace("\\", "\\\\").replace('"', '\\"')


@lru_cache(1 << 14)
def kind_of(word: str) -> Literal["move", "mark", "text"]:
    """What a word of movetext is. A `mark` means nothing alone, such as `+-`; `text` is neither move nor mark."""
    word = word.translate(SIGNS)
    rest = chess.pgn.MOVETEXT_REGEX.sub("", word).lstrip("0123456789.")
    if word in _DIAGRAM or not word.strip(_PADDING) or not word.strip("-"):
        return "mark"
    if rest not in _MARKS and _UNREAD.search(rest):
        return "text"
    return "move" if any(match[1] for match in chess.pgn.MOVETEXT_REGEX.finditer(word)) else "mark"


class _Splitter:
    """Reads a text token by token.

    `_game` is the current game. `_behind` is what stands behind its result or, without a game, before the first one: it
    belongs to the next game, or is text outside games. Places are offsets in the whole text; `_text` begins at `_base`.
    """

    def __init__(self, lines: Iterable[str], longest: int | None) -> None:
        self._lines, self._longest = iter(lines), longest
        self._text, self._base, self._at, self._complete = "", 0, 0, False
        self._counted, self._line = 0, 1  # a place, and its line
        self._game: GameText | None = None
        self._behind: GameText | None = None
        self._start = self._behind_start = 0  # of the game or, without one, of `_behind`; of `_behind` after a game
        self._moves, self._moves_line, self._moves_end = -1, 0, 0  # the movetext since the last tag; -1 for none
        self._begun = self._over = False  # whether the game has a move or result, and whether the result was the last
        self._depth = 0  # of variations

    def parts(self) -> Iterator[GameText]:
        """The parts in order."""
        while match := self._next():
            yield from self._take(match)
        yield from self._finish(self._base + len(self._text), last=True)

    def _next(self) -> re.Match[str] | None:
        """The next token that matters; None at the end of the text."""
        while True:
            if self._begun and not self._over and (moves := _MOVES.match(self._text, self._at - self._base)):
                self._at = self._base + moves.end()
                self._moves_end = max(self._moves_end, self._at)
            match = _TOKEN.match(self._text, self._at - self._base)
            if self._complete or (match and match.end() + _LONGEST_TAG < len(self._text)):
                return match
            self._read()

    def _read(self) -> None:
        """Reads a block, or as much again as the current part has, so that a long comment takes linear time."""
        self._line_of(max(self._start, self._counted))
        self._text, self._base = self._text[self._start - self._base :], self._start
        if self._longest is not None and len(self._text) > self._longest:
            line = self._line_of(self._at)
            raise LimitExceeded(f"pgn: line {line}: a game of more than {self._longest >> 20} MiB")
        left, block = max(len(self._text), min(_BLOCK, self._longest or _BLOCK)), list[str]()
        while left > 0 and not self._complete:
            line_read = next(self._lines, None)
            self._complete = line_read is None
            block.append(line_read or "")
            left -= len(block[-1])
        self._text += "".join(block).replace("\r\n", "\n").replace("\r", "\n")

    def _take(self, match: re.Match[str]) -> Iterator[GameText]:
        begin, self._at = self._base + match.end("gap"), self._base + match.end()
        kind = match.lastgroup
        if kind == "word":
            kind = kind_of(match["word"])
        elif kind == "unquoted" and self._begun:
            kind = "mark"
        if kind in ("value", "damaged", "unquoted"):
            if self._game is None or self._begun:
                yield from self._begin(begin)
            self._add_tag(match, begin)
        elif kind == "comment":
            self._add_comment(match, begin)
        elif kind == "text" and (self._game is None or not self._begun or self._over):
            self._add_text(match, begin)
        elif kind in ("move", "dots", "result"):
            first = kind == "dots" and match["number"] == "1" and match["dots"].strip() == "."
            new_line = self._begun and not self._depth and "\n" in match["gap"]
            if self._game is None or (self._over and kind == "move") or (first and (self._over or new_line)):
                yield from self._begin(begin)
            self._add_moves(begin, go_on=kind == "dots")
            self._begun, self._over = True, self._over or (kind == "result" and not self._depth)
        elif self._game is not None:  # a bracket, or a sign such as +-
            numbered = match["bracket"] == "(" and self._text[match.end() : match.end() + 1].isdigit()
            if not self._over or (numbered and self._behind is None):
                self._add_moves(begin, go_on=True)
                self._depth = max(0, self._depth + {"(": 1, ")": -1}.get(match["bracket"], 0))

    def _begin(self, at: int) -> Iterator[GameText]:
        """Begins a game, with the comments that stand before it."""
        yield from self._finish(at)
        behind, self._behind = self._behind, None
        self._game = behind or GameText(line=self._line_of(at))
        self._moves, self._moves_line, self._moves_end = (
            (self._behind_start, behind.line, at) if behind else (-1, 0, at)
        )
        self._begun, self._over, self._depth = False, False, 0

    def _finish(self, end: int, *, last: bool = False) -> Iterator[GameText]:
        """Ends the game, and text behind it. Comments alone are left for the next game."""
        if last and self._game and self._behind and not self._behind.unread and self._behind.unclosed is None:
            self._add_moves(end, go_on=True)
        if self._game:
            self._end_moves(self._moves_end)
            start, self._start = self._start, end if self._behind is None else self._behind_start
            yield self._ended("game", self._game, start, self._start)
            self._game = None
        if self._behind and (last or self._behind.unread):
            start, self._start = self._start, end
            yield self._ended("trailing" if last else "outside", self._behind, start, end)
            self._behind = None

    def _ended(self, role: Literal["game", "outside", "trailing"], part: GameText, start: int, end: int) -> GameText:
        part.role, part.text = role, self._text[start - self._base : end - self._base]
        part.moves_at = len(part.text) if part.moves_at < 0 else part.moves_at
        return part

    def _add_moves(self, at: int, *, go_on: bool) -> None:
        """Adds the current token to the game's movetext; with `go_on`, also what stands behind the result."""
        assert self._game is not None
        if go_on and self._behind:
            self._game.unread = self._game.unread or self._behind.unread
            self._behind = None
        self._over = self._over and not go_on
        if self._moves < 0:
            self._moves, self._moves_line = at, self._line_of(at)
        if self._game.moves_at < 0:
            self._game.moves_at = at - self._start
        self._moves_end = self._at

    def _end_moves(self, end: int) -> None:
        assert self._game is not None
        if self._moves >= 0:
            text = self._text[self._moves - self._base : end - self._base]
            self._game.movetext.append((self._moves_line, text))
        self._moves = -1

    def _add_tag(self, match: re.Match[str], begin: int) -> None:
        assert self._game is not None
        self._end_moves(begin)
        name = " ".join((match["name"] or match["bare"]).split())
        value = _ESCAPED.sub(r"\1", match[match.lastgroup or 0])
        as_written = match.lastgroup == "value" and "\n" not in value
        known = _KNOWN.get(name.rstrip(" :=").lower(), name)
        self._game.tags[known] = value if as_written else " ".join(value.split())
        self._game.moves_at = -1

    def _add_comment(self, match: re.Match[str], begin: int) -> None:
        new_line = match["gap"].count("\n") > 1
        if self._game is None or (self._over and (new_line or self._behind)):
            part = self._open_behind(begin)
        else:
            self._add_moves(begin, go_on=False)
            part = self._game
        if match["comment"][0] == "{" and match["comment"][-1] != "}":
            part.unclosed = match["comment"].partition("\n")[0][:_MOST_QUOTED].rstrip()

    def _add_text(self, match: re.Match[str], begin: int) -> None:
        """Adds a word that is neither tag nor move. Outside games, the rest of its line is text too."""
        part = self._game
        if part is None or self._over:
            part = self._open_behind(begin)
            rest = _REST_OF_LINE.match(self._text, match.end())
            self._at = self._base + (rest.end() if rest else match.end())
        part.unread = part.unread or (self._line_of(begin), match["word"][:_MOST_QUOTED])

    def _open_behind(self, at: int) -> GameText:
        """The text behind the game, which begins here if there is none yet."""
        if self._behind is None:
            self._behind, self._behind_start = GameText(line=self._line_of(at)), at
        if self._behind.moves_at < 0:
            self._behind.moves_at = at - (self._behind_start if self._game else self._start)
        return self._behind

    def _line_of(self, at: int) -> int:
        """The line of a place. Only a place at or behind the last one may be asked for."""
        self._line += self._text.count("\n", self._counted - self._base, at - self._base)
        self._counted = at
        return self._line
