"""GET /v1/leakage…: figures, groups, history, worst and stored positions."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import sqlite3
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio.to_thread
import chess
import numpy as np
import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel

from movemask import evaluate
from movemask.board.moves import code_of
from movemask.leakage.kinds import KINDS, Plan
from movemask.policy.normalisation import Normalisation, Policies, policies
from movemask.policy.ragged import Float, Index
from movemask.schemas.figures import HistoryOut, LeakageFiguresOut, PositionsOut, WorstOut
from movemask.schemas.operations import ModelEntryOut
from movemask.server import services as services_module
from movemask.server.api.routes.leakage import _parts
from movemask.server.services import Services
from tests.conftest import Serve
from tests.networks import write_fake
from tests.processes import until
from tests.schemas.test_answers import held_to
from tests.server.asking import refused

MOVES = ["e2e4", "d2d4", "c2c4", "g1f3"]


def answers(client: TestClient, **more: Any) -> list[Any]:
    return [client.post("/v1/policy", json={"moves": [move], **more}).json() for move in MOVES]


def test_earlier_answers_are_counted(client: TestClient) -> None:
    leaked = [response["leakage"] for response in answers(client)]
    figures = client.get("/v1/leakage").json()["models"]["fake"]
    assert figures["positions"] == 4
    assert figures["trained_with_mask"] is False
    for kind in ("raw", "multiplied", "served"):
        values = [leakage[kind] for leakage in leaked]
        result = figures["kinds"][kind]
        quantiles = {"p50", "p95", "p99", "p999"}
        assert set(result) == {"count", "unmeasured", "mean", "max", *quantiles, "flips", "mean_kl", "infinite_kl"}
        assert result["count"] == 4
        assert result["mean"] == pytest.approx(np.mean(values), rel=1e-12)
        assert result["max"] == max(values)
        for name, at in (("p50", 1), ("p95", 3), ("p99", 3), ("p999", 3)):  # of four, rounded up
            assert sorted(values)[at] <= result[name] <= min(1.0203 * sorted(values)[at], max(values))


def test_figures_lag_is_reported_by_readyz(serve: Serve, tmp_path: Path) -> None:
    """With the database's lock in other hands nothing can be written, and what was written is read all the same."""
    client = serve(database_url=f"sqlite:///{tmp_path}/audit.db")
    client.post("/v1/policy", json={"moves": ["e2e4"]})
    assert client.get("/readyz").json()["ledger"]["waiting"] == 0
    plain = TestClient(client.app, base_url="http://localhost")  # does not wait until the recorder has written
    other = sqlite3.connect(tmp_path / "audit.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    client.post("/v1/policy", json={"moves": ["d2d4"]})
    until(lambda: plain.get("/readyz").json()["ledger"]["waiting"], "the second answer waits", equals=1)
    answers = {path: plain.get(f"/v1/leakage{path}").json() for path in ("", "/history", "/worst", "/positions")}
    model = plain.get("/v1/models/fake").json()
    lines = plain.get("/v1/leakage/positions", params={"format": "ndjson"})
    assert answers[""]["models"]["fake"]["positions"] == model["leakage"]["positions"] == 1
    assert len(answers["/positions"]["positions"]) == len(lines.text.splitlines()) == 1
    other.execute("ROLLBACK")
    other.close()
    assert client.get("/v1/leakage").json()["models"]["fake"]["positions"] == 2
    assert client.get("/readyz").json()["ledger"]["waiting"] == 0


def test_too_many_readers_are_503(serve: Serve) -> None:
    """Every shared thread and every reader is taken; probes and answers need none of them."""
    client = serve()
    services: Services = client.app.state.services  # type: ignore[attr-defined]
    holding, released = threading.Semaphore(0), threading.Event()

    def hold() -> None:
        holding.release()
        released.wait(60)

    async def taken() -> list[asyncio.Task[Any]]:
        loop = asyncio.get_running_loop()
        limiter = anyio.to_thread.current_default_thread_limiter()
        return [
            *(loop.create_task(services.read(hold)) for _ in range(16)),
            *(loop.create_task(anyio.to_thread.run_sync(hold)) for _ in range(int(limiter.total_tokens))),
        ]

    assert client.portal is not None
    tasks = client.portal.call(taken)
    for _ in range(2 + 40):  # two threads of readers, forty that FastAPI shares
        assert holding.acquire(timeout=60)
    try:
        for path in ("/v1/leakage", "/v1/leakage/history", "/v1/leakage/worst", "/v1/leakage/positions?format=csv"):
            response = client.get(path)
            refused(response, 503, "overloaded")
            assert response.headers["Retry-After"] == "1"
        assert "leakage" not in (model := client.get("/v1/models/fake").json())
        assert model["served"]
        assert client.get("/readyz").status_code == 200
        assert client.get("/livez").status_code == 200
        assert client.post("/v1/policy", json={"moves": []}).status_code == 200
        batch = client.post("/v1/policy/batch", json={"positions": [{"moves": ["e2e4"]}] * 20}).json()
        assert all("moves" in result for result in batch["results"])
    finally:
        released.set()
    client.portal.call(asyncio.wait, tasks)
    assert client.get("/v1/leakage").json()["models"]["fake"]["positions"] == 21


@pytest.mark.parametrize(
    ("path", "body", "counted"),
    [
        ("/v1/policy", {"fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"}, 0),
        ("/v1/policy", {"fen": "x"}, 0),
        ("/v1/policy/batch", {"positions": [{"moves": []}, {"fen": "x"}, {"moves": ["e2e4"]}]}, 2),
        ("/v1/policy/sweep", {"moves": [], "models": ["fake", "fake"]}, 2),
        ("/v1/move", {"moves": []}, 1),
        ("/v1/games", {"pgn": "1. e4 e5 2. Nf3 *"}, 3),
        ("/v1/audit", {"moves": [], "policy": {"e2e4": 1.0}}, 0),
    ],
)
def test_all_answers_are_counted(client: TestClient, path: str, body: dict[str, Any], counted: int) -> None:
    client.post(path, json=body)
    assert client.get("/v1/leakage").json()["models"].get("fake", {"positions": 0})["positions"] == counted
    assert bool(client.get("/v1/leakage/worst").json()["positions"]) == bool(counted)


def test_worst_names_illegal_moves(client: TestClient) -> None:
    answered = answers(client)
    for kind in ("raw", "multiplied"):
        worst = client.get("/v1/leakage/worst", params={"kind": kind, "limit": 2}).json()["positions"]
        expected = sorted((response["leakage"][kind] for response in answered), reverse=True)[:2]
        assert [position[kind] for position in worst] == expected
        for position in worst:
            response = next(response for response in answered if response["fen"] == position["fen"])
            assert position["legal_moves"] == len(response["moves"])
            assert (position["model"], position["digest"]) == ("fake", response["model"]["digest"])
            legal = {move["uci"] for move in response["moves"]}
            masses = [move["probability"] for move in position["illegal"]]
            assert len(masses) == 5
            assert masses == sorted(masses, reverse=True)
            assert not legal & {move["uci"] for move in position["illegal"]}
            assert sum(masses) <= position["raw"]


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("/v1/leakage", LeakageFiguresOut),
        ("/v1/leakage?by=phase&since=1h", LeakageFiguresOut),
        ("/v1/leakage/history", HistoryOut),
        ("/v1/leakage/worst", WorstOut),
        ("/v1/leakage/positions", PositionsOut),
        ("/v1/models/fake", ModelEntryOut),
    ],
)
def test_shapes_match_document(serve: Serve, path: str, schema: type[BaseModel]) -> None:
    client = serve(ledger_kinds="all")
    answers(client)
    held_to(schema, client.get(path).json())


