"""FENs as people copy them, in the API and in lists."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import chess
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from movemask.audit.read import Choice, Skipped, read, samples
from movemask.board.position import Position
from movemask.errors import MovemaskError
from tests.ground_truth import DATA, perft
from tests.server.asking import asked


@cache
def cases() -> tuple[dict[str, Any], ...]:
    """`fen` is the API's reading and `error` a part of its message.

    `line` is the reading of `audit`, `predict` and the page, if it differs; `line_error` a part of their message, and
    `is960` whether they read it as Chess960.
    """
    return tuple(json.loads(line) for line in (DATA / "field" / "fen-cases.jsonl").read_text().splitlines())


def names() -> list[str]:
    return [case["case"] for case in cases()]


@pytest.mark.parametrize("case", cases(), ids=names())
def test_fen_reads_or_names_fault(case: dict[str, Any], client: TestClient) -> None:
    asked_960 = case.get("chess960", False)
    body = {"fen": case["text"], "chess960": asked_960}
    if "error" in case:
        with pytest.raises(MovemaskError, match=re.escape(case["error"])):
            Position.read(case["text"], chess960=asked_960)
        answer = client.post("/v1/policy", json=body)
        assert answer.status_code == 422
        assert case["error"] in answer.json()["detail"]
        return
    position = Position.read(case["text"], chess960=asked_960)
    assert position.fen == case["fen"]
    assert position.chess960 == asked_960
    assert set(case.get("offers", ())) <= {move.uci() for move in position.board.legal_moves}
    assert asked(client, **body)["fen"] == case["fen"]


@pytest.mark.parametrize("case", [case for case in cases() if "line" in case or "line_error" in case])
def test_read_line(case: dict[str, Any]) -> None:
    if "line_error" in case:
        with pytest.raises(MovemaskError, match=re.escape(case["line_error"])):
            Position.read_line(case["text"])
        return
    position = Position.read_line(case["text"])
    assert (position.fen, position.chess960) == (case["line"], case.get("is960", False))


def test_audit_of_list_counts_bad_lines(tmp_path: Path) -> None:
    standard = [case for case in cases() if not case.get("chess960")]
    file = tmp_path / "positions.txt"
    file.write_text("".join(case["text"] + "\n" for case in standard), encoding="utf-8")
    skipped = Skipped()
    audited = [sample for chunk in read(0, str(file), "fen") for sample in samples(chunk, Choice(), skipped)]
    fens = {sample.item: sample.position.fen for sample in audited}
    expected = {number: case.get("line", case.get("fen")) for number, case in enumerate(standard, 1)}
    assert fens == {number: fen for number, fen in expected.items() if fen is not None}
    faulty = [f"{file}: line {number}: " for number, fen in expected.items() if fen is None]
    assert skipped.reasons["line that is not a position"] == len(faulty)
    assert all(example.startswith(line) for line, (_, example) in zip(faulty, skipped.examples, strict=False))


#: Ways in which a FEN comes along; each keeps the position.
WRAPPED = {
    "quotation marks": '"{}"',
    "backticks": "`{}`",
    "a number": "7. {}",
    "a bullet": "• {}",
    "a label": "fen = {}",
    "a semicolon": "{} ;",
    "an address": "https://lichess.org/analysis/standard/{}?color=black#3",
    "a parameter": "https://example.org/board?a=1&fen={}&b=2",
    "blanks": " \t{}\r\n",
    "a remark": "{} ; White to play",
    "a tag": '[FEN "{}"]',
}


@given(
    st.sampled_from([row.fen for row in perft("standard") if chess.Board(row.fen).is_valid()]),
    st.sampled_from(sorted(WRAPPED)),
    st.sampled_from([" ", "  ", "_", "%20", "+"]),
)
def test_wrapped_fen_is_the_same_position(fen: str, wrapped: str, blank: str) -> None:
    text = WRAPPED[wrapped].format(fen.replace(" ", blank))
    expected = Position.read(fen)
    assert Position.read_line(text).board == expected.board
