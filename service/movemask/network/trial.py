"""Opens, checks and runs a network in a process of its own before this one opens it.

A file from elsewhere can end the process that opens it, loop without end or ask for all memory: that is then an error
of its model alone. A network that came through is known by its digest, and is opened at once from then on.
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

#: Bytes of address space of a trial, and for each byte of the network.
_MEMORY, _PER_BYTE = 4 << 30, 8


class Trial:
    """Tries the networks of one process, one at a time, each for at most `seconds`.

    The processes of a service, which have the same name for it in `service`, try each network once between them, and
    know of one another's failures too.
    """

    def __init__(self, seconds: float, service: str = "") -> None:
        self._seconds, self._service = seconds, service
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def failed(self, file: Path) -> Entry | None:
        """The entry of the model of a TOML file if its network must not be opened here; None if it may be."""
        try:
            contract = read_contract(file)
            network = read_onnx(network_file(file, contract))
        except ModelError:
            return None  # whoever opens it says what is wrong
        known = f"{hashlib.sha256(network).hexdigest()} {ort.__version__}"
        failed = f"{hashlib.sha256(file.read_bytes()).hexdigest()} {known} {self._service}"
        with _one_at_a_time():
            lines = _lines()
            if known in lines:
                return None
            if self._service and failed in lines:
                told = json.loads(lines[lines.index(failed) + 1])
            else:
                try:
                    told = self.told_by(__name__, str(file), size=len(network))
                except ModelError as error:
                    told = {"failure": str(error), "steps": []}
                _remember(known if told["failure"] is None else f"{failed}\n{json.dumps(told)}")
        if told["failure"] is None:
            return None
        return Entry(file.stem, contract, None, told["failure"], tuple(Step(**step) for step in told["steps"]))

    def told_by(self, module: str, *arguments: str, size: int) -> dict[str, Any]:
        """What a module's `main` tells of these arguments in a process of its own, with memory for a network of that
        size. Raises ModelError if it does not end in time, or ends otherwise."""
        command = [sys.executable, "-m", module, *arguments, str(_MEMORY + _PER_BYTE * size)]
        reading, writing = os.pipe()  # nothing is written: it ends with this process, and `confine` sees that
        with open(reading, "rb") as stdin, open(writing, "wb"):
            with self._lock:
                if self._closed:
                    raise ModelError("the service is stopping")
                self._process = subprocess.Popen(
                    command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
            with self._process as process:
                try:
                    found, _ = process.communicate(timeout=self._seconds)
                except subprocess.TimeoutExpired:
                    raise ModelError(f"its check did not finish within {self._seconds:g} s") from None
                finally:
                    process.kill()
        if process.returncode:
            ended = f"code {process.returncode}"
            if process.returncode < 0:
                ended = signal.Signals(-process.returncode).name
            raise ModelError(f"a process that opened it to check it ended with {ended}")
        told: dict[str, Any] = json.loads(found.splitlines()[-1])
        return told

    def close(self) -> None:
        """Ends the trial that is under way; there are no others."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()


def _tried() -> Path:
    """The file of the networks that came through on this machine, each with its onnxruntime. After the line of one that
    failed in a service comes what was wrong."""
    return platformdirs.user_cache_path("movemask", appauthor=False) / "networks-tried"


def _lines() -> list[str]:
    with suppress(OSError):
        return _tried().read_text().splitlines()
    return []


def _remember(text: str) -> None:
    with suppress(OSError), open(_tried(), "a") as tried:  # nowhere to write: it is tried again at the next start
        tried.write(f"{text}\n")


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Keeps other processes from trying networks meanwhile, where files can be locked; a lock ends with its process."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError):  # Windows; nowhere to write
            import fcntl

            _tried().parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context(open(_tried().with_suffix(".lock"), "w")), fcntl.LOCK_EX)
        yield


def confine(memory: str) -> None:
    """Limits this process, which tries a network, to `memory` bytes, and to the life of the process that started it."""

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    with suppress(ImportError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # where memory ends first, the system is to end this process, and not the service
        Path("/proc/self/oom_score_adj").write_text("1000")


def tell(result: Mapping[str, Any]) -> NoReturn:
    """Writes the result of this process, and ends it."""
    sys.stdout.write("\n" + json.dumps(result))
    sys.stdout.flush()
    os._exit(0)  # nothing that the network has left behind runs at the end


def main(file: str, memory: str) -> None:
    """Tries the model of a TOML file in this process, within so many bytes; writes the result as JSON."""
    confine(memory)
    entry = load_entry(Path(file), threads=1)
    tell({"failure": entry.failure, "steps": [asdict(step) for step in entry.steps]})


if __name__ == "__main__":
    main(*sys.argv[1:])
