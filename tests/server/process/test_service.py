"""The service process: concurrent answers, starts that fail, stops, and what it imports."""

from __future__ import annotations

import concurrent.futures
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

import pytest

from movemask.errors import SettingsError
from movemask.server.process.listening import Port
from tests.ground_truth import played
from tests.parts import part_of
from tests.processes import (
    call,
    certificate,
    environment,
    free_port,
    running,
    served,
    serving,
    started,
    stopped,
    until,
)


@pytest.mark.deep
def test_64_concurrent_clients_are_answered_in_batches(models: Path) -> None:
    boards = [board for _, board in zip(range(200), played(random.Random(0), 200), strict=True)]
    fens = [board.fen(en_passant="fen") for board in boards]

    def probabilities(answer: Any) -> dict[str, float]:
        return {move["uci"]: move["probability"] for move in answer["moves"]}

    with served(models) as (process, port):
        results = call(port, "/v1/policy/batch", {"positions": [{"fen": fen} for fen in fens]})["results"]
        expected = list(map(probabilities, results))
        assert [set(policy) for policy in expected] == [{move.uci() for move in board.legal_moves} for board in boards]

        def client(seed: int) -> None:
            choose = random.Random(seed)
            for place in choose.choices(range(len(fens)), k=5):
                policy = probabilities(call(port, "/v1/policy", {"fen": fens[place]}))
                assert policy == pytest.approx(expected[place], abs=1e-5)
                assert not policy or abs(sum(policy.values()) - 1) < 1e-12

        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            list(pool.map(client, range(64)))
        metrics = call(port, "/metrics").splitlines()
        ones, runs = (
            float(next(line for line in metrics if line.startswith(name)).split()[-1])
            for name in ('movemask_batch_size_bucket{le="1.0"', "movemask_batches_total{")
        )
        assert ones < runs, "no batch was larger than one"
        assert stopped(process) == 0


@pytest.mark.parametrize(("workers", "sent"), part_of([("2", 200), ("1", 20)], 2))
def test_request_that_began_before_sigterm_is_answered(models: Path, workers: str, sent: int) -> None:
    def refused() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            pass
        return False

    body = b'{"moves": []}' + b" " * 1000
    head = "POST /v1/policy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    post = head.encode() + body
    with served(models, "--workers", workers) as (process, port):
        with socket.create_connection(("127.0.0.1", port), 30) as stream:
            stream.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while b"alive" not in stream.recv(65_536):
                pass
            stream.sendall(post[:sent])
            process.send_signal(signal.SIGTERM)
            until(refused, "new connections are refused")
            stream.sendall(post[sent:])
            answer = b""
            while piece := stream.recv(65_536):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer
        assert process.wait(30) == 0


@pytest.mark.deep
def test_open_tls_connections_do_not_delay_a_stop(models: Path) -> None:
    cert, key = certificate(models)
    port = free_port()
    command = [sys.executable, "-m", "movemask", "serve", "--port", str(port), "--models-dir", str(models)]
    command += ["--tls-cert", str(cert), "--tls-key", str(key), "--keep-alive-seconds", "60"]
    trusted = ssl.create_default_context(cafile=str(cert))
    with (models / "log.txt").open("wb") as log, started(command, cwd=models, stdout=log, stderr=log) as process:
        serving(models, 1, process.pid)
        streams = []
        for _ in range(5):
            plain = socket.create_connection(("127.0.0.1", port), 30)
            streams.append(trusted.wrap_socket(plain, server_hostname="127.0.0.1"))
            streams[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert streams[-1].recv(12) == b"HTTP/1.1 200"
        assert stopped(process) == 0
        for stream in streams:
            stream.close()
    assert not re.search(
        "timeout graceful shutdown exceeded|Traceback|cannot be checked", (models / "log.txt").read_text()
    )


def test_failing_start_prints_one_line_and_exits_1(models: Path) -> None:
    with pytest.raises(SettingsError, match="MOVEMASK_HOST: cannot listen on x y:"):
        Port("x y", 0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        for workers, words, arguments in [
            (
                "1",
                "--port: cannot listen on 127.0.0.1:.*: address already in use; give another --port",
                ("--port", port),
            ),
            ("2", "--default-model: no model 'nope'; available: net", ("--default-model", "nope")),
        ]:
            command = [sys.executable, "-m", "movemask", "serve", "--port", "0", "--models-dir", str(models)]
            command += ["--workers", workers, *arguments]
            with started(command, cwd=models, stdout=PIPE, stderr=STDOUT) as process:
                output = process.communicate(timeout=60)[0].decode()
            assert (process.returncode, len(output.splitlines())) == (1, 1), output
            assert re.search("^Error: " + words, output)


@pytest.mark.parametrize("workers", part_of(["2", "1"], 2))
def test_start_that_fails_late_never_says_listening(models: Path, workers: str) -> None:
    command = [sys.executable, "-m", "movemask", "serve", "--port", "0", "--models-dir", str(models)]
    command += ["--workers", workers, "--ledger-kinds", "none"]
    with started(command, cwd=models, stdout=PIPE, stderr=STDOUT) as process:
        output = process.communicate(timeout=300)[0].decode()
    assert process.returncode == 1, output
    assert "starting on http://" in output
    assert "listening" not in output
    assert output.splitlines()[-1].startswith("Error: --ledger-kinds: there is no none; available: ")
    assert "uvicorn" not in output
    assert "Traceback" not in output


IMPORTS = """
import sys
from movemask.server.process import service
print(*sorted({name.partition(".")[0] for name in sys.modules}))
print(*sorted(name for name in sys.modules if name.startswith("movemask.server.")))
"""


def test_supervisor_imports_no_app() -> None:
    """It stays small: a worker with its app has three times the memory."""
    command = [sys.executable, "-c", IMPORTS]
    output = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout
    packages, modules = map(str.split, output.splitlines())
    assert {"fastapi", "starlette", "uvicorn", "onnxruntime", "sqlalchemy", "mcp"}.isdisjoint(packages)
    assert {"movemask.server.app", "movemask.server.process.worker"}.isdisjoint(modules)
    assert "movemask.server.process.worker_start" in modules


#: Serves, and is sent SIGTERM in a callback of the garbage collector, where nothing can be raised.
STOPPED_EARLY = """
import gc, os, signal, sys
from movemask.cli.main import main
from movemask.server.process import service

def stop(phase, info):
    gc.callbacks.remove(stop)
    os.kill(os.getpid(), signal.SIGTERM)

def supervisor(*arguments, **options):
    gc.callbacks.append(stop)
    gc.collect()
    return make(*arguments, **options)

make, service.Supervisor = service.Supervisor, supervisor
main(["serve", "--port", "0", *sys.argv[1:]])
"""


@pytest.mark.deep
def test_stop_right_before_workers_start(models: Path) -> None:
    command = [sys.executable, "-c", STOPPED_EARLY, "--models-dir", str(models), "--workers", "2"]
    with started(command, cwd=models, stdout=PIPE, stderr=STDOUT) as process:
        output = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 0, output
    assert "listening" not in output


@pytest.mark.deep
def test_workers_end_with_a_killed_supervisor(models: Path) -> None:
    with served(models, "--workers", "2") as (process, port):
        pids = serving(models, 2, process.pid)
        assert len(pids) == 2
        process.kill()
        process.wait()
        until(lambda: not any(map(running, pids)), "the workers have ended")
        with until(lambda: socket.create_server(("127.0.0.1", port)), "the port is free"):
            pass
