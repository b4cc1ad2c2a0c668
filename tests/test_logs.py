"""What an operator would lose: log lines that can be read, found by request, and that never hold up a request."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

from movemask.logs import JsonFormatter, QueuedHandler, TextFormatter
from movemask.store.reader import Figures
from tests.processes import call, served, serving, stopped
from tests.store.records import opened

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def record(message: str, level: int = logging.INFO, **more: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "x", "levelno": level, "levelname": "INFO", "msg": message, **more})


def test_what_a_client_sends_cannot_make_a_line_of_its_own() -> None:
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


def test_a_reader_that_does_not_read_holds_up_nobody_and_what_it_missed_is_counted() -> None:
    reader, writer = os.pipe()
    dropped: list[int] = []
    handler = QueuedHandler(writer, limit=100, dropped=dropped.append)
    handler.setFormatter(logging.Formatter("%(message)s"))
    sent = 5_000
    for number in range(sent):  # far more than a pipe holds: this would never end
        handler.handle(record(f"{number:01000}", logging.WARNING))
    found = bytearray()

    def read() -> None:
        while part := os.read(reader, 1 << 16):
            found.extend(part)
            if found.endswith(b"end\n"):
                return

    reading = threading.Thread(target=read)
    reading.start()
    handler.close()
    os.write(writer, b"end\n")
    reading.join()
    os.close(reader)
    os.close(writer)
    lines = found.decode().splitlines()[:-1]
    numbers = [int(line) for line in lines if "dropped" not in line]
    told = [int(line.split()[1]) for line in lines if "dropped" in line]
    assert numbers == sorted(numbers)
    assert sum(told) == sum(dropped) == sent - len(numbers) > 0


def test_parent_and_workers_log_the_same_json(models: Path) -> None:
    with served(models, "--log-format", "json", "--workers", "2", "--mcp", "true") as (process, port):
        serving(models, 2, process.pid)
        call(port, "/v1/policy", {"moves": []})
        call(port, "/v1/policy/batch", {"positions": [{"moves": []}, {"moves": ["e2e4"]}]})
        assert stopped(process) == 0
    with opened(f"sqlite:///{models}/movemask.db") as store:
        assert [model.positions for model in Figures(store.database).models()] == [3]  # nothing is lost by a stop
    lines = [json.loads(line) for line in (models / "log.txt").read_text().splitlines()]
    assert all(re.fullmatch(TIME, line["time"]) for line in lines)
    assert any("listening on http" in line["message"] for line in lines)
    assert not [line for line in lines if "Warning" in line["message"]]
    access = [line for line in lines if line["logger"] == "access" and line["route"] != "/readyz"]
    told = sorted((line["route"], line["status"], line["positions"]) for line in access)
    assert told == [("/v1/policy", 200, 1), ("/v1/policy/batch", 200, 2)]  # each once
    ended = [line["pid"] for line in lines if line["message"].startswith("Finished server process")]
    assert len(ended) == len(set(ended)) == 2
    assert len({line["pid"] for line in lines}) == 3


def test_text_lines_have_a_time_and_a_level(models: Path) -> None:
    with served(models) as (process, port):
        call(port, "/v1/policy", {"moves": []})
        assert stopped(process) == 0
    lines = (models / "log.txt").read_text().splitlines()
    assert len(lines) < 10  # a first start is quiet
    assert all(re.match(rf"{TIME} (INFO|WARNING) +[\w.]+: ", line) for line in lines)
    shown = re.compile(r"access: POST /v1/policy 200 ms=[\d.]+ positions=1 request_id=[0-9a-f]{32}$")
    assert any(map(shown.search, lines))
