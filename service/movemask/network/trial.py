"""`tried`: opens a foreign network in a process of its own first.

A foreign file can end the process that opens it, loop without end or ask for all memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from movemask.errors import ModelError

#: Address space in bytes: a fixed part, and a part for each byte of the network.
_MEMORY, _PER_BYTE = 4 << 30, 8


def tried(module: str, *arguments: str, size: int, seconds: float) -> dict[str, Any]:
    """Returns the JSON that `module` writes when run with these arguments, and its limit of memory, in a process
    of its own.

    size : bytes of the network; the process gets memory for it. Raises ModelError if the process fails or exceeds
    `seconds`.
    """
    command = [sys.executable, "-m", module, *arguments, str(_MEMORY + _PER_BYTE * size)]
    # never written to: it closes when this process ends, and `confine` notices
    reading, writing = os.pipe()
    with open(reading, "rb") as stdin, open(writing, "wb"):
        process = subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        with process:
            try:
                output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                raise ModelError(f"its check did not finish within {seconds:g} s") from None
            finally:
                process.kill()
    if process.returncode:
        ended = f"code {process.returncode}"
        if process.returncode < 0:
            ended = signal.Signals(-process.returncode).name
        raise ModelError(f"a process that opened it to check it ended with {ended}")
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


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
    with suppress(OSError):  # if memory runs out, the system should end this process, not another
        Path("/proc/self/oom_score_adj").write_text("1000")


def finish(result: Mapping[str, Any]) -> NoReturn:
    """Writes the result of this process as JSON, and ends it."""
    sys.stdout.write("\n" + json.dumps(result))
    sys.stdout.flush()
    os._exit(0)  # skips exit handlers, which the network may have installed
