"""A Ray cluster whose nodes are processes of this machine, for the tests: Ray's own cluster utility.

    python -m tests.audit.nodes 3 --cpus 1

writes a line of JSON with the cluster's address, then obeys lines on standard input: `kill` kills the newest node, with
all its processes, `add` adds one. It ends, and the nodes with it, when standard input does.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

_OBJECT_STORE = 200 << 20


class Nodes:
    """A running cluster: its address, and nodes that come and go."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process, self.address = process, address

    def _tell(self, what: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(what, file=self._process.stdin, flush=True)
        if not self._process.stdout.readline():
            raise RuntimeError(f"the cluster has ended before it could {what} a node")

    def kill(self) -> None:
        """Kills the newest node and everything that runs on it; returns when it is dead."""
        self._tell("kill")

    def add(self) -> None:
        """Adds a node."""
        self._tell("add")


def environment() -> dict[str, str]:
    """This process's, with the package and the tests to be found."""
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'service'}{os.pathsep}{ROOT}"}


@contextmanager
def nodes(
    count: int,
    cpus: int = 1,
    *,
    dashboard: int | None = None,
    client: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Nodes]:
    """A cluster of so many nodes, the head included, with so many logical CPUs each; `variables` are environment
    variables of all its processes, `dashboard` and `client` ports of the head for `serve deploy` and Ray Client. It
    asks for a token, as Ray does by default; until it ends, the environment of this process has it."""
    command = [sys.executable, "-m", "tests.audit.nodes", str(count), "--cpus", str(cpus)]
    for name, port in (("dashboard", dashboard), ("client", client)):
        if port is not None:
            command += [f"--{name}", str(port)]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}
    of_nodes = {**environment(), **token, **(variables or {})}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=of_nodes, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the cluster could not be started")
        os.environ.update(token)
        try:
            yield Nodes(process, json.loads(line)["address"])
        finally:
            for name in token:
                del os.environ[name]
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--dashboard", type=int, help="port of the dashboard; none without")
    parser.add_argument("--client", type=int, help="port of Ray Client; none without")
    arguments = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)
    from ray.cluster_utils import Cluster

    options = {"num_cpus": arguments.cpus, "object_store_memory": _OBJECT_STORE}
    head: dict[str, Any] = {**options, "include_dashboard": arguments.dashboard is not None}
    if arguments.dashboard is not None:
        head["dashboard_port"] = arguments.dashboard
    if arguments.client is not None:
        head["ray_client_server_port"] = arguments.client
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        workers = [cluster.add_node(**options) for _ in range(arguments.count - 1)]
        cluster.wait_for_nodes()
        sys.stdout.write(json.dumps({"address": cluster.address}) + "\n")
        sys.stdout.flush()
        for line in sys.stdin:
            if line.strip() == "kill":
                _kill(cluster, workers.pop())
            elif line.strip() == "add":
                workers.append(cluster.add_node(**options))
            sys.stdout.write("done\n")
            sys.stdout.flush()
    finally:
        cluster.shutdown()


def _kill(cluster: Any, node: Any) -> None:
    """Ends a node as a loss of power does: Ray's utility leaves its workers a moment to end by themselves."""
    import psutil  # Ray brings its own

    processes = [psutil.Process(one.process.pid) for of_kind in node.all_processes.values() for one in of_kind]
    for process in [child for one in processes for child in one.children(recursive=True)] + processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    cluster.remove_node(node, allow_graceful=False)


if __name__ == "__main__":
    main()
