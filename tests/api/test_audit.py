"""What a user of other networks would lose: being told what leaks in their numbers, where to and why."""

from __future__ import annotations

from typing import Any

import chess
import numpy as np
import pytest
from fastapi.testclient import TestClient

from service.encoding.position import Position
from service.encoding.vocabularies import vocabulary, vocabulary_names
from service.numeric.dense import masked_softmax

BLACK = "r3k2r/pppq1ppp/2n2n2/3pp3/3PP3/2N2N2/PPPQ1PPP/R3K2R b KQkq - 4 9"


def audited(client: TestClient, **body: Any) -> Any:
    answer = client.post("/v1/audit", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("name", vocabulary_names())
def test_logits_in_every_vocabulary(client: TestClient, name: str) -> None:
    words = vocabulary(name)
    logits = (np.random.default_rng(0).normal(size=len(words)) * 2).round(3)
    _, slots = words.legal_slots(Position.read(BLACK))
    found = audited(client, fen=BLACK, vocabulary=name, logits=logits.tolist(), threshold=0)
    weights = np.exp(logits)
    legal = weights[slots].sum()
    assert found["kinds"]["raw"]["leaked"] == pytest.approx(1 - legal / weights.sum())
    assert found["kinds"]["raw"]["kl"] == pytest.approx(np.log(weights.sum() / legal))
    rest = len(words) - len(slots)
    assert found["kinds"]["multiplied"]["leaked"] == pytest.approx(rest / (rest + legal))
    assert sum(found["causes"].values()) == pytest.approx(found["kinds"]["raw"]["leaked"])
    assert found["top"]["legal"] is bool(np.argmax(logits) in slots)
    assert len(found["illegal"]) == 20
    assert found["sum"] is None


def test_a_networks_own_answer_and_its_audit_agree(client: TestClient) -> None:
    answer = client.post("/v1/policy", json={"include": ["logit"]}).json()
    policy = {move["uci"]: move["probability"] for move in answer["moves"]}
    found = audited(client, policy=policy)
    assert found["kinds"] == {"given": {"leaked": 0.0, "flipped": False, "kl": 0.0}}
    assert found["sum"] == pytest.approx(1)
    assert (found["missing"], found["illegal"], found["top"]["legal"]) == ([], [], True)


def test_a_map_with_illegal_moves_says_which_and_why(client: TestClient) -> None:
    policy = {"e2e4": 0.2, "e2e5": 0.5, "e1g1": 0.2, "e7e5": 0.0, "a1a3": 0.1}
    found = audited(client, policy=policy)
    assert found["kinds"]["given"] == {
        "leaked": pytest.approx(0.8),
        "flipped": True,
        "kl": pytest.approx(np.log(5)),
    }
    assert found["illegal"] == [
        {"uci": "e2e5", "probability": pytest.approx(0.5), "cause": "wrong_geometry"},
        {"uci": "e1g1", "probability": pytest.approx(0.2), "cause": "castling_path"},
        {"uci": "a1a3", "probability": pytest.approx(0.1), "cause": "blocked"},
    ]
    assert found["top"] == {"uci": "e2e5", "legal": False}
    assert len(found["missing"]) == 19


def test_castling_may_be_written_either_way_but_not_both(client: TestClient) -> None:
    fen = "r3k2r/pppq1ppp/2n2n2/3pp3/3PP3/2N2N2/PPPQ1PPP/R3K2R w KQkq - 4 9"
    for uci in ("e1g1", "e1h1"):
        assert audited(client, fen=fen, policy={uci: 1.0})["kinds"]["given"]["leaked"] == 0
    answer = client.post("/v1/audit", json={"fen": fen, "policy": {"e1g1": 0.5, "e1h1": 0.5}})
    assert (answer.status_code, answer.json()["detail"]) == (422, "policy: 'e1h1' and 'e1g1' are the same move")


def test_probabilities_that_were_masked_rightly_or_by_multiplying(client: TestClient) -> None:
    words = vocabulary("lc0-1858")
    _, slots = words.legal_slots(Position.read(BLACK))
    mask = np.zeros(len(words), dtype=bool)
    mask[slots] = True
    logits = np.random.default_rng(1).normal(size=len(words))
    right = masked_softmax(logits[None], mask[None])[0]
    found = audited(client, fen=BLACK, vocabulary="lc0-1858", probabilities=right.tolist())
    assert found["kinds"]["given"] == {"leaked": 0.0, "flipped": False, "kl": 0.0}
    wrong = np.exp(logits * mask)
    wrong /= wrong.sum()
    found = audited(client, fen=BLACK, vocabulary="lc0-1858", probabilities=wrong.tolist())
    assert found["kinds"]["given"]["leaked"] == pytest.approx(wrong[~mask].sum())
    assert found["sum"] == pytest.approx(1)


def test_null_is_minus_infinity(client: TestClient) -> None:
    words = vocabulary("lc0-1858")
    _, slots = words.legal_slots(Position.read())
    logits: list[float | None] = [None] * len(words)
    for slot in slots[1:]:
        logits[slot] = 0.5
    found = audited(client, vocabulary="lc0-1858", logits=logits)
    assert found["kinds"]["raw"]["leaked"] == 0
    assert len(found["missing"]) == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "give exactly one of logits, probabilities and policy, not none"),
        ({"logits": [0.0], "policy": {"e2e4": 1.0}}, "give exactly one of logits"),
        ({"logits": [0.0]}, "vocabulary: goes with logits"),
        ({"policy": {"e2e4": 1.0}, "vocabulary": "lc0-1858"}, "vocabulary: goes with logits"),
        ({"logits": [0.0], "vocabulary": "lc0"}, "vocabulary: no 'lc0'; there are alphazero-4672"),
        ({"logits": [0.0], "vocabulary": "lc0-1858"}, "logits: 1 numbers; the vocabulary lc0-1858 has 1858 slots"),
        ({"logits": [None] * 1858, "vocabulary": "lc0-1858"}, "logits: every legal move has -infinity"),
        ({"probabilities": [0.0] * 1858, "vocabulary": "lc0-1858"}, "probabilities: nothing is above 0"),
        (
            {"probabilities": [-0.1] + [0.1] * 1857, "vocabulary": "lc0-1858"},
            "probabilities[0]: -0.1 is no probability",
        ),
        ({"policy": {}}, "policy: nothing is above 0"),
        ({"policy": {"e2e4": -1}}, "policy[e2e4]: -1.0 is no probability"),
        ({"policy": {"Nf3": 1}}, "policy: 'Nf3' is not a UCI move"),
        ({"policy": {"0000": 1}}, "policy: '0000' is not a move of chess"),
        ({"policy": {"P@e4": 1}}, "policy: 'P@e4' is not a move of chess"),
        (
            {"policy": {"e2e4": 1}, "fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"},
            "has no legal move; there is nothing to audit",
        ),
        ({"policy": {"e2e4": 1}, "fen": "x"}, "fen: 'x' is cut short"),
        ({"policy": {"e2e4": 1}, "colour": "red"}, "colour: no such field"),
        ({"logits": [0.0] * 9000, "vocabulary": "lc0-1858"}, "logits: List should have at most 8192 items"),
    ],
)
def test_what_cannot_be_audited_is_named(client: TestClient, body: dict[str, Any], words: str) -> None:
    answer = client.post("/v1/audit", json=body)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


@pytest.mark.parametrize("number", ["NaN", "Infinity"])
def test_a_legal_logit_that_is_no_number_is_named(client: TestClient, number: str) -> None:
    words = vocabulary("lc0-1858")
    slot = words.slot(chess.Move.from_uci("e2e4"), chess.Board())
    numbers = ["0"] * len(words)
    numbers[slot] = number
    body = f'{{"vocabulary": "lc0-1858", "logits": [{", ".join(numbers)}]}}'
    answer = client.post("/v1/audit", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert f"logits[{slot}]: e2e4 is legal, and its logit is" in answer.json()["detail"]
    numbers[slot], numbers[0] = "0", number
    body = f'{{"vocabulary": "lc0-1858", "logits": [{", ".join(numbers)}]}}'
    answer = client.post("/v1/audit", content=body, headers={"Content-Type": "application/json"})
    assert answer.json()["kinds"]["raw"] == {"leaked": None, "flipped": False, "kl": None}


def test_nothing_is_recorded(client: TestClient) -> None:
    audited(client, policy={"e2e4": 1.0})
    assert client.get("/v1/leakage").json()["models"] == {}
