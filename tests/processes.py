"""The service as a process of its own, for tests that stop, kill or double it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ports import free_port

ROOT = Path(__file__).parent.parent


def call(port: int, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read().decode()
    return text if path == "/metrics" else json.loads(text)


@contextmanager
def served(models: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    command = [sys.executable, "-m", "service", "serve", "--port", str(port), "--models-dir", str(models), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open(models / "log.txt", "ab") as log:
        process = subprocess.Popen(command, cwd=models, env=environment, stderr=log, stdout=log)
    try:
        for _ in range(300):
            if process.poll() is not None:
                raise AssertionError((models / "log.txt").read_text())
            try:
                call(port, "/readyz")
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        yield process, port
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def stopped(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(30)
