r"""Splits text into the games of a PGN: their tags, their movetext, and text outside games.

`page/split.js` follows the same rules (`tests/page/test_split.py` compares them):

- A tag is `[Name "value"]` anywhere outside a comment. White space may stand between its parts; tags need none between
  them. A game begins at a tag that follows movetext.
- Empty lines may stand between tags, and between tags and moves. A tag section belongs to the movetext that follows it.
  It ends without moves if its first tag comes again, or if any of its tags comes again after an empty line.
- Without tags, a game begins at a first move (`1. e4`) on a new line, and at a move after an empty line or a result,
  unless its number continues the game before.
- Comments are `{…}`, `;…` to the end of the line, and outside braces a line that begins with `%`.
- The fence of a code block, a line of asterisks and the `>` of a quoted mail count as white space.
- CR, LF and CRLF end a line.

Time and memory are linear in the length of a game. Source of the format: the PGN standard, sections 3 to 8.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from movemask.errors import LimitExceeded

#: Most characters of a game; no real game reaches it. A whole game is in memory at once.
LONGEST = 1 << 24

#: White space and characters without width, as in split.js. No character here is special in a character class.
_S = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x2010)))
_S += "\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
_LETTER = r"[A-Za-z\u00c0-\u1fff\u2654-\u265f\u2c00-\ud7ff\uf900-\ufefe\uff10-\uffdc\U00010000-\U0010ffff]"
_QUOTES = '"\u201c\u201d\u201e'  # straight, and word processors' variants

_DASH = r"[-\u2010-\u2013\u2212]"  # a hyphen, and word processors' variants
_RESULT = rf"(?:1{_DASH}0|0{_DASH}1|1/2{_DASH}1/2|\u00bd(?:{_DASH}\u00bd)?|\*)"
_MOVE = (
    rf"(?:{_LETTER}{{0,2}}[a-h]?[1-8]?(?:{_DASH}|[x:\u00d7])?[a-h][1-8]"  # up to two letters: pieces of any language
    rf"|[O0o]{_DASH}[O0o])"
)
_NULL_MOVE = r"(?:--|Z0|0000|)"
_BESIDE = r"[0-9A-Za-z/*\u00bd\u2010-\u2013\u2212-]"  # beside an apparent result, it shows that it is not a result

#: The start of movetext: a variation or glyph, a result, a move with or without its number, or a number alone. A word
#: with two slashes is a FEN.
_START = re.compile(
    rf"(?P<aside>\((?=[{_S}(]*(?:\{{|[0-9]{{1,4}}[{_S}.\u2026]*(?:{_MOVE}|{_NULL_MOVE})|{_MOVE}))|\$[0-9]+)"
    rf"|(?P<result>{_RESULT}(?!{_BESIDE}))"
    rf"|(?!(?:[0-9]{{1,4}}\.?[{_S}]+)?[^{_S}/]*/[^{_S}/]*/)"
    rf"(?:(?P<number>[0-9]{{1,4}})(?P<dots>[{_S}.\u2026]*)(?:{_MOVE}|{_NULL_MOVE})|{_MOVE}"
    rf"|(?P<alone>[0-9]{{1,4}})(?P<after>[{_S}]*[.\u2026][{_S}.\u2026]*)(?:$|[{{;$(]))"
)
_FIRST_MOVE = re.compile(rf"[{_S}]*1[{_S}]*\.[{_S}]*(?![{_S}.\u2026])")

#: Marks in movetext that may begin something other than moves.
_MARK = re.compile(rf"[\[{{;()]|{_RESULT}")
_WORD_END = re.compile(_BESIDE)

#: A tag up to its value; a tag whose value begins in a later line; a tag without quotation marks. Names should be words
#: without blanks, but some programs write names of several words.
_IN_NAME = rf"[^{_S}{_QUOTES}\\\[\]{{}}();]"
_NAME = rf"[A-Za-z0-9_\u00c0-\uffdc]{_IN_NAME}*(?:[{_S}]+{_IN_NAME}+){{0,4}}"
_OPEN = re.compile(rf"\[[{_S}]*({_NAME})[{_S}]*[{_QUOTES}]")
_HALF_OPEN = re.compile(rf"\[[{_S}]*(?:{_NAME}[{_S}]*)?$")
_BARE = re.compile(
    rf"\[[{_S}]*([A-Za-z0-9_]+)(?:[{_S}:=]+([^{_S}:={_QUOTES}\[\]][^{_QUOTES}\[\]]*)?)?\](?=[{_S}]*(?:$|\[))"
)

#: The end of a value, or the possible start of the next tag. An escaped character is neither.
_VALUE_END = re.compile(rf"\\[\s\S]|[{_QUOTES}][{_S}]*\]|\[")

#: The end of a value without its quotation mark or bracket: before a tag, a first move or the end of the line.
_DAMAGED_END = re.compile(
    rf"[{_QUOTES}][{_S}]*\](?=[{_S}]*(?:$|\[|[0-9]+[{_S}]*\.))"
    rf"|[\]{_QUOTES}](?=[{_S}]*(?:$|\[|[0-9]+[{_S}]*\.))|$"
)
_ESCAPE = re.compile(r'\\(["\\])')

_SPACE = re.compile(rf"[{_S}`\x00\x1a]*")
_SPACES = re.compile(rf"[{_S}]+")
_WORD = re.compile(rf"[^{_S}]+")
_TEXT = re.compile(rf"[0-9]|{_LETTER}")
_A_LETTER = re.compile(_LETTER)
_FENCE = re.compile(rf"[{_S}>]*(?:(?:```+|~~~+)[{_S}]*(?:[A-Za-z]+[{_S}]*)?|\*[{_S}]*\*[{_S}]*\*[{_S}*]*)")
_QUOTED = re.compile(rf"(?:[{_S}]*>)+")

#: Shortcuts for plain text, which is most of it, in a fifth of the time: a tag that fills a line, a line that begins
#: with a move, and moves with closed comments up to a possible result. split.js has no shortcuts.
_PLAIN_TAG = re.compile(r'\[([A-Za-z0-9_]+) "([^"\\\[\u201c-\u201e]*)"\]')
_PLAIN_LINE = re.compile(r"[0-9A-Za-z]")
_PLAIN_MOVES = re.compile(rf"(?:[^\[{{;()*\u00bd01]++|\{{[^}}]*+\}}|[01](?!{_DASH}[01]|/2))*+")

#: Most lines of one tag, and most characters that an error quotes.
_TAG_LINES, _MOST_QUOTED = 4, 40

#: Tags with a meaning for movemask, by their names in lower case. Case does not matter.
_KNOWN = {
    name.lower(): name
    for name in (
        *("Event", "Site", "Date", "Round", "White", "Black", "Result"),
        *("WhiteElo", "BlackElo", "SetUp", "FEN", "Variant", "ECO", "Opening", "UTCDate"),
    )
}


@dataclass(frozen=True, slots=True)
class GameText:
    """A game, or text outside games, as it stands in a text.

    role : `game`; `outside` for text before or between games; `trailing` for text after the last game
    line : number of its first line, from 1
    text : all of it as written, with LF as the end of lines
    tags : values by name, without escapes; the last value if a name is repeated
    movetext : comments and moves, with a line for each line of the text from `movetext_line` on. Other lines, such as
        escapes and fences, are empty
    moves_at : offset in `text` of the first comment or move after the tags
    unread : line and text of the first word that is neither tag nor move and is outside the movetext
    unclosed : beginning of a brace comment that continues to the end of the whole text
    """

    role: Literal["game", "outside", "trailing"]
    line: int
    text: str
    tags: dict[str, str]
    movetext: str
    movetext_line: int
    moves_at: int
    unread: tuple[int, str] | None
    unclosed: str | None


def split(lines: Iterable[str], longest: int | None = LONGEST) -> Iterator[GameText]:
    """The games of a text in order, and the text outside them.

    `lines` may be a file or any other source of lines. Raises LimitExceeded for a game of more than `longest`
    characters.
    """
    splitter = _Splitter(lines, longest)
    while splitter.read():
        while splitter.found:
            yield splitter.found.popleft()
    yield from splitter.found


def begins_with_tag(line: str) -> bool:
    """Whether a line begins with a tag, as a PGN does."""
    return _OPEN.match(line, _end(_SPACE, line, 0)) is not None


def escaped(value: str) -> str:
    """A tag's value, escaped to stand between quotation marks."""
    return value.replace("\\", "\\\\").replace('"', '\\"')


