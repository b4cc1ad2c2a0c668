"""What a user would lose: the figures of what would have leaked, and the positions where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from service import pipeline
from service.api.app import create_app
from service.policy import Legal, Policy, policies
from service.settings import Settings
from tests.conftest import Serve
from tests.networks import write_fake

MOVES = ["e2e4", "d2d4", "c2c4", "g1f3"]


def answers(client: TestClient, **more: Any) -> list[Any]:
    return [client.post("/v1/policy", json={"moves": [move], **more}).json() for move in MOVES]


def test_what_was_answered_before_is_counted(client: TestClient) -> None:
    leaked = [answer["leakage"] for answer in answers(client)]
    figures = client.get("/v1/leakage").json()["models"]["fake"]
    assert figures["positions"] == 4
    assert figures["trained_with_mask"] is False
    for kind in ("raw", "multiplied", "served"):
        values = [leakage[kind] for leakage in leaked]
        found = figures["kinds"][kind]
        assert set(found) == {"count", "unmeasured", "mean", "max", "p50", "p95", "p99", "p999"}
        assert found["count"] == 4
        assert found["mean"] == pytest.approx(np.mean(values), rel=1e-12)
        assert found["max"] == max(values)
        assert found["p50"] == pytest.approx(np.quantile(values, 0.5, method="lower"), rel=0.0101)


def test_terminal_positions_and_errors_are_not_counted(client: TestClient) -> None:
    client.post("/v1/policy", json={"fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"})
    client.post("/v1/policy", json={"fen": "x"})
    assert client.get("/v1/leakage").json() == {"models": {}}
    assert client.get("/v1/leakage/worst").json() == {"positions": []}


def test_batch_and_move_are_counted_too(client: TestClient) -> None:
    client.post("/v1/policy/batch", json={"positions": [{}, {"fen": "x"}, {"moves": ["e2e4"]}]})
    client.post("/v1/move", json={})
    assert client.get("/v1/leakage").json()["models"]["fake"]["positions"] == 3


def test_worst_names_the_illegal_moves_that_took_the_mass(client: TestClient) -> None:
    answered = answers(client)
    for kind in ("raw", "multiplied"):
        worst = client.get("/v1/leakage/worst", params={"kind": kind, "limit": 2}).json()["positions"]
        expected = sorted((answer["leakage"][kind] for answer in answered), reverse=True)[:2]
        assert [position[kind] for position in worst] == expected
        for position in worst:
            answer = next(answer for answer in answered if answer["fen"] == position["fen"])
            assert position["legal_moves"] == len(answer["moves"])
            assert (position["model"], position["digest"]) == ("fake", answer["model"]["digest"])
            legal = {move["uci"] for move in answer["moves"]}
            masses = [move["probability"] for move in position["illegal"]]
            assert len(masses) == 5
            assert masses == sorted(masses, reverse=True)
            assert not legal & {move["uci"] for move in position["illegal"]}
            assert sum(masses) <= position["raw"]


def test_the_audit_counts_all_legal_moves_however_few_the_rule_keeps(client: TestClient) -> None:
    client.post("/v1/policy", json={"top_k": 1})
    (position,) = client.get("/v1/leakage/worst").json()["positions"]
    assert position["legal_moves"] == 20


def test_figures_are_by_model_and_can_be_asked_of_one(serve: Serve, tmp_path: Path) -> None:
    write_fake(tmp_path / "m", "a")
    write_fake(tmp_path / "m", "b", trained_with_mask=True)
    client = serve(tmp_path / "m")
    for name in ("a", "b", "b"):
        client.post("/v1/policy", json={"model": name})
    models = client.get("/v1/leakage").json()["models"]
    assert {name: model["positions"] for name, model in models.items()} == {"a": 1, "b": 2}
    assert models["b"]["trained_with_mask"] is True
    assert list(client.get("/v1/leakage", params={"model": "a"}).json()["models"]) == ["a"]
    worst = client.get("/v1/leakage/worst", params={"model": "b"}).json()["positions"]
    assert {position["model"] for position in worst} == {"b"}


def test_a_restart_keeps_the_audit(tmp_path: Path) -> None:
    write_fake(tmp_path / "m")
    settings = Settings.read(models_dir=tmp_path / "m", database_url=f"sqlite:///{tmp_path}/audit.db", threads=1)
    for positions, move in ((1, "e2e4"), (2, "d2d4")):
        with TestClient(create_app(settings)) as client:
            client.post("/v1/policy", json={"moves": [move]})
            assert client.get("/v1/leakage").json()["models"]["fake"]["positions"] == positions


def multiplied(batch: Any, legal: Legal, rules: Any) -> list[Policy]:
    """The Maia-2 mistake, planted: a share of every move's probability goes to a move that is not legal."""
    made = policies(batch, legal, rules)
    return [
        Policy(
            (*policy.moves, type(policy.moves[0]).from_uci("a1a8")),
            np.append(policy.probabilities * 0.999, 0.001),
            np.append(policy.logits, 0.0),
            policy.abstention,
        )
        for policy in made
    ]


def test_a_leaking_answer_is_withheld_and_counted(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "policies", multiplied)
    answer = client.post("/v1/policy", json={})
    assert answer.status_code == 500
    assert answer.json()["type"] == "urn:movemask:problem:served-leakage"
    assert "e2e4" not in answer.text
    results = client.post("/v1/policy/batch", json={"positions": [{}, {}]}).json()["results"]
    assert [result["error"]["status"] for result in results] == [500, 500]
    assert "movemask_served_leakage_total 3.0" in client.get("/metrics").text
    assert client.get("/v1/leakage").json() == {"models": {}}
