"""The service on Ray Serve under load: beside the plain one, and while a node is killed (`benchmarks.cluster`)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.load import load, request
from benchmarks.positions import random_games
from benchmarks.ray_nodes import environment, nodes
from benchmarks.servers import movemask
from movemask.settings import shipped_models

MODEL = "movemask-3"

#: Ways to serve on Ray, by variables of its nodes.
VARIANTS: dict[str, dict[str, str]] = {
    "proxy": {},
    "threads": {"RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0", "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0"},
    "haproxy": {"RAY_SERVE_ENABLE_HA_PROXY": "1"},
    "throughput": {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"},
}

FENS = (
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
    "r1bqkb1r/pppp1ppp/2n2n2/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R w KQkq - 4 4",
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",
)


@contextmanager
def serving_on(
    count: int, cpus: int, replicas: int, folder: Path, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[int, Any]]:
    """The shipped application on a cluster of so many nodes: its port, once it answers, and the cluster."""
    from tests.ports import free_port

    port = free_port()
    (folder / "serve.yaml").write_text(
        json.dumps(
            {
                "proxy_location": "HeadOnly",
                "http_options": {"host": "127.0.0.1", "port": port},
                "logging_config": {"log_level": "WARNING", "enable_access_log": False},
                "applications": [
                    {
                        "name": "movemask",
                        "route_prefix": "/",
                        "import_path": "movemask.api.ray_serve:application",
                        "args": {"database_url": f"sqlite:///{folder}/audit.db"},
                        "deployments": [
                            {
                                "name": "movemask",
                                "num_replicas": replicas,
                                "max_ongoing_requests": 256,
                                "health_check_period_s": 2,
                                "ray_actor_options": {"num_cpus": 1},
                            }
                        ],
                    }
                ],
            }
        )
    )
    with nodes(count, cpus=cpus, variables=variables) as cluster, (folder / "log.txt").open("wb") as log:
        command = [str(Path(sys.executable).with_name("serve")), "run", "-a", cluster.address, "serve.yaml"]
        with subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment()) as process:
            try:
                for _ in range(600):
                    if process.poll() is not None:
                        raise SystemExit((folder / "log.txt").read_text())
                    if len(_replicas(port)) == replicas:
                        break
                    time.sleep(0.5)
                else:
                    raise SystemExit(f"not all of {replicas} replicas answer")
                yield port, cluster
            finally:
                process.terminate()
                process.wait(60)


def serving(seconds: float, names: Sequence[str] = ()) -> None:
    """Requests a second of one position each, in turn: the plain service, and Ray Serve with one replica, by its own
    proxy or HAProxy."""
    asked = [request("/v1/policy", json.dumps({"fen": fen}).encode()) for fen in random_games(4_000)]
    print("| service | connections | requests/s | p50 ms | p99 ms | of the plain service |")
    print("|---|---|---|---|---|---|")
    plain = {}
    with tempfile.TemporaryDirectory() as folder:
        with movemask(shipped_models(), MODEL) as server:
            for connections in (1, 32):
                plain[connections] = found = load(server.port, asked, connections, seconds, 3)
                _told("movemask serve", connections, found, 1.0)
        for name, variables in VARIANTS.items():
            if names and name not in names:
                continue
            with serving_on(1, 2, 1, Path(folder), variables) as (port, _):
                for connections in (1, 32):
                    found = load(port, asked, connections, seconds, 3)
                    _told(name, connections, found, found.rate / plain[connections].rate)


def _told(name: str, connections: int, found: Any, share: float) -> None:
    p50, p99 = (1e3 * found.percentile(q) for q in (50, 99))
    print(f"| {name} | {connections} | {found.rate:,.0f} | {p50:.1f} | {p99:.1f} | {share:.2f} |", flush=True)


def killed(seconds: float, way: str) -> None:
    """Kills a node, one of three with a replica each, a third of the time in; eight clients ask all the time."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serving_on(3, 1, 3, Path(folder), VARIANTS[way]) as (port, cluster),
    ):
        right = {fen: _asked(port, fen) for fen in FENS}
        assert all(right.values())
        begun = time.perf_counter()
        outcomes: list[tuple[float, str]] = []
        slowest = [0.0]
        before = _replicas(port)

        def client(number: int) -> None:
            while time.perf_counter() < begun + seconds:
                fen = FENS[number % len(FENS)]
                asked_at = time.perf_counter()
                moves = _asked(port, fen)
                slowest[0] = max(slowest[0], time.perf_counter() - asked_at)
                what = "failed" if moves is None else "right" if moves == right[fen] else "wrong"
                outcomes.append((time.perf_counter() - begun, what))

        clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
        for one in clients:
            one.start()
        time.sleep(seconds / 3)
        at = time.perf_counter() - begun
        cluster.kill()
        for one in clients:
            one.join()
        failed = [when for when, what in outcomes if what == "failed"]
        print("| requests | right | wrong | failed | first failure after the kill, s | last, s | slowest, s |")
        print("|---|---|---|---|---|---|---|")
        counts = [sum(what == one for _, what in outcomes) for one in ("right", "wrong", "failed")]
        first, last = (f"{failed[0] - at:.1f}", f"{failed[-1] - at:.1f}") if failed else ("-", "-")
        print(
            f"| {len(outcomes):,} | {counts[0]:,} | {counts[1]} | {counts[2]} | {first} | {last} | {slowest[0]:.1f} |"
        )
        assert len(before) == 3, before


def _replicas(port: int) -> set[str]:
    """Those that have sent their metrics."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return set(re.findall(r'replica="(\w+)"', answer.read().decode()))
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return set()


def _asked(port: int, fen: str) -> Any:
    """The moves with probabilities rounded to what batches leave of them; None if there was no answer."""
    call = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/policy", json.dumps({"fen": fen}).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(call, timeout=30) as answer:
            moves = json.load(answer)["moves"]
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None
    return sorted((move["uci"], round(move["probability"], 2)) for move in moves)
