r"""Splits text into the games of a PGN: their tags, their comments and moves, and text outside games.

One pattern reads comments, tags and the rest. The rules:

- A game begins at a tag that follows movetext. Tags may repeat, and empty lines may stand anywhere. A tag without a
  value is skipped.
- Without tags, a game begins at `1.` at the start of a line, and at a move after a result, unless its number continues
  the game before.
- Text after a result is outside games. Elsewhere a word that is neither tag nor move is an error of its game.
- `0-0` is castling, or the result of a game that both lost: if the tag Result says so and it is the game's last word,
  or if the game has neither moves nor a FEN before it.
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

from movemask.board.moves import SIGNS
from movemask.errors import LimitExceeded

#: Most characters of a game; no real game reaches it. A whole game is in memory at once.
LONGEST = 1 << 24

_BLOCK = 1 << 14  # characters read at once
_LONGEST_TAG = 1 << 11  # a tag this close to the end of what was read may continue behind it
_MOST_QUOTED = 40  # characters of the text that an error quotes

_DASH = "[-\u2010-\u2013\u2212]"
_IN_NAME = r"[^\s\"\\\[\]{}();]"
_NAME = rf"[^\W_]{_IN_NAME}*+(?:[ \t\xa0]+{_IN_NAME}++){{0,4}}"  # some programs write names of several words
_VALUE = rf'(?:[^"\\\n\[]|\\[\s\S]|"(?!\s*\])|\n(?!\s*[\[\n])|\[(?!{_NAME}\s*"(?!\s*\])))*+'
_TOKEN = re.compile(
    rf"""(?P<gap>\s*+)(?:
    (?P<comment> \{{[^}}]*\}}? | ;[^\n]* | ^%[^\n]* )
  | (?P<tag> \[\s*{_NAME}\s*" (?: {_VALUE}"\s*\] | [^"\n\[\]]*"?\]? ) )  # with both quotation marks, or damaged
  | (?P<unquoted> \[\s*\w++[:=]?+(?:[^\S\n]++[^"\n\[\]]*+)?\](?=\s*(?:\[|$)) )
  | (?P<brackets> [()]++ )
  | (?P<result> \*+ | (?:1{_DASH}0|0{_DASH}1|1/2{_DASH}1/2|\xbd{_DASH}\xbd)(?![\w/\-]) )
  | (?P<first> 1\s*\.(?![\s.\u2026]*[.\u2026]) )
  | (?P<number> \d{{1,4}}\s*[.\u2026][\s.\u2026]* )
  | (?P<word> \[ | [^\s{{;()\[*]+ )
  | (?P<end> \Z )
    )""",
    re.VERBOSE | re.MULTILINE,
)
_ESCAPED = re.compile(r'\\(["\\])')

#: Text that python-chess skips without an error: letters of another language, figurines, control characters. It takes
#: the squares of such a move for a pawn's move. The marks of a new move, of en passant and of a diagram are allowed.
_UNREAD = re.compile(r"[^\W\d_]|[\u2654-\u265f\x00-\x08\x0e-\x1f]")
_MARKS = {"N", "TN", "ep", "e.p."}
_BOTH_LOST = "0-0"
_PADDING = "\x00\x1a-"  # zeros that fill a block, DOS's end of file, and rules between games

#: Tags with a meaning for movemask, by their names in lower case. Case does not matter.
_KNOWN = {
    name.lower(): name
    for name in (
        *("Event", "Site", "Date", "Round", "White", "Black", "Result"),
        *("WhiteElo", "BlackElo", "SetUp", "FEN", "Variant", "ECO", "Opening", "UTCDate"),
    )
}

#: Tags of which a game has one value. Two values show that the first header's moves are missing.
_OF_ONE_VALUE = {"Event", "Site", "Round", "White", "Black", "FEN"}


@dataclass(slots=True)
class GameText:
    """A game, or text outside games, as it stands in a text. It is read token by token.

    role : `game`; `outside` for text before or between games; `trailing` for text after the last game
    line : number of its first line, from 1
    text : all of it as written, with LF as the end of lines
    tags : values by name, without escapes; the last value if a name is repeated
    movetext : words, and comments in braces on lines of their own, as python-chess reads them: it copies the rest of a
        line for each comment, and takes a tag for a tag only at the start of a line
    moves_at : offset in `text` of the first comment or move after the tags
    fault : what makes the game an error; or the first word outside games
    size : characters
    started : whether it has a move or a result
    over : whether a result was the last of them
    depth : number of variations that are open
    """

    role: Literal["game", "outside", "trailing"] = "outside"
    line: int = 0
    text: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    movetext: list[str] = field(default_factory=list)
    moves_at: int = -1
    fault: str | None = None
    size: int = 0
    started: bool = False
    over: bool = False
    depth: int = 0
    _forfeit: int | None = None  # the place in `movetext` of a `0-0` that is the last word so far
    _texts: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Adds text as it stands there."""
        self._texts.append(text)
        self.size += len(text)

    def ends_before(self, kind: str, gap: str) -> bool:
        """Returns whether a token begins the next part."""
        if self.role == "outside" and self.fault:
            return kind == "tag" or (kind == "first" and "\n" in gap)
        if kind == "first":
            return self.over or (self.started and not self.depth and "\n" in gap)
        if kind == "comment":
            return self.over and gap.count("\n") > 1
        return (kind == "tag" and self.started) or (kind in ("move", "text") and self.over)

    def take(self, kind: str, text: str, line: int) -> None:
        """Adds a token, which stands on this line."""
        self.line = self.line or line
        if kind == "tag":
            self.role, self.moves_at = "game", -1
            self._take_tag(text, line)
        elif text and self.moves_at < 0:
            self.moves_at = self.size
        self.add(text)
        if kind == "comment":
            self._take_comment(text)
        elif text and kind != "tag" and (self.role == "game" or not self.fault):
            self._take_movetext(kind, text, line)

    def _take_tag(self, text: str, line: int) -> None:
        name, _, value = text.strip("[]").partition('"' if '"' in text else " ")
        if '"' not in text and not value.strip():
            return
        name = " ".join(name.split())
        name = _KNOWN.get(name.rstrip(" :=").lower(), name)
        value = _ESCAPED.sub(r"\1", value.rstrip().removesuffix('"'))
        value = " ".join(value.split()) if "\n" in value else value
        before = self.tags.get(name, value)
        if name in _OF_ONE_VALUE and before != value:
            values = f"{before[:_MOST_QUOTED]!r} and {value[:_MOST_QUOTED]!r}"
            self._fail(f"line {line}: a second header without moves before it: {name} is {values}")
        self.tags[name] = value

    def _take_comment(self, text: str) -> None:
        if text[0] == "{" and text[-1] != "}":
            self.role = "game"
            begin = text.partition("\n")[0][:_MOST_QUOTED].rstrip()
            self._fail(f"the comment {begin!r} is not closed, and takes all that follows")
        elif text[0] == "{":
            self.movetext.append(f"\n {text}")
        elif text[0] == ";" and (words := text[1:].strip()):
            self.movetext.append(f"\n {{ {words.replace('}', ')')} }}")

    def _take_movetext(self, kind: str, text: str, line: int) -> None:
        zeros = kind == "move" and text.translate(SIGNS) == _BOTH_LOST
        if zeros and not self.started and "FEN" not in self.tags:
            self.started = self.over = self.role == "game"
            return
        begins = kind in ("move", "first") or (
            kind == "number" and text.rstrip(" \n.\u2026") in ("0", "1")
        )
        if kind == "text" or (kind == "number" and self.role == "outside" and not begins):
            self._fail(
                f"line {line}: {text[:_MOST_QUOTED].rstrip()!r} is neither a tag nor a move in SAN"
            )
        elif self.role == "outside" and begins:
            self.role = "game"
        if self.role == "outside" or (self.over and kind != "number"):
            return  # signs, brackets and results mean nothing before a game and after its result
        self.started = self.started or kind in ("move", "first", "number", "result")
        self.over = kind == "result" and not self.depth
        self.depth = max(0, self.depth + text.count("(") - text.count(")"))
        self._forfeit = len(self.movetext) if zeros and not self.depth else None
        if kind not in ("first", "number"):
            self.movetext.append(f" {text.translate(SIGNS)}")

    def _fail(self, why: str) -> None:
        self.fault = self.fault or why

    def ended(self, role: Literal["outside", "trailing"] = "outside") -> GameText:
        """Returns the part, complete; `role` is that of text outside games."""
        self.role = role if self.role == "outside" else self.role
        if self._forfeit is not None and self.tags.get("Result", "").translate(SIGNS) == _BOTH_LOST:
            del self.movetext[self._forfeit]
        self.text = "".join(self._texts)
        self._texts.clear()
        self.moves_at = self.moves_at if self.moves_at >= 0 else self.size
        return self


def split(lines: Iterable[str], longest: int | None = LONGEST) -> Iterator[GameText]:
    """Yields the games of a text in order, and the text outside them.

    `lines` may be a file or any other source of lines. Raises LimitExceeded for a game of more than
    `longest` characters.
    """
    part, line = GameText(), 1
    for token in _tokens(lines, longest):
        gap = token["gap"]
        text = token[0][token.end("gap") - token.start() :]
        kind = token.lastgroup or ""
        if kind == "word":
            kind = kind_of(text)
        elif kind == "unquoted":
            kind = "text" if part.started else "tag"
        part.add(gap)
        line += gap.count("\n")
        if part.ends_before(kind, gap):
            yield part.ended()
            part = GameText()
        part.take(kind, text, line)
        line += text.count("\n")
        if longest is not None and part.size > longest:
            raise LimitExceeded(f"pgn: line {line}: a game of more than {longest >> 20} MiB")
    if part.role == "game" or part.moves_at >= 0:
        yield part.ended("trailing")


def begins_with_tag(line: str) -> bool:
    """Returns whether a line begins with a tag, as a PGN does."""
    match = _TOKEN.match(line.lstrip("\ufeff"))
    return match is not None and match.lastgroup == "tag"


def escaped(value: str) -> str:
    """Returns a tag's value, escaped to stand between quotation marks."""
    return value.replace("\\", "\\\\").replace('"', '\\"')


@lru_cache(1 << 14)
def kind_of(word: str) -> Literal["move", "mark", "text"]:
    """Returns what a word of movetext is.

    A `mark` means nothing alone, such as `+-`; `text` is neither move nor mark.
    """
    word = word.translate(SIGNS)
    rest = chess.pgn.MOVETEXT_REGEX.sub("", word).lstrip("0123456789.")
    if not word.strip(_PADDING) or word == "D":
        return "mark"
    if rest not in _MARKS and _UNREAD.search(rest):
        return "text"
    return "move" if any(match[1] for match in chess.pgn.MOVETEXT_REGEX.finditer(word)) else "mark"


def _tokens(lines: Iterable[str], longest: int | None) -> Iterator[re.Match[str]]:
    """Yields the tokens of a text, which is read in blocks.

    A token that may go on is tried again with twice the text.
    """
    lines, text, at, complete = iter(lines), "", 0, False
    while True:
        while (token := _TOKEN.match(text, at)) and (
            complete or token.end() + _LONGEST_TAG < len(text)
        ):
            yield token
            at = token.end()
            if token["end"] is not None:
                return
        # with the character before, which may end a line
        text = text[max(at - 1, 0) :]
        at = min(at, 1)
        if longest is not None and len(text) > longest:
            raise LimitExceeded(f"pgn: a game of more than {longest >> 20} MiB")
        left = max(len(text), min(_BLOCK, longest or _BLOCK))
        block: list[str] = []
        while left > 0 and not complete:
            block.append(next(lines, ""))
            complete, left = not block[-1], left - len(block[-1])
        text += "".join(block).replace("\r\n", "\n").replace("\r", "\n")