@dataclass(slots=True)
class _Piece:
    """A game, or text outside games, while it is read."""

    line: int = 0
    raw: list[str] = field(default_factory=list)
    size: int = 0
    tags: dict[str, str] = field(default_factory=dict)
    moves: list[list[str]] = field(default_factory=list)  # the parts of each line
    moves_line: int = 0
    moves_at: int | None = None
    unread: tuple[int, str] | None = None
    begun: bool = False  # its movetext has a move, a result or a glyph
    from_one: bool = False  # its first move has number 1
    ended: int = 0  # line of its result
    blank: bool = False  # an empty line has followed the moves or, without moves, the tags

    def add(self, number: int, text: str) -> None:
        """Adds a part of a line to the movetext."""
        if not self.moves:
            self.moves_line = number
        self.line = self.line or number
        self.moves.extend([] for _ in range(number - self.moves_line + 1 - len(self.moves)))
        self.moves[number - self.moves_line].append(text)

    def take(self, other: _Piece) -> None:
        """Appends the piece that was read after this one."""
        for index, parts in enumerate(other.moves):
            for text in parts:
                self.add(other.moves_line + index, text)
        self.raw += other.raw
        self.size += other.size
        self.unread = self.unread or other.unread


class _Splitter:
    """Reads a text line by line. Finished pieces are in `found`."""

    def __init__(self, lines: Iterable[str], longest: int | None) -> None:
        self.found: deque[GameText] = deque()
        self._lines = _physical(lines)
        self._ahead: deque[str] = deque()  # lines looked at, but not yet read
        self._longest = longest
        self._number = 0
        self._here = _Piece()
        self._held: _Piece | None = None  # the game before `_here`, while `_here` may still turn out to continue it
        self._depth = 0  # of variations
        self._comment = ""  # beginning of the open brace comment
        self._quoted = False  # whether that comment began in a quoted line
        self._line = self._raw = ""  # the current line without quotation marks, and as written; both have one length
        self._from = 0  # start of `_here` in the line
        self._end = ""  # of the line: LF, or empty at the end of the text

    def read(self) -> bool:
        """Reads a line, and the further lines of a tag in it. False at the end of the text."""
        line = self._ahead.popleft() if self._ahead else next(self._lines, None)
        if line is None:
            self._finish(self._held)
            self._finish(self._here, last=True)
            return False
        self._number += 1
        self._raw = line.removesuffix("\n")
        self._line, self._from, self._end = self._raw, 0, line[len(self._raw) :]
        if self._comment:
            self._line = _unquoted(self._raw) if self._quoted else self._raw
            self._scan()
        elif plain := _PLAIN_TAG.fullmatch(self._raw):
            self._begin_tag(0, self._number, plain[1], plain[2])
        elif _PLAIN_LINE.match(self._raw):
            self._scan()
        elif not self._raw.startswith("%") and not _FENCE.fullmatch(self._raw):
            self._line = _unquoted(self._raw)
            if _SPACE.fullmatch(self._line):
                self._here.blank = self._here.begun or bool(self._here.tags)
            else:
                self._scan()
        self._keep(self._raw[self._from :] + self._end)
        return True

    def _keep(self, text: str) -> None:
        here = self._here
        here.raw.append(text)
        here.size += len(text)
        if self._longest is not None and here.size > self._longest:
            raise LimitExceeded(f"pgn: line {self._number}: a game of more than {self._longest >> 20} MiB")

    def _scan(self) -> None:
        at = 0
        counted = self._running and self._here.from_one and not (self._comment or self._depth)
        if counted and _FIRST_MOVE.match(self._line):  # a list with a game per line
            self._next_piece(0)
            self._here.begun = self._here.from_one = True
        while at < len(self._line):
            at = self._token(at)

    @property
    def _running(self) -> bool:
        """Whether a move may follow without a decision about a new game."""
        here = self._here
        return here.begun and not here.blank and (not here.ended or self._depth > 0)

    def _token(self, at: int) -> int:
        """Reads a token, or plain movetext up to the next mark. Returns its end."""
        line, running = self._line, self._running
        if self._comment:
            end = line.find("}", at)
            if end >= 0:
                self._comment = ""
            return self._add(at, len(line) if end < 0 else end + 1)
        match = None
        if running:
            if not self._depth:
                at = self._add(at, _end(_PLAIN_MOVES, line, at))
            match = _MARK.search(line, at)
            self._add(at, match.start() if match else len(line))
            if not match:
                return len(line)
            at = match.start()
        else:
            end = _end(_SPACE, line, at)
            if self._here.begun and not self._here.blank:
                self._add(at, end)
            at = end
            if at == len(line):
                return at
        mark = line[at]
        if mark == "[" and (end := self._tag(at, running)):
            return end
        if mark in "{;":
            if self._here.begun and self._here.blank:
                self._next_piece(at, hold=True)
            if mark == ";":
                return self._add(at, len(line))
            self._comment, self._quoted = line[at : at + _MOST_QUOTED].rstrip(_S), self._line != self._raw
            return self._add(at, at + 1)
        if match is None:
            return self._begin(at)
        if mark in "()":
            self._depth = self._depth + 1 if mark == "(" else max(0, self._depth - 1)
        elif mark != "[" and not self._depth and self._stands_alone(match):
            self._here.ended = self._number
        return self._add(at, match.end())

    def _add(self, at: int, end: int) -> int:
        """Adds a part of the line to the movetext. Returns its end."""
        if end > at:
            self._mark(at)
            self._here.add(self._number, self._line[at:end])
        return end

    def _mark(self, at: int) -> None:
        """Records where the text after the tags begins, if this is its first place."""
        here = self._here
        here.line = here.line or self._number
        here.moves_at = here.size + at - self._from if here.moves_at is None else here.moves_at

    def _stands_alone(self, result: re.Match[str]) -> bool:
        begin, end = result.span()
        before, after = self._line[max(0, begin - 1) : begin], self._line[end : end + 1]
        if result[0] == "*":
            return "*" not in (before, after)
        return not (_WORD_END.match(before) or _WORD_END.match(after))

    def _begin(self, at: int) -> int:
        """Reads a move, or else text, where movetext has not begun or may have ended."""
        match = _START.match(self._line, at)
        if match is None:
            return self._outside(at)
        before = self._held or (self._here if self._here.begun else None)
        if before is not None and self._continues(before, match):
            if self._held is not None:
                self._held.take(self._here)
                self._here, self._held = self._held, None
            before.ended = before.ended if match["aside"] else 0
        else:
            if self._here.begun or (self._here.unread and not self._here.tags):
                self._next_piece(at)
            self._finish(self._held)
            self._held, self._depth = None, 0
        here = self._here
        here.blank = False
        if not here.begun:
            here.begun, here.from_one = True, (match["number"] or match["alone"]) == "1" and _dots(match) < 2
        if match["aside"]:
            self._depth += match[0] == "("
            return self._add(at, match.end())
        return at

    def _continues(self, game: _Piece, match: re.Match[str]) -> bool:
        """Whether a token after a game's result, or after an empty line, still belongs to the game."""
        if match["aside"]:
            return True
        if (number := match["number"] or match["alone"]) or match["result"]:
            if number and int(number) <= 1 and _dots(match) < 2:
                return False
            return not (game.ended and game.blank)
        return game.ended == self._number if game.ended else bool(game.tags) or self._depth > 0

    def _outside(self, at: int) -> int:
        """Reads text that is neither tag nor move, up to the next tag or the end of the line."""
        line, end = self._line, at
        while (end := line.find("[", end + 1)) >= 0 and not _OPEN.match(line, end):
            pass
        end = len(line) if end < 0 else end
        if _TEXT.search(line, at, end):
            if self._here.begun:
                self._next_piece(at, hold=True)
            here = self._here
            words = [match[0] for match in _WORD.finditer(line, at, end)]
            word = next(filter(_A_LETTER.search, words), words[0])
            here.unread = here.unread or (self._number, word[:_MOST_QUOTED])
            self._mark(at)
        return end

    def _tag(self, at: int, running: bool) -> int:
        """Reads a tag. Returns its end, or 0 if there is no tag."""
        line, number = self._line, self._number
        match = _OPEN.match(line, at)
        bare = None if match or running else _BARE.match(line, at)
        if bare and (bare[1].lower() in _KNOWN or (self._here.tags and not self._here.begun)):
            self._begin_tag(at, number, bare[1], (bare[2] or "").strip(_S))
            return bare.end()
        if match is None and not _HALF_OPEN.match(line, at):
            return 0
        name, begin, end, following = "", 0, None, len(line)
        if match is not None:
            name, begin = match[1], match.end()
            end, following = _value_end(line, begin)
        if end is None and following == len(line) and (spread := self._spread(at)):
            at, (name, value, following) = 0, spread
        elif match is None:
            return 0
        elif end is None:
            damaged = _DAMAGED_END.search(line, begin, following)
            assert damaged is not None  # the end of the line matches
            value, following = line[begin : damaged.start()].strip(_S), damaged.end()
        else:
            value = line[begin:end]
        self._begin_tag(at, number, _SPACES.sub(" ", name), _ESCAPE.sub(r"\1", value))
        return following

    def _spread(self, at: int) -> tuple[str, str, int] | None:
        """Name, value and end of a tag that continues in the next lines; None if there is none.

        If there is one, the lines are joined, and the current line begins with the tag.
        """
        line, raw = self._line[at:], self._raw[at:]
        value_closed = _OPEN.match(line) is not None and line.rstrip(_S)[-1] in _QUOTES
        for count in range(1, _TAG_LINES):
            if len(self._ahead) < count:
                if (unseen := next(self._lines, None)) is None:
                    return None
                self._ahead.append(unseen)
            following = self._ahead[count - 1]
            written = following.removesuffix("\n")
            text = _unquoted(written)
            start = _end(_SPACE, text, 0)
            if start == len(text) or text[0] == "%" or text[start] in "[{;" or _START.match(text, start):
                return None
            if count == 1 and value_closed and text[start] != "]":
                return None
            line, raw = f"{line}\n{text}", f"{raw}\n{written}"
            if match := _OPEN.match(line):
                end, following_tag = _value_end(line, match.end())
                if end is not None:
                    self._keep(self._raw[self._from : at])
                    self._line, self._raw, self._from = line, raw, 0
                    self._end = following[len(written) :]
                    self._number += count
                    for _ in range(count):
                        self._ahead.popleft()
                    return match[1], _SPACES.sub(" ", line[match.end() : end]), following_tag
        return None

    def _begin_tag(self, at: int, number: int, name: str, value: str) -> None:
        """Adds a tag, which begins in line `number`, to the current game or to the next."""
        here = self._here
        known = _KNOWN.get(name.rstrip(" :=").lower(), name)
        again = known in here.tags and (here.blank or (len(here.tags) > 1 and known == next(iter(here.tags))))
        if here.begun or again or (here.unread and not here.tags):
            self._next_piece(at)
        self._finish(self._held)
        self._held, here = None, self._here
        here.blank, here.moves_at = False, None
        here.line = here.line or number
        here.tags[name if known in here.tags else known] = value
        self._depth = 0

    def _next_piece(self, at: int, *, hold: bool = False) -> None:
        """Ends the current piece at a place in the line. With `hold`, the next piece may turn out to continue it."""
        self._keep(self._raw[self._from : at])
        self._from = at
        if hold:
            self._held = self._here
        else:
            self._finish(self._held)
            self._held = None
            self._finish(self._here)
            self._depth = 0
        self._here = _Piece()

    def _finish(self, piece: _Piece | None, *, last: bool = False) -> None:
        if piece is None or not (piece.tags or piece.begun or piece.unread or piece.moves):
            return
        game = piece.tags or piece.begun
        text = "".join(piece.raw)
        self.found.append(
            GameText(
                role="game" if game else "trailing" if last else "outside",
                line=piece.line,
                text=text,
                tags=piece.tags,
                movetext="\n".join(map("".join, piece.moves)),
                movetext_line=piece.moves_line,
                moves_at=len(text) if piece.moves_at is None else piece.moves_at,
                unread=piece.unread,
                unclosed=self._comment if last and self._comment else None,
            )
        )