def test_figures_by_model(serve: Serve, tmp_path: Path) -> None:
    write_fake(tmp_path / "m", "a")
    write_fake(tmp_path / "m", "b", trained_with_mask=True)
    client = serve(tmp_path / "m")
    for name in ("a", "b", "b"):
        client.post("/v1/policy", json={"moves": [], "model": name})
    models = client.get("/v1/leakage").json()["models"]
    assert {name: model["positions"] for name, model in models.items()} == {"a": 1, "b": 2}
    assert models["b"]["trained_with_mask"] is True
    assert list(client.get("/v1/leakage", params={"model": "a"}).json()["models"]) == ["a"]
    worst = client.get("/v1/leakage/worst", params={"model": "b"}).json()["positions"]
    assert {position["model"] for position in worst} == {"b"}


def test_figures_by_group(client: TestClient) -> None:
    client.post("/v1/policy", json={"moves": [], "elo": {"self": 1500, "opponent": 1500}})
    client.post("/v1/policy", json={"moves": ["e2e4"]})
    client.post("/v1/policy", json={"fen": "4k3/8/8/8/8/8/4q3/4K3 w - - 0 60"})
    expected = {
        "side": {"white": 2, "black": 1},
        "phase": {"opening": 2, "endgame": 1},
        "in_check": {"true": 1, "false": 2},
        "legal_moves": {"1": 1, "20-29": 2},
        "elo": {"1400-1599": 1, "unknown": 2},
    }
    for by, groups in expected.items():
        model = client.get("/v1/leakage", params={"by": by}).json()["models"]["fake"]
        assert {group: result["positions"] for group, result in model["by"][by].items()} == groups
        assert set(next(iter(model["by"][by].values()))["kinds"]) == {"raw", "multiplied", "unnormalised", "served"}
    assert "by" not in client.get("/v1/leakage", params={"by": "model"}).json()["models"]["fake"]


