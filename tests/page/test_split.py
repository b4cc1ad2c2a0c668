"""What a reader of games in the page would lose: the games that the service would find in the same file."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import movemask
from movemask.board.pgn import rating_of
from movemask.board.split import escaped
from movemask.board.textfile import TextSource
from tests.field import FIELD
from tests.page.visits import Visit

NODE = shutil.which("node")
SPLIT = Path(movemask.__file__).parent / "page/split.js"

#: Pieces that mutations put into games.
PIECES = [
    '[White "Ann"]',
    '[white "q"]',
    "[Round 5]",
    "[Foo bar]",
    "[D]",
    '[x "a\\"b"]',
    '[Site "C:\\"]',
    '[A "b',
    "“",
    "”",
]
PIECES += [
    *'[]"{}();%>*`\\ \t.…',
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\ufeff",
    "\xa0",
    "\x00",
    "\x1a",
    "\x85",
    "\u2028",
    "\U0001f600",
]
PIECES += [
    "1. e4 e5",
    "2. Nf3",
    "1...",
    "1.",
    "d4",
    "O-O",
    "--",
    "---",
    "♘f3",
    "Sf3",
    "½-½",
    "1-0",
    "0-1",
    "1/2-1/2",
    "$5",
]
PIECES += [
    "hello",
    "(c) 2024",
    "```",
    "```pgn",
    "(1. d4)",
    "{a}",
    "[White\n",
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w",
]


@pytest.fixture
def page(tmp_path: Path) -> Callable[[str, Any], Any]:
    """Runs the body of a JavaScript function of `input`, which may use all that split.js exports as `page`."""
    if NODE is None:
        pytest.skip("Node.js is not installed (Debian: apt-get install nodejs)")
    shutil.copy(SPLIT, tmp_path / "split.mjs")

    def run(body: str, value: Any) -> Any:
        (tmp_path / "input.json").write_text(json.dumps(value))
        (tmp_path / "run.mjs").write_text(
            "import { readFileSync } from 'node:fs';\nimport * as page from './split.mjs';\n"
            f"const does = async (input) => {{ {body} }};\n"
            "const value = JSON.parse(readFileSync(new URL('input.json', import.meta.url)));\n"
            "console.log(JSON.stringify(await does(value)));\n"
        )
        done = subprocess.run([NODE, tmp_path / "run.mjs"], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_the_page_reads_the_bytes_of_a_file_as_the_service_does(visit: Visit) -> None:
    """In a browser, since Node.js 20 takes Windows-1252 for Latin-1."""
    read = """async (files) => {
        const { textOf } = await import(document.querySelector("script[src]").src.replace("main.js", "split.js"));
        const texts = await Promise.all(files.map((bytes) => textOf(new File([new Uint8Array(bytes)], "x"))));
        return texts.map((text) => text.replace(/\\r\\n?/g, "\\n"));
    }"""
    files = sorted(FIELD.glob("pgn-*.pgn"))
    for path, text in zip(files, visit.open().evaluate(read, [list(path.read_bytes()) for path in files]), strict=True):
        with TextSource(str(path)) as source:
            assert text == "".join(source), path


def test_the_page_names_files_that_have_to_be_unpacked(page: Callable[[str, Any], Any]) -> None:
    magic = {
        "zip": b"PK\x03\x04",
        "bzip2": b"BZh91AY&SY",
        "zstandard": b"\x28\xb5\x2f\xfd",
        "7z": b"7z\xbc\xaf\x27\x1c",
    }
    read = """const file = (bytes) => ({ name: "games.pgn", arrayBuffer: async () => new Uint8Array(bytes).buffer });
        return Promise.all(input.map((bytes) => page.textOf(file(bytes)).catch((error) => error.message)))"""
    for name, message in zip(magic, page(read, [list(data) for data in magic.values()]), strict=True):
        assert message.startswith("games.pgn is ")
        assert name in message


def test_the_page_reads_ratings_and_writes_tag_values_as_the_service_does(page: Callable[[str, Any], Any]) -> None:
    values = [
        "0",
        "5",
        "99",
        "100",
        "1500",
        "4000",
        "4001",
        "15000",
        "",
        "?",
        "-",
        "1500?",
        " 1500",
        "1e3",
        "0x5",
        "\uff11\uff15\uff10\uff10",
    ]
    found = page("return input.map((value) => page.ratingOf(value) ?? null)", values)
    assert found == [rating_of(value) for value in values]
    names = ['A \\ B "C"', "plain", ""]
    assert page("return input.map(page.escaped)", names) == [escaped(name) for name in names]


def test_a_long_text_of_any_marks_is_split_in_linear_time(page: Callable[[str, Any], Any]) -> None:
    """Each would take hours if a mark were looked at once for each mark before it."""
    marks = [
        "[",
        "{",
        '"',
        "(",
        ";",
        ">",
        "[A ",
        '[A "',
        '[A "b" ',
        '[A "b"] ',
        '[A\n"b"] ',
        "1. ",
        "1-0 ",
        "{}",
        "`",
        " ",
        "\n",
        "$1 ",
    ]
    texts = [
        before + mark * (300_000 // len(mark))
        for mark in marks
        for before in ("", "1. e4 ", '[White "x"]\n\n1. e4 1-0 ')
    ]
    assert all(page("return input.map((text) => [...page.split(text)].length >= 0)", texts))
