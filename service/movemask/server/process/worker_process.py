"""`Worker`: a worker process as the supervisor sees it; `spawn_worker` starts one."""

from __future__ import annotations

import math
import multiprocessing
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

from movemask.server.edge.keys import Keys

#: Exit code of a process whose program cannot be run.
NO_PROGRAM = 255


class Process(Protocol):
    """What the supervisor uses of a process of `multiprocessing`."""

    @property
    def pid(self) -> int | None: ...
    @property
    def exitcode(self) -> int | None: ...
    @property
    def sentinel(self) -> Any: ...

    def is_alive(self) -> bool: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Pipe(Protocol):
    """What the supervisor uses of its end of a worker's pipe."""

    @property
    def closed(self) -> bool: ...

    def poll(self) -> bool: ...
    def recv(self) -> Any: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Order:
    """What a worker is started with.

    number : that of no other running process; a worker continues the counts of the ended workers of its number
    keys : the API keys; None: everything is open
    needed : names of the models without which the worker must not serve; None: all models that it finds
    """

    number: int
    keys: Keys | None
    needed: frozenset[str] | None


#: Starts a worker process and returns it with the pipe on which the worker reports. Raises OSError.
StartWorker = Callable[[Order], tuple[Process, Pipe]]


def spawn_worker(work: Callable[[Order, Connection], None], order: Order) -> tuple[Process, Pipe]:
    """Starts a process that runs `work` with the order and its end of the pipe. Raises OSError."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with sender:
        try:
            process = context.Process(target=work, args=(order, sender))
            process.start()
        except BaseException:
            receiver.close()
            raise
    return process, receiver


@dataclass(eq=False)
class Generation:
    """The configuration that a start or a reload made.

    number : 0 for the start, else the number of the reload
    keys : the API keys; None: everything is open
    models : digest of each model that its first worker serves, by name; None: no worker of it has served
    """

    number: int
    keys: Keys | None
    models: dict[str, str] | None = None

    @property
    def needed(self) -> frozenset[str] | None:
        """`Order.needed` of its next worker. The first worker of a start needs no particular model."""
        if self.models is not None:
            return frozenset(self.models)
        return None if self.number else frozenset()


@dataclass(eq=False)
class Worker:
    """A worker process. It is starting, serving, or leaving until it is killed.

    pipe : on which the worker sends one message: its models when it serves, or why it cannot serve
    started : when, on the supervisor's clock
    models : digest of each model that it serves, by name; None: it is starting
    fault : why it cannot serve
    kill_at : infinite: it is not leaving
    clock, clock_changed : the last value of the worker's own clock, and when the supervisor saw it change
    still : whether the clock has stood still for so long that the worker counts as not serving
    """

    process: Process
    pipe: Pipe
    order: Order
    generation: Generation
    started: float
    models: dict[str, str] | None = None
    fault: str = ""
    kill_at: float = math.inf
    clock: float = math.nan
    clock_changed: float = math.inf
    still: bool = False

    @property
    def serving(self) -> bool:
        """Whether it has served, perhaps until it ended."""
        return self.models is not None

    @property
    def leaving(self) -> bool:
        """Whether it has been told to end."""
        return self.kill_at < math.inf

    def starts_to_serve(self) -> bool:
        """Receives the worker's message, if it has come. Returns whether the worker serves from now on."""
        try:
            if self.pipe.closed or not self.pipe.poll():
                return False
            message = self.pipe.recv()
        except (EOFError, OSError):  # the worker has ended
            message = self.fault
        self.pipe.close()
        if isinstance(message, str):
            self.fault = message
            return False
        self.models = message
        return True

    def leave(self, now: float, grace: float) -> None:
        """Ends the worker. One that serves has `grace` seconds to finish its requests."""
        if self.leaving:
            return
        if self.serving:
            self.kill_at = now + grace
            self.process.terminate()
        else:
            self.kill_at = now
            self.process.kill()

    @property
    def end(self) -> str:
        """How it ended, in words."""
        code = self.process.exitcode
        if self.fault:
            return f"cannot serve: {self.fault}"
        if code is not None and code < 0:
            # without those for programs' own use
            names = {number.value: number.name for number in signal.Signals}
            return f"ended ({names.get(-code, f'signal {-code}')})"
        return f"ended (exit code {code})"
