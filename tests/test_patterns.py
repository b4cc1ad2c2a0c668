"""Time that regular expressions take on the worst texts.

Every text is the worst of its kind, and what reads it may take this many seconds of CPU time, which a busy machine does
not stretch. What is quadratic takes minutes or more.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from fastapi.testclient import TestClient

from movemask.board import fen, moves, position
from movemask.board.split import split
from movemask.errors import InvalidParameter, UnsupportedVariant
from movemask.games import annotation
from movemask.server import logs, problems
from movemask.server.api.requests import MAX_PGN
from movemask.server.edge import keys, middleware
from movemask.times import time_of
from tests.parts import part_of

SECONDS = 5.0
MILLION = 1_000_000


def full(text: str, size: int = MILLION) -> str:
    """A text again and again."""
    return (text * (size // len(text) + 1))[:size]


def since(text: str) -> None:
    with suppress(InvalidParameter):
        time_of("since", text, 0.0)


def variant_in(address: str) -> None:
    with suppress(UnsupportedVariant):
        fen.fen_in(address + "8/8/8/8/8/8/8/8 w - -")


@contextmanager
def bounded() -> Iterator[None]:
    started = time.process_time()
    yield
    assert time.process_time() - started < SECONDS


def split_up(text: str) -> int:
    return sum(1 for _ in split(io.StringIO(text)))


def most(text: str) -> str:
    """A text again and again, as long as splitting it takes a tenth of a second."""
    return full(text, 60_000)


#: Each pattern as it is used, and the texts for which it has most to do.
CLIENTS: dict[str, tuple[Callable[[str], object], list[str]]] = {
    "server/api/routing.py names of operations": (lambda text: re.sub("ies$", "y", text), [full("ies")]),
    "client/responses.py Retry-After": (lambda text: re.fullmatch(r"[0-9]{1,9}", text), [full("9")]),
    "client/connection.py keys": (lambda text: re.fullmatch(r"[!-~]*", text), [full("k"), full("k ")]),
    "client/connection.py passwords": (
        lambda text: re.sub(r"//[^/@]*@", "//", text),
        [full("/"), full("//a"), "//" + full("a")],
    ),
    "board/fen.py PLACEMENT": (
        fen.PLACEMENT.search,
        [full("p"), full("p/"), full("p/p/p/p/p/p/p/~"), full("pppppppp/"), full("-p/")],
    ),
    "board/fen.py _IN_TEXT": (
        fen.fen_in,
        [
            *(full(text) for text in ("p", "p/", "8/8/8/8/8/8/8/8 ", "8/8/8/8/8/8/8/8 w ", "%2F", "%", "+")),
            *("8/8/8/8/8/8/8/8" + full(" "), "8/8/8/8/8/8/8/8 w " + full("-"), "8/8/8/8/8/8/8/8 w - - " + full("1.")),
            "8/8/8/8/8/8/8/8 w - - " + full("1"),
        ],
    ),
    "board/fen.py _VARIANT": (
        variant_in,
        [full("/"), full("/analysis/"), "/editor/" + full("p"), "?variant=" + full("p") + "x "],
    ),
    "board/fen.py _OPCODE": (fen._OPCODE.match, ["D" + full("1") + "x"]),
    "board/fen.py _COUNTER_OPERATION": (
        fen.read_fen,
        ["8/8/8/8/8/8/8/8 w - - bm " + full(text) for text in ('"', "hmvc ", "hmvc", "a")],
    ),
    "board/fen.py _MOVES": (
        fen.looks_like_moves,
        [
            full(" "),
            full("1"),
            "1" + full("."),
            "1." + full(" "),
            full("e2e4"),
            "e4" + full("+") + "x",
            "[" + full("a"),
            "[a" + full(" "),
        ],
    ),
    "board/moves.py _EN_PASSANT": (
        lambda text: moves._EN_PASSANT.sub("", text),
        [full("1"), full("1 e.p."), full("1e")],
    ),
    "board/moves.py _CAPITALS": (moves._CAPITALS.fullmatch, [full("E2")]),
    "board/position.py _AS_WRITTEN": (position._AS_WRITTEN.fullmatch, [full("p"), full("1p"), "p w - - " + full("1")]),
    "board/position.py _NUMBERED": (position._NUMBERED.match, [full("1"), full("1.")]),
    "games/annotation.py _OURS": (
        lambda text: annotation._joined(text, ""),
        [
            full(" "),
            full("\n"),
            full("movemask: "),
            full("movemask: x nats"),
            full("P "),
            "P " + full("1"),
            full("P 1 % (only"),
            full("P 1 % (1"),
            "P 1 % (" + full("1"),
            full("P 1 % (only)"),
            "P 1 % (only); trap: loses 1 points, made by 1 % at 1" + full(", 1 % at 1"),
        ],
    ),
    "games/annotation.py _REASON": (
        annotation._REASON.match,
        [full("{ movemask: pgn: "), "{ movemask: pgn: }" + full(" ") + "x"],
    ),
    "games/annotation.py _PLACE": (lambda text: annotation._PLACE.sub("", text), [full("line 1"), "line " + full("1")]),
    "board/split.py _TOKEN": (
        split_up,
        [
            *(
                most(text)
                for text in ('[A "', "[a b c d e f ", "[", "(", "\n", "1. ", "* ", ";\n", "Dear\n", '[A "x\n')
            ),
            *("[" + most("a"), "[a" + most(" "), "[A" + most(" ") + '"', "[a " + most("b "), "1." + most(".")),
            *("1. e4 " + most(text) for text in ("{}", "{", "1", "1-", "\n1. ...", "x ", "x ;\n")),
            *('[A "' + most("\\"), '[A "' + most('" '), '[A "' + most("["), '[A "\n' + most('b"\n')),
        ],
    ),
    "board/split.py _ESCAPED": (split_up, ['[A "' + most("\\\\") + '"]']),
    "board/split.py _UNREAD": (split_up, [most("1"), most("_."), most("é"), most("-[")]),
    "server/edge/keys.py _TOKEN": (keys._TOKEN.fullmatch, [full("a"), full("é")]),
    "server/edge/keys.py _NAME": (keys._NAME.fullmatch, [full("a")]),
    "server/edge/keys.py _LINE": (keys._LINE.fullmatch, [full("a"), full("a "), "a" + full(" ")]),
    "server/edge/middleware.py _CONTROL": (middleware._CONTROL.search, [full("/"), full("/a")]),
    "server/problems.py _NUMBER": (
        problems._NUMBER.fullmatch,
        [full(" "), full("1"), "1." + full("1"), " 1" + full(" ") + "x"],
    ),
    "server/problems.py names of errors": (lambda text: re.sub(r"\B(?=[A-Z])", "-", text), [full("A"), full("a")]),
    "server/problems.py _NAMED": (problems._NAMED.match, [full("a"), full("a."), "a[" + full("a"), full(".a")]),
    "times.py a number": (since, [full("1"), "1." + full("1") + "x"]),
    "times.py a duration": (since, [full("1") + "h"]),
    "times.py a zone": (since, ["T" + full(" "), "T" + full(" 00")]),
    "server/logs.py _SANE_ID": (lambda text: logs._SANE_ID.fullmatch(text.encode()), [full("a"), full("é")]),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_pattern_is_fast_on_worst_text(name: str) -> None:
    search, texts = CLIENTS[name]
    for text in texts:
        with bounded():
            search(text)


KNIGHTS = "1. Nf3 Nf6 2. Ng1 Ng8 " * 100


def filled(before: str, text: str, after: str = " e5 *") -> str:
    """The longest PGN that is taken."""
    return before + full(text, MAX_PGN - len(before) - len(after)) + after


GAMES = {
    "a comment of blank lines": filled("1. e4 {", "\n", "} e5 *"),
    "the beginnings of our comments": filled("1. e4 {", "movemask: ", "} e5 *"),
    "comments of blanks": filled("1. e4", " {" + " " * 9_999 + "}"),
    "short comments": filled("1. e4 ", "{four}"),
    "short comments, a line each": filled("1. e4 ", "{four}\n"),
    "evaluations without an end": filled("1. e4 {[%eval 0.1]", "[%eval #1", "} e5 *"),
    "a mate in many moves": filled("1. e4 {[%eval #", "1", "]} e5 *"),
    "variations without a move": filled(KNIGHTS, "()", " *"),
    "variations inside each other": filled(KNIGHTS, "(", " *"),
    "variations that cannot be played": filled(KNIGHTS, "(Ke3)", " *"),
    "glyphs": filled("1. e4 ", "$" + "1" * 4_299 + " "),
    "a glyph of 20 digits": "1. e4 $" + "9" * 20 + " *",
    "headers": filled("", '[A "b"]\n', "\n\n1. e4 *"),
    "a header of quotes": filled('[A "', '"] ', "\n\n1. e4 *"),
    "a header of blanks": filled("[A", " ", '"b"]\n\n1. e4 *'),
    "words that are no moves": filled("1. e4 ", "e"),
    "blanks": filled("1. e4 ", " "),
    "brackets": filled("", "["),
    "braces": filled("", "{"),
    "quotation marks": filled("", '"'),
    "tags in a line": filled("", '[A "b"] '),
    "tags over two lines": filled("", '[A\n"b"] '),
    "paragraphs": filled('[White "x"]\n\n', "e4\n\n"),
    "comments up to the line's end": filled("1. e4 ", ";}\n"),
    "results": filled("1. e4 ", "* "),
    "text": filled("", "word "),
}


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("form", part_of(["application/x-chess-pgn", "application/json", "tree"], 3))
def test_pgn_report_is_fast_on_worst_text(name: str, form: str, client: TestClient) -> None:
    include, accept = (["tree"], "application/json") if form == "tree" else ([], form)
    with bounded():
        answer = client.post("/v1/games", json={"pgn": GAMES[name], "include": include}, headers={"Accept": accept})
    assert answer.status_code in (200, 422), answer.text[:200]