@pytest.mark.parametrize(("threshold", "least", "most"), [(1e-9, 0.999999, 1.000001), (0.003, 0.01, 0.99)])
def test_figures_by_cause(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, threshold: float, least: float, most: float
) -> None:
    monkeypatch.setattr(services_module, "ledger_plan", lambda _: Plan(threshold=threshold))
    client = serve()
    raw = sum(response["leakage"]["raw"] for response in answers(client))
    causes = client.get("/v1/leakage", params={"by": "cause"}).json()["models"]["fake"]["by"]["cause"]
    for result in causes.values():  # shares are of all raw mass
        assert result["share"] == pytest.approx(result["kinds"]["raw"]["mean"] * result["kinds"]["raw"]["count"] / raw)
        # A part of a position's mass has no best move and no divergence of its own.
        assert set(result["kinds"]["raw"]) == {"count", "mean", "max", "p50", "p95", "p99", "p999"}
    shares = [result["share"] for result in causes.values()]
    assert shares == sorted(shares, reverse=True)
    assert least < sum(shares) < most


def test_all_kinds_setting(serve: Serve) -> None:
    client = serve(ledger_kinds="all")
    answers(client)
    (position,) = client.get("/v1/leakage/worst", params={"kind": "rounded", "limit": 1}).json()["positions"]
    assert set(client.get("/v1/leakage").json()["models"]["fake"]["kinds"]) == set(position["kinds"]) == set(KINDS)


def test_ledger_share_setting(serve: Serve) -> None:
    client = serve(ledger_share=0.5)
    for _ in range(40):
        client.post("/v1/policy", json={"moves": []})
        figures = client.get("/v1/leakage")  # waits until the answer is in them: answers of 0.4 s are drawn together
    kinds = figures.json()["models"]["fake"]["kinds"]
    assert kinds["raw"]["count"] == 40
    assert 0 < kinds["rounded"]["count"] < 40  # by chance otherwise once in 2 ** 39 runs
    assert kinds["rounded"]["count"] == kinds["unmirrored"]["count"]


def test_figures_of_time_span(client: TestClient) -> None:
    answers(client)
    for since in ("1h", "2020-01-01", "2020-01-01T00:00:00+01:00", "1577836800"):
        model = client.get("/v1/leakage", params={"since": since}).json()["models"]["fake"]
        assert model["positions"] == 4
        assert model["until"] - model["since"] in (600, 1200)  # the clock may have passed ten minutes
    plus = "2020-01-01T00:00:00+01:00"
    assert client.get(f"/v1/leakage?since={plus}").json() == client.get("/v1/leakage", params={"since": plus}).json()
    assert client.get("/v1/leakage", params={"until": "1d"}).json()["models"] == {}
    assert client.get("/v1/leakage/worst", params={"until": "1d"}).json()["positions"] == []


@pytest.mark.parametrize(
    ("path", "params", "words"),
    [
        ("", {"since": "yesterday"}, "since: 'yesterday' is not a time; write an ISO 8601 time"),
        ("", {"since": "1h", "until": "2h"}, "since: '1h' is not before until, '2h'"),
        ("/history", {"bucket": "1m"}, "bucket: Input should be '10m', '1h' or '1d'"),
        ("/positions", {"cursor": "x"}, "got 'x'; use `next` of the previous page"),
        ("/positions", {"limit": 1001}, "limit: 1001, at most 1000 as JSON"),
        ("/worst", {"kind": "served"}, "kind: 'served' cannot be ranked, it is always 0; available: raw"),
    ],
)
def test_invalid_parameters_are_named(client: TestClient, path: str, params: dict[str, Any], words: str) -> None:
    response = client.get(f"/v1/leakage{path}", params=params)
    assert (response.status_code, words in response.json()["detail"]) == (422, True)


def test_history_buckets(client: TestClient) -> None:
    answered = answers(client)
    for bucket, seconds in (("10m", 600), ("1h", 3600), ("1d", 86400)):
        model = client.get("/v1/leakage/history", params={"bucket": bucket}).json()["models"]["fake"]
        assert {item["seconds"] for item in model["buckets"]} == {seconds}
        assert sum(item["positions"] for item in model["buckets"]) == 4
        last = model["buckets"][-1]
        assert last["start"] % seconds == 0
        assert last["kinds"]["raw"]["max"] <= max(response["leakage"]["raw"] for response in answered)


