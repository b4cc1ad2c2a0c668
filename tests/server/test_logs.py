"""Log lines: text and JSON, request ids, forged input, slow readers of standard error."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from movemask.server import logs
from movemask.server.ledger.reader import LedgerReader
from movemask.server.logs import JsonFormatter, TextFormatter
from movemask.server.problems import CONTENT_TYPE
from movemask.times import rfc3339
from tests.conftest import Serve
from tests.processes import call, served, serving, started, stopped
from tests.server.ledger.records import opened

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def record(message: str, level: int = logging.INFO, **more: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "x", "levelno": level, "levelname": "INFO", "msg": message, **more})


def test_client_input_cannot_forge_lines() -> None:
    forged = "a\n2026-10-17T12:00:00.000Z INFO    access: GET /forged 200\r\x1b[2J\u2028"
    line = TextFormatter().format(record(forged))
    assert "\n" not in line
    assert line.isprintable()
    assert json.loads(JsonFormatter().format(record("a\nb")))["message"] == "a\nb"
    try:
        raise ValueError(forged)
    except ValueError:
        first, *rest = TextFormatter().format(record("a fault", exc_info=sys.exc_info())).split("\n")
    assert first.endswith("x: a fault")
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert "forged" in "".join(rest)


WITHOUT_A_READER = """
import logging, sys
from movemask.server import logs
logs.configure("info", "text")
for number in range(2 * logs.QUEUE):  # far more than a pipe holds: this would never end
    logging.info("%01000d", number)
print("all are logged", flush=True)
if sys.stdin.read():
    logging.info("the last")
    logs.flush(60)
"""


def test_blocked_stderr_does_not_block_logging() -> None:
    command = [sys.executable, "-c", WITHOUT_A_READER]
    with started(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"all are logged\n"
        process.wait(60)  # it ends too


def test_lost_lines_are_reported_once() -> None:
    command = [sys.executable, "-c", WITHOUT_A_READER]
    with started(command, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"all are logged\n"
        lines = [process.stderr.readline() for _ in range(logs.QUEUE * 3 // 4)]
        process.stdin.write(b"go on")
        process.stdin.close()
        lines += process.stderr.readlines()
    counts = [int(line.split()[3]) for line in lines if b" log lines were lost: " in line]
    assert len(counts) == 1
    assert len(lines) + counts[0] == 2 * logs.QUEUE + len([b"the last", b"told"])


def test_access_lines_have_own_times_in_order(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.configure("info", "text")
    moments = [1.0, 2.5, 1e9]
    for moment in moments:
        monkeypatch.setattr("movemask.server.logs.time.time", lambda moment=moment: moment)
        logs.access("GET", "/x", 200, moment, 1, "id", None, debug=False)
    logs.access("GET", "/livez", 200, 0.0, 0, "id", None, debug=True)
    logs.flush(10)
    line = "INFO    access: GET /x 200 ms=%.3f positions=1 request_id=id"
    assert capfd.readouterr().err.splitlines() == [f"{rfc3339(moment)} {line % (1e3 * moment)}" for moment in moments]


REQUESTS = """
from movemask.server import logs
logs.configure("info", "text")
for number in range(5_000):
    logs.access("GET", "/" + "x" * (number % 90), 200, 0.001, 1, str(number), None, debug=False)
