"""`RayBackend`: evaluates the chunks of an audit on a Ray cluster. No other module imports Ray.

A chunk is a task, which Ray runs again if its process or node died. Writing a part twice leaves one part, and the
figures come from the parts, so nothing is counted twice.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from movemask.audit.files import Folder
from movemask.audit.read import Choice, Chunk
from movemask.audit.run import Job, PartDone, leave_out, make_part
from movemask.errors import BulkError
from movemask.network.contract import read_contract
from movemask.network.model import Model
from movemask.network.onnx import Provider, provider_named
from movemask.network.registry import model_files, open_model

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before the import, or Ray reports its use
# stderr shows the progress; Ray keeps logs of its own.
os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")

import ray

#: Tries of a chunk before it is left out. More than 1, because its process may die for another reason.
_TRIES = 5

#: Further tries of any other task whose process or node died, before the audit stops.
_RETRIES = 20

_REACH_SECONDS = 10

#: Seconds between looks at the size of the cluster, which may grow.
_LOOK_SECONDS = 5

#: Port on which `ray start --head` listens for Ray Client.
_CLIENT_PORT = 10001

#: Bytes of shared memory of a cluster started here. It holds only the running chunks.
_OBJECT_STORE = 200 << 20

R = TypeVar("R")


@contextmanager
def connect(
    address: str, contracts: Sequence[Path], jobs: int | None, cores: int, gpus: float = 0
) -> Iterator[RayBackend]:
    """Yields a cluster until the context ends.

    `local` starts one here; any other address names a running cluster.

    Raises BulkError if there is no cluster, or if it has fewer GPUs than one worker needs.
    """
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        options |= {
            "num_cpus": jobs or cores,
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE,
        }
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        address = address if address == "local" else _with_port(address)
        ray.init(address=address, **options)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise BulkError(f"--ray {address}: {_first_line(error)}{_hint(error)}") from None
    try:
        available = ray.cluster_resources().get("GPU", 0)
        if gpus > available:
            raise BulkError(f"--gpus {gpus:g}: the cluster has {available:g}")
        yield RayBackend(contracts, None if address == "local" else jobs, gpus)
    except (ray.exceptions.RayError, ImportError) as error:  # a node may lack the package
        raise BulkError(
            f"ray: {_first_line(error)}; run the same command again to resume"
        ) from None
    finally:
        ray.shutdown()


def _with_port(address: str) -> str:
    """Returns the address, with the port of Ray Client if it names no port.

    Raises OSError if nothing listens there; Ray itself would try for minutes.
    """
    if (
        address.startswith("ray://")
        and ":" not in address.removeprefix("ray://").rpartition("]")[2]
    ):
        address = f"{address}:{_CLIENT_PORT}"
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    return address


class RayBackend:
    """A connected cluster. `most` is the number of simultaneous tasks; None means twice the cluster's CPUs."""

    def __init__(self, contracts: Sequence[Path], most: int | None, gpus: float) -> None:
        self._contracts, self._most, self._gpus = contracts, most, gpus

    def run(self, function: Callable[..., R], *arguments: Any) -> R:
        result: R = _result_of(
            ray.remote(function).options(num_cpus=1, max_retries=_RETRIES).remote(*arguments)
        )
        return result

    def parts(
        self, job: Job, chunks: Iterable[tuple[Chunk, bool]]
    ) -> Generator[PartDone, None, None]:
        task = ray.remote(_part).options(num_cpus=1, num_gpus=self._gpus, max_retries=_TRIES - 1)
        networks = tuple(ray.put(_files(contract)) for contract in self._contracts)
        parts, choice, gpu = job.parts.absolute(), job.choice, self._gpus > 0
        tasks = (
            (task.remote(networks, gpu, parts, choice, chunk, earlier), chunk)
            for chunk, earlier in chunks
        )
        pending: dict[Any, Chunk] = {}
        most, look = 0, 0.0
        while True:  # keeps one waiting task per running task
            if time.monotonic() >= look:
                cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
                most, look = self._most or 2 * cpus, time.monotonic() + _LOOK_SECONDS
            pending |= dict(islice(tasks, max(0, most - len(pending))))
            if not pending:
                return
            (ready,), _ = ray.wait(list(pending))
            chunk = pending.pop(ready)
            try:
                yield _result_of(ready)
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
                yield leave_out(
                    parts, choice, chunk, "game or line in a chunk that ended its process"
                )


def _result_of(result: Any) -> Any:
    """Returns the result of a task. Raises the task's error, or a RayError if it could not run."""
    try:
        return ray.get(result)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None


def _part(
    networks: tuple[Any, ...], gpu: bool, parts: Folder, choice: Choice, chunk: Chunk, earlier: bool
) -> PartDone:
    return make_part(
        parts, choice, chunk, [_open(network, gpu) for network in networks], earlier=earlier
    )


@cache
def _open(network: Any, gpu: bool) -> Model:
    """Returns a network from its files, opened once per worker. It uses one thread, because each core has a worker."""
    with tempfile.TemporaryDirectory(prefix="movemask-") as folder:
        contract, *others = [Path(folder, name) for name in ray.get(network)]
        for file, data in zip((contract, *others), ray.get(network).values(), strict=True):
            file.write_bytes(data)
        return open_model(contract, 1, provider_named("cuda") if gpu else Provider.CPU)


def _files(contract: Path) -> dict[str, bytes]:
    """Returns the files of a network by name, the contract first."""
    others = model_files(contract, read_contract(contract))
    return {file.name: file.read_bytes() for file in (contract, *others)}


def _hint(error: Exception) -> str:
    """Returns advice if a cluster listens but does not answer; empty for other errors."""
    if isinstance(error, ConnectionRefusedError | TimeoutError | socket.gaierror) or os.environ.get(
        "RAY_AUTH_MODE"
    ):
        return ""
    return (
        "; if the cluster asks for a token, as Ray 2.60 does by default, set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN "
        "to its token unless ~/.ray/auth_token has it"
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
