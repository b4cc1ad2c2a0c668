"""`Trial`: opens, checks and runs a network in a process of its own before the service opens it.

A foreign file can end the process that opens it, loop without end or ask for all memory. In a trial, only its own model
fails. A network that passed is remembered by its digest and is not tried again.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import onnxruntime as ort
import platformdirs

from movemask.errors import ModelError
from movemask.network.check import Step
from movemask.network.contract import read_contract
from movemask.network.files import read_onnx
from movemask.network.registry import Entry, load_entry, network_file

#: Address space of a trial in bytes: a fixed part, and a part for each byte of the network.
_MEMORY, _PER_BYTE = 4 << 30, 8


class Trial:
    """Tries the networks of one process, one at a time, each for at most `seconds`.

    Processes with the same `service` share their results, including failures.
    """

    def __init__(self, seconds: float, service: str = "") -> None:
        self._seconds, self._service = seconds, service
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def failed(self, file: Path) -> Entry | None:
        """The entry of a model that failed its trial, now or earlier; None if its network may be opened here."""
        try:
            contract = read_contract(file)
            network = read_onnx(network_file(file, contract))
        except ModelError:
            return None  # opening it raises the same error
        known = f"{hashlib.sha256(network).hexdigest()} {ort.__version__}"
        failed = f"{hashlib.sha256(file.read_bytes()).hexdigest()} {known} {self._service}"
        with _one_at_a_time():
            lines = _lines()
            if known in lines:
                return None
            if self._service and failed in lines:
                result = json.loads(lines[lines.index(failed) + 1])
            else:
                try:
                    result = self.result_of(__name__, str(file), size=len(network))
                except ModelError as error:
                    result = {"failure": str(error), "steps": []}
                _remember(known if result["failure"] is None else f"{failed}\n{json.dumps(result)}")
        if result["failure"] is None:
            return None
        return Entry(file.stem, contract, None, result["failure"], tuple(Step(**step) for step in result["steps"]))

    def result_of(self, module: str, *arguments: str, size: int) -> dict[str, Any]:
        """The JSON that `module` writes when run with these arguments in a process of its own.

        size : bytes of the network; the process gets memory for it. Raises ModelError if the process fails or exceeds
        its time.
        """
        command = [sys.executable, "-m", module, *arguments, str(_MEMORY + _PER_BYTE * size)]
        reading, writing = os.pipe()  # never written to: it closes when this process ends, and `confine` notices
        with open(reading, "rb") as stdin, open(writing, "wb"):
            with self._lock:
                if self._closed:
                    raise ModelError("the service is stopping")
                self._process = subprocess.Popen(
                    command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
            with self._process as process:
                try:
                    output, _ = process.communicate(timeout=self._seconds)
                except subprocess.TimeoutExpired:
                    raise ModelError(f"its check did not finish within {self._seconds:g} s") from None
                finally:
                    process.kill()
        if process.returncode:
            ended = f"code {process.returncode}"
            if process.returncode < 0:
                ended = signal.Signals(-process.returncode).name
            raise ModelError(f"a process that opened it to check it ended with {ended}")
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        return result

    def close(self) -> None:
        """Ends the running trial and refuses later ones."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()


def _results() -> Path:
    """The file of results on this machine.

    A network that passed has one line, with onnxruntime's version. A failed network has a second line, its error.
    """
    return platformdirs.user_cache_path("movemask", appauthor=False) / "networks-tried"


def _lines() -> list[str]:
    with suppress(OSError):
        return _results().read_text().splitlines()
    return []


def _remember(text: str) -> None:
    with suppress(OSError), open(_results(), "a") as file:  # if this fails, networks are tried at every start
        file.write(f"{text}\n")


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """A lock between processes, where files can be locked. It is released when its process ends."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError):  # Windows has no fcntl; the folder may be read-only
            import fcntl

            _results().parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context(open(_results().with_suffix(".lock"), "w")), fcntl.LOCK_EX)
        yield


def confine(memory: str) -> None:
    """Limits this process to `memory` bytes, and ends it when the process that started it ends."""

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    with suppress(ImportError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # if memory runs out, the system should end this process, not the service
        Path("/proc/self/oom_score_adj").write_text("1000")


def finish(result: Mapping[str, Any]) -> NoReturn:
    """Writes the result of this process as JSON, and ends it."""
    sys.stdout.write("\n" + json.dumps(result))
    sys.stdout.flush()
    os._exit(0)  # skips exit handlers, which the network may have installed


def main(file: str, memory: str) -> None:
    """Tries the model of a TOML file in this process, limited to `memory` bytes. Writes the result as JSON."""
    confine(memory)
    entry = load_entry(Path(file), threads=1)
    finish({"failure": entry.failure, "steps": [asdict(step) for step in entry.steps]})


if __name__ == "__main__":
    main(*sys.argv[1:])