def _physical(lines: Iterable[str]) -> Iterator[str]:
    """The lines, each ended by LF instead of CR or CRLF."""
    for line in lines:
        if "\r" in line:
            *parts, last = line.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            yield from (f"{part}\n" for part in parts)
            if last:
                yield last
        else:
            yield line


def _unquoted(line: str) -> str:
    """A line with blanks in place of the marks of a quoted mail."""
    match = _QUOTED.match(line)
    return line if match is None else " " * match.end() + line[match.end() :]


def _value_end(line: str, at: int) -> tuple[int | None, int]:
    """The end of a tag's value and of the tag. Without an end: None, and the next tag or the end of the line."""
    for match in _VALUE_END.finditer(line, at):
        if match[0] == "[":
            if (tag := _OPEN.match(line, match.start())) and not _VALUE_END.match(line, tag.end() - 1):
                return None, match.start()
        elif match[0][0] != "\\":
            return match.start(), match.end()
    return None, len(line)


def _dots(match: re.Match[str]) -> int:
    """Number of dots after a move's number; an ellipsis counts as three."""
    dots = match["dots"] or match["after"] or ""
    return dots.count(".") + 3 * dots.count("\u2026")


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """The end of a pattern's match at a place; the place itself without a match."""
    match = pattern.match(text, at)
    return at if match is None else match.end()
