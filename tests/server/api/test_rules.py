"""Rules over HTTP: normalisers, filters, temperatures; invalid combinations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from movemask.policy import entmax
from movemask.policy.normalisation import KERNELS
from tests.conftest import Serve
from tests.networks import fixed_model, write_fake
from tests.policy.batches import PARAMETERS
from tests.server.asking import asked, refused, sample

CALIBRATION = """
[calibration]
temperature = 1.5
positions = 10
cross_entropy_before = 2.0
cross_entropy_after = 1.9
source = "games.pgn"
"""


def column(answer: Any, name: str) -> np.ndarray[Any, Any]:
    return np.array([move[name] for move in answer["moves"]])


@pytest.fixture
def plain(client: TestClient) -> Any:
    return asked(client, include=["logit"])


@pytest.mark.parametrize(
    ("rule", "kernel"),
    [
        ({"normalizer": "sparsemax"}, entmax.sparsemax),
        ({"normalizer": "entmax15"}, entmax.entmax15),
        ({"normalizer": "entmax", "alpha": 1.2}, lambda z, i: entmax.entmax(z, i, 1.2)),
    ],
)
def test_sparse_normalizers_list_all_moves(client: TestClient, plain: Any, rule: dict[str, Any], kernel: Any) -> None:
    response = asked(client, include=["logit"], **rule)
    assert len(response["moves"]) == 20
    logits = column(response, "logit")
    np.testing.assert_allclose(column(response, "probability"), kernel(logits, [0, 20]), atol=1e-14)
    assert abs(column(response, "probability").sum() - 1) < 1e-12
    assert response["leakage"] == plain["leakage"]
    assert "abstention" not in response


def test_softmax_one_abstention(client: TestClient, plain: Any) -> None:
    response = asked(client, normalizer="softmax_one", include=["statistics"])
    logits = column(plain, "logit")
    expected = scipy.special.softmax(np.append(logits, 0.0))
    np.testing.assert_allclose(column(response, "probability"), expected[:-1], rtol=1e-12)
    assert response["abstention"] == pytest.approx(expected[-1])
    assert abs(column(response, "probability").sum() + response["abstention"] - 1) < 1e-12
    assert response["statistics"]["maximum"] == pytest.approx(expected[0] / expected[:-1].sum())
    assert response["leakage"]["served"] == 0.0


FEN = "r1bqkbnr/pppp1ppp/2n5/1B2p3/4P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3"
LOW = "8/4k3/5p2/4p3/4Pr2/4R1K1/8/8 w - - 26 78"


def test_underflow_falls_back_to_logits(serve: Serve) -> None:
    below_zero = -1 - 20 * np.random.default_rng(0).random(1880, dtype=np.float32)
    client = serve(prepare=lambda _: fixed_model(below_zero))
    plain = asked(client, fen=LOW, moves=[], temperature=1e-4, include=["statistics"])
    assert [move["uci"] for move in plain["moves"]] == [move["uci"] for move in asked(client, fen=LOW)["moves"]]
    for response in (
        asked(client, fen=LOW, normalizer="softmax_one", temperature=1e-4, include=["statistics", "logit"]),
        asked(client, fen=LOW, normalizer="softmax_one", temperature=1e-300, include=["statistics", "logit"]),
    ):
        assert column(response, "logit").max() < 0
        assert response["abstention"] == 1
        assert [move["uci"] for move in response["moves"]] == [move["uci"] for move in plain["moves"]]
        assert response["statistics"] == plain["statistics"]
        rule = {"fen": LOW, "normalizer": "softmax_one", "temperature": response["temperature"]}
        for method in ({"method": "greedy"}, {"method": "sample", "seed": 1}):
            assert client.post("/v1/move", json={**rule, **method}).json()["move"]["uci"] == plain["moves"][0]["uci"]


def test_filters(client: TestClient, plain: Any) -> None:
    p, moves = column(plain, "probability"), [move["uci"] for move in plain["moves"]]
    for rule, count in (
        ({"top_k": 3}, 3),
        ({"top_k": 50}, 20),
        ({"top_p": 0.9}, int((np.cumsum(p) - p < 0.9).sum())),
        ({"top_p": 1e-9}, 1),
        ({"top_k": 2, "top_p": p[0] + 1e-6}, 2),  # of the whole policy, not of the two moves that top_k leaves
        ({"min_p": 0.2}, int((p >= 0.2 * p[0]).sum())),
        ({"top_k": 4, "top_p": 0.99, "min_p": 0.3}, min(4, int((p >= 0.3 * p[0]).sum()))),
        ({"top_k": 1, "normalizer": "sparsemax"}, 1),
    ):
        response = asked(client, **rule)
        assert [move["uci"] for move in response["moves"]] == moves[:count], rule
        assert abs(column(response, "probability").sum() - 1) < 1e-12
        if "normalizer" not in rule:
            np.testing.assert_allclose(column(response, "probability"), p[:count] / p[:count].sum(), rtol=1e-12)
        assert response["leakage"] == plain["leakage"]


SHARES = st.sampled_from([5e-324, 0.5, 1.0]) | st.floats(5e-324, 1)
RULES = st.fixed_dictionaries(
    {"temperature": st.sampled_from([5e-324, 1e15, 1e17, 1e308]) | st.floats(5e-324, 1.7976931348623157e308)},
    optional={"top_k": st.integers(1, 25) | st.just(2**63), "top_p": SHARES, "min_p": st.just(0.0) | SHARES},
)
NORMALIZERS = st.sampled_from(
    [
        {"normalizer": name, **({kernel.parameter: PARAMETERS[kernel.parameter]} if kernel.parameter else {})}
        for name, kernel in KERNELS.items()
    ]
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    NORMALIZERS,
    RULES,
    st.sampled_from(["startpos", FEN, "8/8/8/8/8/5k2/5q2/7K w - - 0 1", "k7/8/1K6/8/8/8/8/7R b - - 0 1"]),
)
@example({}, {"temperature": 1e308, "top_k": 1, "top_p": 0.5}, "startpos")
@example({"normalizer": "softmax_one"}, {"temperature": 1e308, "top_k": 1, "top_p": 0.5}, "startpos")
def test_rules_always_leave_a_move(
    shipped: TestClient, normalizer: dict[str, Any], rule: dict[str, Any], fen: str
) -> None:
    rule = {**rule, **normalizer}
    response = asked(shipped, fen=fen, include=["statistics"], **rule)
    single = asked(shipped, "/v1/policy/batch", positions=[{"fen": fen}], **rule)["results"][0]
    assert single["moves"] == response["moves"]
    if response["status"] != "ongoing":
        return
    assert len(response["moves"]) >= 1
    best = asked(shipped, fen=fen)["moves"][0]["uci"]
    assert response["moves"][0]["uci"] == best
    drawn = asked(shipped, "/v1/move", fen=fen, method="sample", seed=1, **rule)["move"]["uci"]
    assert drawn in [move["uci"] for move in response["moves"]]
    assert asked(shipped, "/v1/move", fen=fen, method="greedy", **rule)["move"]["uci"] == best
    swept = asked(shipped, "/v1/policy/sweep", fen=fen, ratings=[1000, 2000], **rule)
    assert len(swept["moves"]) >= 1
    assert sample(shipped, "movemask_served_leakage_total") == 0


def test_batch_mixes_rules(client: TestClient) -> None:
    rules: list[dict[str, Any]] = [{}, {"temperature": 2.0}, {"normalizer": "sparsemax"}, {"top_k": 2}, {"alpha": 1.5}]
    body = {"positions": [{"moves": [], **rule} for rule in rules], "normalizer": "softmax_one", "include": ["logit"]}
    results = client.post("/v1/policy/batch", json=body).json()["results"]
    for rule, response in zip(rules, results, strict=True):
        if "alpha" in rule:
            assert response["error"]["type"] == "urn:movemask:problem:invalid-rule"
        else:
            alone = asked(client, include=["logit"], **{"normalizer": "softmax_one", **rule})
            assert response["moves"] == alone["moves"]
            assert response.get("abstention") == alone.get("abstention")


def test_move_follows_rule(client: TestClient) -> None:
    best = [move["uci"] for move in asked(client, top_k=2)["moves"]]
    drawn = [asked(client, "/v1/move", method="sample", seed=seed, top_k=2)["move"]["uci"] for seed in range(40)]
    assert set(drawn) == set(best)
    item = asked(client, "/v1/move", method="sample", seed=3, normalizer="softmax_one")
    assert item["move"] is not None
    assert item["abstention"] > 0


def test_calibrated_temperature(serve: Serve, tmp_path: Path) -> None:
    write_fake(tmp_path / "m", "plain")
    file = write_fake(tmp_path / "m", "fitted")
    file.write_text(file.read_text() + CALIBRATION)
    client = serve(tmp_path / "m", default_model="fitted")
    response = asked(client, temperature="calibrated")
    assert response["temperature"] == 1.5
    assert response["moves"] == asked(client, temperature=1.5)["moves"]
    plain = client.post("/v1/policy", json={"moves": [], "model": "plain", "temperature": "calibrated"})
    refused(plain, 422, "not-calibrated")
    assert client.get("/v1/models/fitted").json()["contract"]["calibration"]["temperature"] == 1.5


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ({"normalizer": "hardmax"}, "normalizer: Input should be 'softmax'"),
        ({"normalizer": "entmax"}, "alpha: is missing"),
        ({"alpha": 1.5}, "alpha: needs normalizer 'entmax', not 'softmax'"),
        ({"normalizer": "entmax", "alpha": 0.5}, "alpha: Input should be greater than or equal to 1"),
        ({"top_k": 0}, "top_k: Input should be greater than or equal to 1, got 0"),
        ({"top_p": 0}, "top_p: Input should be greater than 0, got 0"),
        ({"min_p": -1}, "min_p"),
    ],
)
def test_invalid_rules_are_named(client: TestClient, rule: dict[str, Any], word: str) -> None:
    response = client.post("/v1/policy", json={"moves": [], **rule})
    assert (response.status_code, word in response.json()["detail"]) == (422, True)
