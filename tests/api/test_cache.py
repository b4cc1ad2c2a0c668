"""What a user of the cache would lose: answers that are the network's own, whatever is asked of them, and counted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from tests.conftest import Serve

FEN = "r1bqkbnr/pppp1ppp/2n5/1B2p3/4P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3"


def metric(client: TestClient, name: str) -> float:
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def told(client: TestClient, **body: Any) -> dict[str, Any]:
    answer: dict[str, Any] = client.post("/v1/policy", json=body).json()
    answer.pop("timing")
    return answer


def test_a_position_is_run_once_and_answered_the_same_by_every_rule(serve: Serve, tmp_path: Path) -> None:
    client, plain = serve(cache_mb=16), serve(database_url=f"sqlite:///{tmp_path}/plain.db")
    rules: list[dict[str, Any]] = [{}, {}, {"temperature": 0.5}, {"normalizer": "entmax15"}, {"top_k": 2}]
    for rule in rules:
        assert told(client, fen=FEN, **rule) == told(plain, fen=FEN, **rule)
    assert metric(client, "movemask_batches_total") == 1
    assert metric(plain, "movemask_batches_total") == 5
    assert (metric(client, "movemask_cache_hits_total"), metric(client, "movemask_cache_misses_total")) == (4, 1)
    assert metric(client, "movemask_cache_bytes") > 1880 * 4
    assert client.get("/v1/leakage").json()["models"]["fake"]["positions"] == 5  # every answer is audited


def test_a_batch_is_run_for_what_is_not_known_and_comes_back_in_order(serve: Serve) -> None:
    client, plain = serve(cache_mb=16), serve()
    moves = ["e2e4", "d2d4", "g1f3", "b1c3"]
    client.post("/v1/policy", json={"moves": [moves[1]]})
    asked = {"positions": [*({"moves": [move]} for move in moves), {"fen": "x"}]}
    results, expected = (one.post("/v1/policy/batch", json=asked).json()["results"] for one in (client, plain))
    for found, right in zip(results, expected, strict=True):
        assert {name: value for name, value in found.items() if name != "timing"} == {
            name: value for name, value in right.items() if name != "timing"
        }
    assert metric(client, "movemask_cache_hits_total") == 1
    assert client.post("/v1/policy/batch", json=asked).json()["results"][0]["timing"]["inference_ms"] == 0


def test_without_the_setting_nothing_is_kept(client: TestClient) -> None:
    for _ in range(2):
        told(client, fen=FEN)
    assert metric(client, "movemask_batches_total") == 2
    assert metric(client, "movemask_cache_hits_total") == 0
