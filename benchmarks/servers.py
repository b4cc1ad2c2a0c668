"""Servers to be measured, each a process of its own on a free port: ours, and the peers that are installed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from movemask.network.model import Model

ROOT = Path(__file__).parent.parent

#: Seconds that a server gets to start.
_PATIENCE = 60

#: Seconds of CPU time in a second that a server at rest takes at most.
_AT_REST = 0.1


class CannotStart(Exception):
    """A server that ended, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers: its port and its process."""

    port: int
    process: subprocess.Popen[bytes]

    def cpu_seconds(self) -> float:
        """Time of processors that the process and its children have had."""
        return sum(_cpu(Path(f"/proc/{pid}")) for pid in family(self.process.pid))

    def thread_seconds(self) -> dict[tuple[int, str], float]:
        """CPU time of each thread of the process and its children, by its id and its name (15 characters of it)."""
        tasks = [task for pid in family(self.process.pid) for task in Path(f"/proc/{pid}/task").iterdir()]
        seconds = {}
        for task in tasks:
            with suppress(FileNotFoundError):  # the thread has ended
                seconds[int(task.name), (task / "comm").read_text().strip()] = _cpu(task)
        return seconds

    def settle(self) -> None:
        """Waits until it rests for a second: a server may answer while others of its workers still start."""
        before, now = -1.0, self.cpu_seconds()
        while now - before > _AT_REST:
            time.sleep(1)
            before, now = now, self.cpu_seconds()


@contextmanager
def movemask(models: Path, default: str, root: Path = ROOT, **settings: object) -> Iterator[Server]:
    """`movemask serve` of a checkout, with everything at its default but what is given."""
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        environment = {
            "PYTHONPATH": f"{root / 'service'}:{ROOT}:{ROOT / 'benchmarks' / 'thread_names'}",
            "MOVEMASK_MODELS_DIR": str(models),
            "MOVEMASK_DEFAULT_MODEL": default,
            "MOVEMASK_DATABASE_URL": f"sqlite:///{folder}/ledger.db",
            "MOVEMASK_PORT": str(port),
            "MOVEMASK_LOG_LEVEL": "warning",
            **{f"MOVEMASK_{name.upper()}": str(value) for name, value in settings.items()},
        }
        with _running([sys.executable, "-m", "movemask", "serve"], port, environment, Path(folder)) as server:
            yield server


@contextmanager
def bare_route() -> Iterator[Server]:
    """A FastAPI app with one route, which answers requests like ours with nothing."""
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        command = ["-m", "uvicorn", "benchmarks.peers.bare_route:app", "--no-access-log", "--port", str(port)]
        with _running([sys.executable, *command], port, {}, Path(folder)) as server:
            yield server


#: Each peer's name, the module it needs, and its command.
PEERS = {
    "a plain FastAPI handler": ("fastapi", ["-m", "uvicorn", "benchmarks.peers.fastapi_server:app", "--port", "PORT"]),
    "LitServe": ("litserve", ["-m", "benchmarks.peers.litserve_server", "PORT"]),
    "BentoML": ("bentoml", ["-m", "bentoml", "serve", "benchmarks.peers.bentoml_server:Policy", "--port", "PORT"]),
}


@contextmanager
def peer(name: str, python: str, model: Model, network: Path) -> Iterator[Server]:
    """A peer with the same network, run by the Python that it is installed in; raises CannotStart."""
    module, command = PEERS[name]
    if subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode:
        raise CannotStart(f"{module} is not installed for {Path(python).name}")
    with tempfile.TemporaryDirectory() as folder:
        slots = Path(folder) / "slots.json"
        slots.write_text(json.dumps(model.vocabulary.names()))
        port = _free_port()
        environment = {
            "PEER_NETWORK": str(network),
            "PEER_SLOTS": str(slots),
            "PEER_LOGITS": model.contract.outputs.logits,
            "BENTOML_DO_NOT_TRACK": "True",
            "BENTOML_HOME": folder,
        }
        arguments = [str(port) if part == "PORT" else part for part in command]
        with _running([python, *arguments], port, environment, Path(folder)) as server:
            yield server


@contextmanager
def _running(command: list[str], port: int, environment: Mapping[str, str], folder: Path) -> Iterator[Server]:
    with open(folder / "log", "wb") as log:
        started = time.perf_counter()
        # A session of its own, so that what it starts can be ended with it: not every server sees to that.
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'service'}:{ROOT}", **environment},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            while not _answers(port):
                if process.poll() is not None or time.perf_counter() - started > _PATIENCE:
                    last = (folder / "log").read_text(errors="replace").strip().splitlines()[-1:]
                    raise CannotStart(f"{command[1:3]} did not start: {' '.join(last)}")
                time.sleep(0.01)
            server = Server(port, process)
            server.settle()
            yield server
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _answers(port: int) -> bool:
    """Whether an HTTP server answers anything at all there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as opened:
            opened.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return opened.recv(16).startswith(b"HTTP/1.1 ")
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
        return port


def family(pid: int) -> list[int]:
    """A process and all below it."""
    pids = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        pids += [one for child in task.read_text().split() for one in family(int(child))]
    return pids


def _cpu(process: Path) -> float:
    """CPU time of a process or a thread by its folder in /proc, in seconds."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
