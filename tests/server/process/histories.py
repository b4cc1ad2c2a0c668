"""A supervisor in a simulated world: a clock that tests move, and worker processes that are only state."""

from __future__ import annotations

import errno
import os
import random
import signal
from collections.abc import Callable, Sequence

from movemask.errors import KeysError
from movemask.server.edge.keys import Keys
from movemask.server.process.reloads import Reload
from movemask.server.process.supervisor import Supervisor
from movemask.server.process.worker_process import Order, Pipe, Process, Worker
from movemask.server.service_state import shared_state

GRACE = 10.0


class SimulatedProcess:
    """A worker process and its pipe. It loads for `loading` seconds, then serves `models`, or ends with `fault`."""

    def __init__(self, world: World, order: Order) -> None:
        self.world, self.order, self.started = world, order, world.now
        self.pid = self.sentinel = 1000 + len(world.processes)
        self.loading, self.fault = world.loading(), world.fault
        self.models = dict(world.models)
        self.ends_at: float | None = None
        self.closed = False

    @property
    def exitcode(self) -> int | None:
        return None if self.is_alive() else 1

    @property
    def loaded(self) -> bool:
        return self.world.now >= self.started + self.loading

    def is_alive(self) -> bool:
        failed = bool(self.fault) and self.loaded
        return not failed and (self.ends_at is None or self.world.now < self.ends_at)

    def terminate(self) -> None:
        self.ends_at = self.world.now + self.world.leaving()

    def kill(self) -> None:
        self.ends_at = self.world.now

    def poll(self) -> bool:
        return self.loaded

    def recv(self) -> dict[str, str] | str:
        return self.fault or self.models

    def close(self) -> None:
        self.closed = True


class World:
    """A supervisor, what its workers find when they start, and the time.

    models : that workers find
    fault : why they cannot serve; empty: they can
    descriptors : whether the system can start a process
    readable : whether the keys can be read
    stopped : workers whose event loops stand still
    full : whether the disk is full
    loading, leaving : seconds that a process takes to load its models, and to end after SIGTERM
    """

    def __init__(self, workers: int) -> None:
        self.now = 0.0
        self.models, self.fault, self.descriptors, self.readable = {"net": "1"}, "", True, True
        self.loading: Callable[[], float] = lambda: 1.0
        self.leaving: Callable[[], float] = lambda: 1.0
        self.processes: list[SimulatedProcess] = []
        self.stopped: set[SimulatedProcess] = set()
        self.full = False
        self.stops = self.key = 0
        self.forgotten: list[int] = []
        self.reported: Sequence[Reload] = []  # at last
        self.reloads: dict[int, Reload] = {}
        self.state = shared_state(workers)
        self.supervisor = Supervisor(
            self.start,
            self.state,
            keys=self.read(),
            read=self.read,
            grace=GRACE,
            stopping=self.stopping,
            forget=self.forgotten.append,
            report=self.report,
        )

    def start(self, order: Order) -> tuple[Process, Pipe]:
        if not self.descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        process = SimulatedProcess(self, order)
        self.processes.append(process)
        return process, process

    def read(self) -> Keys | None:
        if not self.readable:
            raise KeysError("keys: line 1")
        self.key += 1
        return Keys.of(f"{self.key:020}", None)

    def stopping(self) -> None:
        self.stops += 1

    def report(self, reloads: Sequence[Reload]) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.reported = reloads
        self.reloads.update({reload.reload: reload for reload in reloads})

    def turn(self, seconds: float = 0.0) -> bool:
        """Moves the clock, has the event loops of the workers turn, and takes a turn of the supervisor."""
        self.now += seconds
        for process in {*self.alive} - self.stopped:
            self.state.set_clock(process.order.number, self.now)
        return self.supervisor.turn(self.now)

    def turns(self, seconds: float, step: float = 0.5) -> None:
        for _ in range(round(seconds / step)):
            assert not self.turn(step)

    def hang_up(self) -> None:
        self.supervisor.handle(signal.SIGHUP)

    @property
    def alive(self) -> list[SimulatedProcess]:
        return [process for process in self.processes if process.is_alive()]

    @property
    def serving(self) -> list[Worker]:
        """The workers that serve and have not been told to leave."""
        workers = self.supervisor.workers
        return [one for one in workers if one.serving and not one.leaving and one.process.is_alive()]

    @property
    def keys(self) -> list[bool]:
        """Whether each worker has the newest keys."""
        keys = [worker.order.keys for worker in self.supervisor.workers]
        return [one is not None and one.find(f"{self.key:020}") is not None for one in keys]


class Random(World):
    """A world in which anything happens at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        super().__init__(self.random.choice([1, 2, 3, 5]))
        self.calm = False
        self.leaving = lambda: self.random.choice([0.1, 3, 60])
        self.loading = self.draw_loading

    def draw_loading(self) -> float:
        if not self.calm and self.random.random() < 0.05:
            return 400.0
        return self.random.choice([0.2, 1, 5])

    def happen(self) -> None:
        """One event, or none."""
        draw = self.random.random()
        if draw < 0.1:
            self.readable = self.random.random() < 0.75
            self.hang_up()
        elif draw < 0.18:
            self.fault = "" if self.random.random() < 0.6 else "a model is broken"
        elif draw < 0.22:
            self.descriptors = self.random.random() < 0.6
        elif draw < 0.32 and self.supervisor.workers:
            self.random.choice(self.supervisor.workers).process.kill()
        elif draw < 0.36:
            self.models = {"net": str(self.random.random())}
