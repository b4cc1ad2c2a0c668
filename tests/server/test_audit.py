"""POST /v1/audit: leakage of other programs' numbers, illegal moves with causes, known mistakes."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import ANY

import chess
import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from movemask.board.position import Position
from movemask.encoding.vocabularies import FROM_TO, vocabulary, vocabulary_names
from movemask.encoding.vocabulary import Castling, Vocabulary
from movemask.leakage.judge_slots import names_of_slots
from tests.server.asking import asked, refused

BLACK = "r3k2r/pppq1ppp/2n2n2/3pp3/3PP3/2N2N2/PPPQ1PPP/R3K2R b KQkq - 4 9"


def audited(client: TestClient, **body: Any) -> Any:
    return asked(client, "/v1/audit", **body)


@pytest.mark.parametrize("name", vocabulary_names())
def test_logits_in_every_vocabulary(client: TestClient, name: str) -> None:
    words = vocabulary(name)
    logits = (np.random.default_rng(0).normal(size=len(words)) * 2).round(3)
    _, slots = words.legal_slots(Position.read(BLACK))
    audit = audited(client, fen=BLACK, vocabulary=name, logits=logits.tolist(), threshold=0)
    weights = np.exp(logits)
    legal = weights[slots].sum()
    assert audit["kinds"]["raw"]["leaked"] == pytest.approx(1 - legal / weights.sum())
    assert audit["kinds"]["raw"]["kl"] == pytest.approx(np.log(weights.sum() / legal))
    rest = len(words) - len(slots)
    assert audit["kinds"]["multiplied"]["leaked"] == pytest.approx(rest / (rest + legal))
    assert sum(audit["causes"].values()) == pytest.approx(audit["kinds"]["raw"]["leaked"])
    assert audit["top"]["legal"] is bool(np.argmax(logits) in slots)
    assert len(audit["illegal"]) == 20
    assert audit["sum"] is None


def test_audit_of_own_answer_has_no_leakage(client: TestClient) -> None:
    answer = asked(client, include=["logit"])
    policy = {move["uci"]: move["probability"] for move in answer["moves"]}
    audit = audited(client, policy=policy)
    assert audit["kinds"] == {"given": {"leaked": 0.0, "flipped": False, "kl": 0.0}}
    assert audit["sum"] == pytest.approx(1)
    assert (audit["missing"], audit["illegal"], audit["top"]["legal"]) == ([], [], True)


def test_policy_with_illegal_moves_names_moves_and_causes(client: TestClient) -> None:
    policy = {"e2e4": 0.2, "e2e5": 0.5, "e1g1": 0.2, "e7e5": 0.0, "a1a3": 0.1}
    audit = audited(client, policy=policy)
    assert audit["kinds"]["given"] == pytest.approx({"leaked": 0.8, "flipped": True, "kl": np.log(5)})
    illegal = [(entry["uci"], entry["probability"], entry["cause"]) for entry in audit["illegal"]]
    assert illegal == [("e2e5", 0.5, "wrong_geometry"), ("e1g1", 0.2, "castling_path"), ("a1a3", 0.1, "blocked")]
    assert audit["top"] == {"uci": "e2e5", "legal": False}
    assert len(audit["missing"]) == 19


CASTLES = "r3k2r/pppq1ppp/2n2n2/3pp3/3PP3/2N2N2/PPPQ1PPP/R3K2R w KQkq - 4 9"


def test_castling_is_read_in_one_form_of_two(client: TestClient) -> None:
    for uci in ("e1g1", "e1h1"):
        assert audited(client, fen=CASTLES, policy={uci: 1.0})["kinds"]["given"]["leaked"] == 0
    both = {"e1g1": 0.3, "e1h1": 0.7}
    answer = client.post("/v1/audit", json={"fen": CASTLES, "policy": both})
    refused(answer, 422, "invalid-audit", "policy: 'e1g1' and 'e1h1' may both stand for castling; say which")
    assert audited(client, fen=CASTLES, policy={"e1g1": 1.0, "e1h1": 0.0})["illegal"] == []
    audit = audited(client, fen=CASTLES, policy=both, castling="king_takes_rook")
    assert [(entry["uci"], entry["cause"]) for entry in audit["illegal"]] == [("e1g1", "wrong_geometry")]
    assert audit["kinds"]["given"]["leaked"] == pytest.approx(0.3)
    audit = audited(client, fen=CASTLES, policy=both, castling="king_two_squares")
    assert [(entry["uci"], entry["cause"]) for entry in audit["illegal"]] == [("e1h1", "wrong_geometry")]
    assert audit["patterns"][0]["pattern"] == "castling_slot"
    assert audit["patterns"][0]["share"] == pytest.approx(0.7)


def slots_named(words: Vocabulary, board: chess.Board, uci: str) -> list[int]:
    """Slots whose squares, on this board, are written so."""
    flip = words.flip.value if board.turn == chess.BLACK else 0
    return [
        slot
        for slot, entry in enumerate(words.entries)
        if entry and entry[0] != entry[1] and chess.Move(entry[0] ^ flip, entry[1] ^ flip, entry[2]).uci() == uci
    ]


@pytest.mark.parametrize("fen", [CASTLES, CASTLES.replace(" w ", " b ")])
@pytest.mark.parametrize("name", vocabulary_names())
def test_castling_from_other_slot_is_recognised(client: TestClient, name: str, fen: str) -> None:
    words, board = vocabulary(name), chess.Board(fen)
    rank = "1" if board.turn else "8"
    forms = [f"e{rank}g{rank}", f"e{rank}h{rank}"]
    right, wrong = reversed(forms) if words.castling is Castling.KING_TAKES_ROOK else forms
    p = np.zeros(len(words))
    p[words.legal_slots(Position.read(fen))[1]] = 0.01
    (own,), (other,) = slots_named(words, board, right), slots_named(words, board, wrong)
    p[own], p[other] = 0.0, 1 - p.sum() + p[own]
    audit = audited(client, fen=fen, vocabulary=name, probabilities=p.tolist())
    assert audit["top"] == {"uci": wrong, "legal": False}
    assert audit["missing"] == [right]
    assert [entry["uci"] for entry in audit["illegal"]] == [wrong]
    assert [entry["pattern"] for entry in audit["patterns"]] == ["castling_slot"]
    assert f"{wrong} has" in audit["patterns"][0]["detail"]
    p[own], p[other] = p[other], 0.0
    assert audited(client, fen=fen, vocabulary=name, probabilities=p.tolist())["patterns"] == []


@pytest.mark.parametrize("fen", ["4k3/P7/8/8/8/8/8/4K3 w - - 0 1", "4k3/8/8/8/8/8/p7/4K3 b - - 0 1"])
@pytest.mark.parametrize("name", vocabulary_names())
def test_queen_from_slot_without_letter_is_recognised(client: TestClient, name: str, fen: str) -> None:
    words, board = vocabulary(name), chess.Board(fen)
    bare = "a7a8" if board.turn else "a2a1"
    p = np.full(len(words), 0.0)
    p[slots_named(words, board, bare)[0]] = 1.0
    audit = audited(client, fen=fen, vocabulary=name, probabilities=p.tolist())
    stands_for = {"lc0-1858": f"{bare}n", **dict.fromkeys(("alphazero-4672", *FROM_TO), f"{bare}q")}.get(name, bare)
    assert audit["top"] == {"uci": stands_for, "legal": stands_for != bare}
    assert [entry["pattern"] for entry in audit["patterns"]] == ([] if stands_for[4:] == "q" else ["bare_promotion"])
    assert [entry["cause"] for entry in audit["illegal"]] == (["promotion_form"] if stands_for == bare else [])


def test_black_moves_with_flipped_ranks_are_unmirrored(client: TestClient) -> None:
    mirrored = chess.Board(BLACK).mirror()
    policy = {move.uci(): 0.001 * place for place, move in enumerate(mirrored.legal_moves, 1)}
    policy = {uci: p / sum(policy.values()) for uci, p in policy.items()}
    assert [entry["pattern"] for entry in audited(client, fen=BLACK, policy=policy)["patterns"]] == ["unmirrored"]
    assert audited(client, fen=mirrored.fen(), policy={"e1g1": 0.6, "e1c1": 0.4})["patterns"] == []


def test_multiplied_mask_is_named(client: TestClient) -> None:
    """The mistake of Maia-2, with the 5.1 % that it gave to illegal moves at worst."""
    words = vocabulary("lc0-1858")
    _, slots = words.legal_slots(Position.read())
    wrong = np.full(len(words), 0.051 / (len(words) - len(slots)))
    wrong[slots] = 0.949 * np.random.default_rng(2).dirichlet(np.ones(len(slots)))
    moves = names_of_slots(Position.read(), words)
    mapped = {move: p for move, p in zip(moves, wrong.tolist(), strict=True) if move != "0000"}
    for body in ({"vocabulary": "lc0-1858", "probabilities": wrong.tolist()}, {"policy": mapped}):
        audit = audited(client, **body)
        assert audit["kinds"]["given"]["leaked"] == pytest.approx(0.051)
        (pattern,) = audit["patterns"]
        assert (pattern["pattern"], pattern["share"]) == ("multiplied", pytest.approx(0.051))
        assert "softmax(logits * mask)" in pattern["detail"]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([BLACK, CASTLES, chess.STARTING_FEN]),
    st.sampled_from(vocabulary_names()),
    st.integers(0, 2**32 - 1),
    st.floats(0.01, 5),
    st.sampled_from([np.float32, np.float64]),
)
def test_multiplied_mask_differs_from_softmax(
    client: TestClient, fen: str, name: str, seed: int, scale: float, dtype: Any
) -> None:
    words = vocabulary(name)
    _, slots = words.legal_slots(Position.read(fen))
    mask = np.zeros(len(words), dtype=bool)
    mask[slots] = True
    z = np.random.default_rng(seed).normal(size=len(words)) * scale
    for logits, expected in ((z * mask, ["multiplied"]), (z, []), (np.where(mask, z, -np.inf), [])):
        weights = np.exp((logits - logits.max()).astype(dtype))
        p = weights / weights.sum()
        audit = audited(client, fen=fen, vocabulary=name, probabilities=p.tolist())
        flat = [entry["pattern"] for entry in audit["patterns"] if entry["pattern"] in ("multiplied", "uniform")]
        assert flat == expected
        assert sum(audit["causes"].values()) == pytest.approx(audit["kinds"]["given"]["leaked"])
        sent = [None if value == -np.inf else value for value in logits.tolist()]
        again = audited(client, fen=fen, vocabulary=name, logits=sent)
        assert sum(again["causes"].values()) == pytest.approx(again["kinds"]["raw"]["leaked"])
        assert again["patterns"] == [
            {**entry, "share": pytest.approx(entry["share"], rel=1e-4), "detail": ANY} for entry in audit["patterns"]
        ]


def test_equal_probabilities_are_uniform(client: TestClient) -> None:
    audit = audited(client, vocabulary="lc0-1858", probabilities=[1 / 1858] * 1858)
    assert [entry["pattern"] for entry in audit["patterns"]] == ["uniform"]


def test_move_below_threshold_counts_in_causes_only(client: TestClient) -> None:
    audit = audited(client, policy={"e2e4": 0.9, "e2e5": 0.06, "a1a3": 0.04}, threshold=0.05)
    assert [entry["uci"] for entry in audit["illegal"]] == ["e2e5"]
    assert audit["causes"] == pytest.approx({"wrong_geometry": 0.06, "blocked": 0.04})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "give exactly one of logits, probabilities and policy, not none"),
        ({"logits": [0.0], "vocabulary": "lc0"}, "vocabulary: no 'lc0'; available: alphazero-4672"),
        ({"logits": [0.0], "vocabulary": "lc0-1858"}, "logits: 1 numbers; the vocabulary lc0-1858 has 1858 slots"),
        ({"logits": [None] * 1858, "vocabulary": "lc0-1858"}, "logits: every legal move has -infinity"),
        ({"probabilities": [0.0] * 1858, "vocabulary": "lc0-1858"}, "probabilities: nothing is above 0"),
        ({"probabilities": [-0.1] * 1858, "vocabulary": "lc0-1858"}, "probabilities[0]: -0.1 is not a probability"),
        ({"policy": {}}, "policy: nothing is above 0"),
        ({"policy": {"e2e4": 1e308, "d2d4": 1e308}}, "policy[e2e4]: 1e+308 is not a probability"),
        ({"policy": {"e2e4": 1, "d2d4": 1}}, "policy: the sum is 2, too far from 1"),
        ({"policy": {"e2e4": 1}, "castling": "king_two_squares", "chess960": True}, "castling: in Chess960"),
        ({"probabilities": [True], "vocabulary": "lc0-1858"}, "probabilities[0]: Input should be a valid number"),
        ({"probabilities": [0.5] * 1858, "vocabulary": "lc0-1858"}, "probabilities: the sum is 929, too far from 1"),
        ({"logits": [1e308] * 1858, "vocabulary": "lc0-1858"}, "logits[0]: 1e+308 is beyond float32"),
        ({"policy": {"Nf3": 1}}, "policy: 'Nf3' is not a UCI move"),
        ({"policy": {"P@e4": 1}}, "policy: 'P@e4' is not a move of chess"),
        ({"policy": {"e2e4": 1}, "fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"}, "has no legal move; there is nothing"),
        ({"logits": [0.0] * 9000, "vocabulary": "lc0-1858"}, "logits: 9000 logits; at most 8192 are allowed"),
    ],
)
def test_invalid_audit_names_fault(client: TestClient, body: dict[str, Any], words: str) -> None:
    answer = client.post("/v1/audit", json={"moves": [], **body})
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "9" * 400])
def test_non_finite_number_is_named(client: TestClient, number: str) -> None:
    def ask(**body: Any) -> Any:
        text = json.dumps({"moves": [], **body}).replace('"?"', number)
        return client.post("/v1/audit", content=text, headers={"Content-Type": "application/json"})

    refused(ask(policy={"e2e4": "?"}), 422, "invalid-request", "e2e4")
    if number in ("NaN", "Infinity"):
        slot = vocabulary("lc0-1858").slot(chess.Move.from_uci("e2e4"), chess.Board())
        legal, illegal = ([0.0] * place + ["?"] + [0.0] * (1857 - place) for place in (slot, 0))
        answer = ask(vocabulary="lc0-1858", logits=legal)
        refused(answer, 422, "invalid-audit", f"logits[{slot}]: e2e4 is legal, and its logit is")
        audit = ask(vocabulary="lc0-1858", logits=illegal).json()
        assert audit["kinds"]["raw"] == {"leaked": None, "flipped": False, "kl": None}


def test_integers_and_negative_zero_are_accepted(client: TestClient) -> None:
    audit = audited(client, policy={"e2e4": 1, "d2d4": -0.0, "e2e5": -0.0})
    assert audit["kinds"]["given"] == {"leaked": 0.0, "flipped": False, "kl": 0.0}
    assert (audit["illegal"], audit["causes"], audit["patterns"]) == ([], {}, [])
    assert "d2d4" in audit["missing"]