print("all are logged", flush=True)
logs.flush(60)
"""


def test_lines_of_several_processes_stay_whole_in_a_pipe() -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-c", REQUESTS]
    options = {"stdout": PIPE, "stderr": writing}
    with started(command, **options) as one, started(command, **options) as other, open(reading) as lines:
        os.close(writing)
        for process in (one, other):  # more than a pipe holds waits in each
            assert process.stdout is not None
            assert process.stdout.readline() == b"all are logged\n"
        whole = re.compile(rf"{TIME} INFO    access: GET /x* 200 ms=1.000 positions=1 request_id=\d+\n")
        assert sum(bool(whole.fullmatch(line)) for line in lines) == 10_000
        assert one.wait(60) == other.wait(60) == 0


def test_supervisor_and_workers_log_json(models: Path) -> None:
    with served(models, "--log-format", "json", "--workers", "2", "--mcp") as (process, port):
        serving(models, 2, process.pid)
        call(port, "/v1/policy", {"moves": []})
        call(port, "/v1/policy/batch", {"positions": [{"moves": []}, {"moves": ["e2e4"]}]})
        assert stopped(process) == 0
    with opened(f"sqlite:///{models}/movemask.db") as ledger:
        assert [model.positions for model in LedgerReader(ledger.database).summaries()] == [
            3
        ]  # nothing is lost by a stop
    lines = [json.loads(line) for line in (models / "log.txt").read_text().splitlines()]
    assert all(re.fullmatch(TIME, line["time"]) for line in lines)
    assert any("listening on http" in line["message"] for line in lines)
    assert not [line for line in lines if "Warning" in line["message"]]
    access = [line for line in lines if line["logger"] == "access" and line["route"] != "/readyz"]
    requests = sorted((line["route"], line["status"], line["positions"]) for line in access)
    assert requests == [("/v1/policy", 200, 1), ("/v1/policy/batch", 200, 2)]  # each once
    ended = [line["pid"] for line in lines if line["message"] == "worker has finished"]
    assert len(ended) == len(set(ended)) == 2
    assert len({line["pid"] for line in lines}) == 3


def test_text_lines_have_time_and_level(models: Path) -> None:
    with served(models) as (process, port):
        call(port, "/v1/policy", {"moves": []})
        assert stopped(process) == 0
    lines = (models / "log.txt").read_text().splitlines()
    assert len(lines) < 10  # a first start is quiet
    assert all(re.match(rf"{TIME} (INFO|WARNING) +[\w.]+: ", line) for line in lines)
    access_line = re.compile(r"access: POST /v1/policy 200 ms=[\d.]+ positions=1 request_id=[0-9a-f]{32}$")
    assert any(map(access_line.search, lines))


HEADER = "X-Request-ID"


@pytest.mark.parametrize("request_id", ["7", "6d0f3a1b-9c0e-4c7f-8a52-d1e07b3c9f44", "a" * 128, "a.b:c/d+e=f@g_h"])
def test_request_id_is_returned(client: TestClient, request_id: str) -> None:
    for answer in (client.post("/v1/policy", json={"moves": []}, headers={HEADER: request_id}), client.get("/livez")):
        assert len(answer.headers.get_list(HEADER)) == 1
    assert client.get("/livez", headers={HEADER: request_id}).headers[HEADER] == request_id


@pytest.mark.parametrize("request_id", ["", "a" * 129, "a b", 'a"b', "a,b", "ä".encode(), "\x1b[31m"])
def test_unsafe_request_id_is_replaced(client: TestClient, request_id: str | bytes) -> None:
    response = client.get(
        "/livez", headers=[(b"X-Request-ID", request_id if isinstance(request_id, bytes) else request_id.encode())]
    )
    assert len(response.headers[HEADER]) == 32
    assert int(response.headers[HEADER], 16) >= 0


def test_request_ids_are_unique(client: TestClient) -> None:
    assert len({client.get("/livez").headers[HEADER] for _ in range(50)}) == 50


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/policy", b'{"fen": "x"}', 422),
        ("POST", "/v1/policy", b"{", 400),
        ("POST", "/v1/policy", b'{"model": "none", "moves": []}', 404),
        ("POST", "/v1/policy", b'{"fen": "' + b"x" * 4000 + b'"}', 413),
        ("GET", "/none", b"", 404),
        ("PUT", "/v1/policy", b"", 405),
    ],
)
def test_problems_have_request_id(serve: Serve, method: str, path: str, body: bytes, status: int) -> None:
    client = serve(max_body_bytes=1024)
    answer = client.request(method, path, content=body, headers={"Content-Type": "application/json", HEADER: "mine"})
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == CONTENT_TYPE
    assert answer.json()["request_id"] == answer.headers[HEADER] == "mine"


def test_batch_items_have_no_request_id(client: TestClient) -> None:
    answer = client.post("/v1/policy/batch", json={"positions": [{"fen": "x"}, {"moves": []}]})
    bad, good = answer.json()["results"]
    assert "request_id" not in bad["error"]
    assert "request_id" not in good


def test_internal_error_has_request_id(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise RuntimeError("a bug")

    assert isinstance(client.app, FastAPI)
    client.app.add_api_route("/broken", broken)
    with caplog.at_level(logging.INFO):
        answer = client.get("/broken", headers={HEADER: "mine"})
    assert answer.status_code == 500
    assert answer.json()["request_id"] == answer.headers[HEADER] == "mine"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "GET other 500" in caplog.text, "the table of routes was made before the route was added"


def test_access_lines_count_positions_and_hide_bodies(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    mate = "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"
    pgn = "1. e4 e5 2. Nf3 *"
    requests = [
        ("/v1/policy", {"fen": mate}, 1),
        ("/v1/policy/batch", {"positions": [{"fen": "secret"}, {"fen": mate}, {"moves": ["e2e4"]}]}, 2),
        ("/v1/games", {"pgn": pgn}, 3),
        ("/v1/audit", {"policy": {"e2e4": 1.0}}, 0),
        ("/v1/policy", {"fen": "secret"}, 0),
        ("/none?key=secret", {}, 0),
    ]
    client.headers[HEADER] = "mine"  # a drawn id may hold e2e4
    with caplog.at_level(logging.DEBUG):
        for path, body, _ in requests:
            client.post(path, json=body)
        stream = {"Accept": "application/x-ndjson"}
        client.post("/v1/policy/batch", json={"positions": [{"moves": []}] * 70}, headers=stream)
    lines = [one for one in caplog.records if one.name == "access"]
    assert [one.args[4] for one in lines] == [*(count for _, _, count in requests), 70]  # type: ignore[index]
    own = [one.getMessage() for one in caplog.records if one.name.startswith(("access", "movemask"))]
    assert not [line for line in own if "secret" in line or "e2e4" in line or "Nf3" in line]