def test_position_pages_are_stable(client: TestClient) -> None:
    fens = [response["fen"] for response in answers(client)]
    first = client.get("/v1/leakage/positions", params={"limit": 3}).json()
    client.post("/v1/policy", json={"moves": ["b1c3"]})
    rest = client.get("/v1/leakage/positions", params={"limit": 3, "cursor": first["next"]}).json()
    assert [item["fen"] for item in first["positions"] + rest["positions"]] == fens[::-1]
    assert rest["next"] is None
    assert first["positions"][0]["kinds"]["raw"]["leaked"] == first["positions"][0]["raw"]


def test_export_holds_one_page_in_memory() -> None:
    """Two hundred slow readers held a gigabyte."""

    class Rows(list[Any]):
        pass

    pages: list[Any] = []

    def page(size: int, before: int | None) -> Any:
        first = 1_000 if before is None else before
        rows = Rows({"id": number} for number in range(first - 1, max(first - 1 - size, 0), -1))
        pages.append(weakref.ref(rows))
        return rows

    ids: list[int] = []
    for part in _parts(page, None, 250, lambda rows: b"".join(b"%d\n" % row["id"] for row in rows), b""):
        assert pages[-1]() is None
        ids += map(int, part.split())
    assert ids == list(range(999, 749, -1))
    assert len(pages) == 3


@pytest.mark.parametrize(("query", "accept"), [("?format=csv", "*/*"), ("", "text/csv")])
def test_positions_as_csv(client: TestClient, query: str, accept: str) -> None:
    answered = answers(client)
    text = client.get(f"/v1/leakage/positions{query}", headers={"Accept": accept})
    assert text.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(text.text)))
    assert [row["fen"] for row in rows] == [response["fen"] for response in answered][::-1]
    assert [float(row["raw"]) for row in rows] == [response["leakage"]["raw"] for response in answered][::-1]
    assert rows[0]["rounded"] == ""
    assert datetime.fromisoformat(rows[0]["time_utc"]).timestamp() == pytest.approx(float(rows[0]["time"]), abs=1e-3)
    assert rows[0]["trained_with_mask"] == "false"


def test_positions_as_ndjson_without_limit(client: TestClient) -> None:
    positions = [{"moves": [move]} for move in MOVES] * 300
    for start in range(0, len(positions), 600):
        client.post("/v1/policy/batch", json={"positions": positions[start : start + 600]})
    response = client.get("/v1/leakage/positions", headers={"accept": "application/x-ndjson"})
    result = [json.loads(line) for line in response.text.splitlines()]
    assert len(result) == 1200
    times = [item["time"] for item in result]
    assert times == sorted(times, reverse=True)
    assert len(client.get("/v1/leakage/positions", params={"format": "ndjson", "limit": 5}).text.splitlines()) == 5


def leaking_policies(codes: Index, logits: Float, indptr: Index, rules: Sequence[Normalisation]) -> Policies:
    """The policies, each with an illegal move in the place of its best: e2e5."""
    right = policies(codes, logits, indptr, rules)
    moves = right.codes.copy()
    moves[right.indptr[:-1]] = code_of(chess.Move.from_uci("e2e5"))
    return replace(right, codes=moves)


def test_leaking_answer_is_withheld(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(evaluate, "policies", leaking_policies)
    response = client.post("/v1/policy", json={"moves": []})
    refused(response, 500, "served-leakage")
    assert "e2e4" not in response.text
    results = client.post("/v1/policy/batch", json={"positions": [{"moves": []}, {"moves": []}]}).json()["results"]
    assert [result["error"]["status"] for result in results] == [500, 500]
    for accept in ("application/json", "application/x-chess-pgn"):
        games = client.post("/v1/games", json={"pgn": "1. e4 *\n\n1. d4 *"}, headers={"Accept": accept})
        assert games.text.count("on illegal moves") == 2
    assert "movemask_served_leakage_total 7.0" in client.get("/metrics").text
    assert caplog.text.count("on illegal moves") == 7
    assert client.get("/v1/leakage").json()["models"] == {}


def test_times_as_seconds_and_rfc_3339(client: TestClient) -> None:
    client.post("/v1/policy", json={"moves": []})

    def pairs(node: Any) -> list[tuple[float, str]]:
        if isinstance(node, list):
            return [pair for item in node for pair in pairs(item)]
        parts = node if isinstance(node, dict) else {}
        own = [(value, parts[f"{name}_utc"]) for name, value in parts.items() if f"{name}_utc" in parts]
        return own + [pair for value in parts.values() for pair in pairs(value)]

    for path, most in (("?since=1h", 2), ("/history", 1), ("/worst", 1), ("/positions", 1)):
        times = pairs(client.get(f"/v1/leakage{path}").json())
        assert len(times) == most
        for seconds, text in times:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
            assert datetime.fromisoformat(text).timestamp() == pytest.approx(seconds, abs=1e-3)
            assert client.get("/v1/leakage", params={"since": text}).status_code == 200
