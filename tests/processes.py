"""Processes that tests start: the service and other commands, ended with all that they have started in turn."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner, Result

from movemask.cli.main import main

ROOT = Path(__file__).parent.parent

T = TypeVar("T")


def run(*arguments: object, input: str | bytes | None = None) -> Result:
    """`movemask ARGUMENTS…` in this process."""
    return CliRunner().invoke(main, [*map(str, arguments)], input=input, catch_exceptions=False)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def call(port: int, path: str, body: Any = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read().decode()
    return text if path == "/metrics" else json.loads(text)


def environment(**more: str) -> dict[str, str]:
    """Of a process that imports the service from this checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "service"), **more}


def with_packages(site: Path, *names: str) -> dict[str, str]:
    """The environment of a Python, run with -S, that has these packages alone, and the service from this checkout."""
    site.mkdir(exist_ok=True)
    for one in distributions():
        if re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower() in names:
            for top in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
                if not (site / top).exists():
                    (site / top).symlink_to(str(one.locate_file(top)))
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'service'}:{site}"}


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own; the whole group is killed at the end."""
    with subprocess.Popen(command, start_new_session=True, **{"env": environment(), **options}) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def served(
    models: Path, *arguments: str, port: int | None = None, program: Sequence[str] = ("-m", "movemask"), **options: Any
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The service, once it answers, and its port, free if none is given; its log is log.txt in the models folder."""
    command = [sys.executable, *program, "serve", "--port", str(port or 0), "--models-dir", str(models), *arguments]
    file = models / "log.txt"
    with open(file, "ab") as log, started(command, cwd=models, stderr=log, stdout=log, **options) as process:
        before = log.tell()

        def ready() -> int:
            written = file.read_bytes()[before:]
            assert process.poll() is None, written.decode()
            listening = re.search(rb"listening on \S+:(\d+)", written)
            if not listening:
                return 0
            call(int(listening[1]), "/readyz")
            return int(listening[1])

        yield process, until(ready, "the service is ready")


def certificate(folder: Path, days: int = 2) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, signed by itself, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", str(days), "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def stopped(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(30)


#: Any value that is true.
_TRUE = object()


def until(condition: Callable[[], T], what: str, seconds: float = 300, *, equals: object = _TRUE) -> T:
    """Waits until a condition is true, or equals a value, and returns it.

    An OSError, such as of a server that is not up, does not meet it. After `seconds`, which are many for a busy
    machine, it fails, and says `what` should have happened and what the condition gave or raised last.
    """
    end = time.monotonic() + seconds
    while True:
        last: object
        try:
            last = value = condition()
            if value if equals is _TRUE else value == equals:
                return value
        except OSError as error:
            last = error
        assert time.monotonic() < end, f"not in {seconds:g} s: {what}; last: {last!r}"
        time.sleep(0.02)


def serving(models: Path, count: int, process_id: int) -> set[int]:
    """The workers of a service, once so many have begun to serve, those that have ended included."""
    log = models / "log.txt"
    until(lambda: len(re.findall(r"worker \d+ serves", log.read_text())) == count, f"{count} workers serve")
    return workers(process_id)


def running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> set[int]:
    """The processes that a process has started and that run."""
    pids: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            pids.update(map(int, task.read_text().split()))
    return set(filter(running, pids))


def workers(pid: int) -> set[int]:
    """The processes that Python's multiprocessing has started for a process; its resource tracker left out."""
    return {child for child in children(pid) if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()}
