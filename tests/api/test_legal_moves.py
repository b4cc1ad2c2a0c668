"""What a user would lose: legal moves by python-chess unless the operator chose otherwise, and to be told by whom."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from movemask.board import legality
from movemask.board.boards import Boards
from movemask.settings import Settings
from tests.conftest import Serve
from tests.ground_truth import tricky

FENS = [fen for fen, _, flags in tricky() if not any(flag.startswith("python-chess") for flag in flags)]


def judged(client: TestClient) -> float:
    """How many answers were compared with python-chess."""
    lines = client.get("/metrics").text.splitlines()
    (line,) = [line for line in lines if line.startswith("movemask_judged_total ")]
    return float(line.split()[1])


def batch(client: TestClient, fens: list[str] = FENS) -> list[Any]:
    """The answers, but for how long they took."""
    results = client.post("/v1/policy/batch", json={"positions": [{"fen": fen} for fen in fens]}).json()["results"]
    for result in results:
        result.pop("timing", None)
    return list(results)


def test_by_default_they_are_python_chesss_own_and_nothing_is_compared(client: TestClient) -> None:
    assert Settings.read().rules == "python-chess"
    assert {answer["rules"] for answer in batch(client)} == {"python-chess"}
    assert judged(client) == 0


def test_every_answer_says_who_found_its_legal_moves(serve: Serve) -> None:
    for rules in ("python-chess", "vectorised"):
        client = serve(rules=rules)
        for path, body in [
            ("/v1/policy", {"moves": []}),
            ("/v1/policy", {"fen": "7k/6Q1/5K2/8/8/8/8/8 b - - 0 1"}),
            ("/v1/move", {"moves": []}),
            ("/v1/games", {"pgn": "1. e4 e5 *"}),
        ]:
            assert client.post(path, json=body).json()["rules"] == rules


def test_vectorised_rules_give_the_same_answers(serve: Serve, tmp_path: Path) -> None:
    plain, fast = serve(), serve(rules="vectorised", database_url=f"sqlite:///{tmp_path}/fast.db")
    for right, found in zip(batch(plain), batch(fast), strict=True):
        assert found == {**right, "rules": "vectorised"}
    right, found = (client.get("/v1/leakage").json()["models"]["fake"]["kinds"] for client in (plain, fast))
    assert set(found) == set(right)
    for kind, figures in right.items():
        assert found[kind] == pytest.approx(figures, rel=1e-12)  # sums are of records in the order they were written


def test_a_share_of_vectorised_answers_is_compared_and_counted(serve: Serve, tmp_path: Path) -> None:
    ongoing = 0
    for share in (1.0, 0.0, 0.5):
        client = serve(rules="vectorised", judge_share=share, database_url=f"sqlite:///{tmp_path}/{share}.db")
        ongoing = sum(answer["status"] == "ongoing" for answer in batch(client))
        if share == 0.5:
            assert 0 < judged(client) < ongoing  # by chance otherwise less than once in 2 ** 100 runs
        else:
            assert judged(client) == share * ongoing
    assert ongoing > 100


def test_wrong_vectorised_moves_are_withheld_and_leave_no_record(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    right = legality.legal_moves

    def one_missing(boards: Boards) -> legality.LegalMoves:
        found = right(boards)
        return replace(found, packed=found.packed[1:])

    client = serve(rules="vectorised", judge_share=1)  # loaded and checked before the fault
    monkeypatch.setattr(legality, "legal_moves", one_missing)
    answer = client.post("/v1/policy", json={"moves": []})
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:movemask:problem:served-leakage")
    assert "e2e4" not in answer.text
    assert "movemask_served_leakage_total 1.0" in client.get("/metrics").text
    assert client.get("/v1/leakage").json()["models"] == {}
