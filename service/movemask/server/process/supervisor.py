"""`Supervisor`: starts, replaces, reloads and stops the worker processes of a service.

It compares the running workers with the wanted ones, and keeps no list of things to do. Every worker belongs to a
generation, the configuration that a start or a reload made. The supervisor knows two generations: the wanted one, and
the newest one of which a worker has served. Each turn of its loop takes the next step towards workers of the wanted
generation alone. Nothing in a turn blocks.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

from movemask.errors import MovemaskError, SettingsError
from movemask.server.edge.keys import Keys
from movemask.server.process.reloads import Reload
from movemask.server.process.worker_process import (
    NO_PROGRAM,
    Generation,
    Order,
    StartWorker,
    Worker,
)
from movemask.server.service_state import ServiceState

log = logging.getLogger(__name__)

#: Seconds between two turns, if no worker ends or reports.
_TURN_SECONDS = 0.5

#: Seconds that a worker has to load its models, except for the first worker of the service.
_LOADING_SECONDS = 300

#: Longest pause in seconds before a worker that cannot start is tried again.
_LONGEST_PAUSE = 30.0

#: A serving worker whose clock stands still for this many seconds counts as not serving.
_STILL_SECONDS = 60

#: After a longer gap between two turns, in seconds, the clocks of workers are watched anew: the machine was suspended.
_LONGEST_GAP = 5

#: Number of reloads whose outcome is remembered.
_REMEMBERED = 8


class Supervisor:
    """Starts the workers of a service, replaces those that end, and reloads them.

    The first worker starts alone, and the others when it serves. A worker that has served and ends
    is replaced at once. One that cannot start is tried again after a pause that grows.

    SIGHUP makes a new generation. Its first worker starts beside the others. If it cannot serve,
    the reload is refused and the generation dropped. Otherwise the older workers are replaced one
    at a time, until none is left. A generation of which no worker has served counts for no worker,
    so the service keeps its size.

    Parameters
    ----------
    start : starts a worker process
    state : of the service; its `desired` is the number of workers
    keys : the API keys; None: everything is open
    read : reads the keys anew, and checks what else a worker reads; raises MovemaskError
    grace : seconds that a worker has to stop
    ready : called once, when the first worker serves
    stopping : called once per loop iteration while stopping
    forget : called with the number of each worker that has ended
    report : writes the last reloads for others to read; may raise OSError, and is then called again
        in the next turn
    """

    def __init__(
        self,
        start: StartWorker,
        state: ServiceState,
        *,
        keys: Keys | None,
        read: Callable[[], Keys | None],
        grace: float,
        ready: Callable[[], None] = lambda: None,
        stopping: Callable[[], None] = lambda: None,
        forget: Callable[[int], None] = lambda number: None,
        report: Callable[[Sequence[Reload]], None] = lambda reloads: None,
    ) -> None:
        self._start, self._state, self._read, self._grace = start, state, read, grace
        self._ready, self._stopping, self._forget, self._report = ready, stopping, forget, report
        #: In the order of their start, those that are leaving included.
        self.workers: list[Worker] = []
        self._wanted = Generation(0, keys)
        self._proved: Generation | None = None  # the newest of which a worker has served
        self._failed: Worker | None = None  # the first worker, if it could not serve
        self._pause = self._next_start = 0.0
        self._last_turn = -math.inf
        self._reloads: dict[int, Reload] = {}
        self._reported: list[Reload] = []
        self._stops = self._hangups = 0
        self._terminal = _is_terminal()

    def run(self) -> None:
        """Returns after a stop, when all workers have ended. Raises SettingsError if the first one cannot serve."""
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGTTIN", "SIGTTOU"):
            if hasattr(signal, name):  # Windows has two of them
                signal.signal(getattr(signal, name), self.handle)
        try:
            while not self.turn(time.monotonic()):
                self.wait()
        finally:
            for worker in self.workers:
                worker.process.kill()
        if self._failed is not None:
            hint = "the log's last line says what it was doing"
            if self._failed.process.exitcode == NO_PROGRAM:
                hint = f"this user cannot run {sys.executable}"
            raise SettingsError(
                self._failed.fault or f"a worker {self._failed.end} before it could serve; {hint}"
            )

    def handle(self, number: int, frame: object = None) -> None:
        """Handles a signal. SIGTTIN and SIGTTOU, which change the number of workers elsewhere, do nothing."""
        self._stops += number in (signal.SIGTERM, signal.SIGINT)
        self._hangups += number == getattr(signal, "SIGHUP", None)

    def wait(self) -> None:
        """Returns when a process ends or reports, after half a second at most."""
        watched: list[Any] = [worker.process.sentinel for worker in self.workers]
        watched += [worker.pipe for worker in self.workers if not worker.pipe.closed]
        if watched:
            wait(watched, _TURN_SECONDS)
        else:  # no worker could be started
            time.sleep(_TURN_SECONDS)

    def turn(self, now: float) -> bool:
        """Takes the next step of everything that is under way. Returns whether the service has ended."""
        if self._hangups and self._terminal and not _is_terminal():  # its terminal was closed
            self._stops = max(self._stops, 1)
        if self._stops:
            self._stopping()
            for worker in self.workers:
                worker.leave(now, self._grace)
        for worker in list(self.workers):
            self._observe(worker, now)
        if self._stops:
            return not self.workers
        if self._failed is not None:
            return True
        if self._hangups and self._proved is not None:
            self._hangups = 0
            self._reload(now)
        self._reconcile(now)
        self._update(now)
        return False

    def _observe(self, worker: Worker, now: float) -> None:
        """Notes that a worker serves or has ended; kills one that takes too long."""
        if not worker.leaving and worker.starts_to_serve():
            self._welcome(worker, now)
        if not worker.process.is_alive():
            self.workers.remove(worker)
            self._forget(worker.order.number)
            if not worker.leaving:
                self._handle_end(worker, now)
        elif now >= worker.kill_at or (self._stops > 1 and worker.leaving):
            worker.process.kill()
        elif (
            self._proved is not None
            and not worker.serving
            and now - worker.started > _LOADING_SECONDS
        ):
            worker.fault = f"it has not loaded its models in {_LOADING_SECONDS} s"
            worker.process.kill()

    def _welcome(self, worker: Worker, now: float) -> None:
        """Notes that a worker serves. The first one of a generation proves the generation."""
        log.info("worker %d serves", worker.process.pid)
        self._pause = self._next_start = 0.0
        worker.clock_changed = now
        generation, models = worker.generation, worker.models
        assert models is not None
        if generation.models is None:
            if self._proved is None:
                self._ready()
            generation.models, self._proved = models, generation
            for reload in list(self._reloads.values()):
                if reload.outcome == "reloading" and reload.reload < generation.number:
                    self._note(replace(reload, outcome="superseded", reason=""))
        elif models != generation.models:
            changed = sorted({name for name, _ in models.items() ^ generation.models.items()})
            fault = "model %s: worker %d has other files than the last reload found; reload, so that all workers agree"
            log.warning(fault, ", ".join(changed), worker.process.pid)

    def _handle_end(self, worker: Worker, now: float) -> None:
        """Decides what follows the end of a worker that nobody has told to end."""
        if self._proved is None:
            self._failed = worker
        elif worker.serving:
            self._pause = self._next_start = 0.0
            log.error("worker %d %s; starting another", worker.process.pid, worker.end)
        elif worker.generation.models is None:
            self._refuse(worker.generation.number, f"the new worker {worker.end}")
        else:
            name = "the new worker" if self._outdated else f"worker {worker.process.pid}"
            self._put_off(f"{name} {worker.end}", now)

    def _put_off(self, reason: str, now: float) -> None:
        """Sets when a worker is started after one that could not: in 1, 2, 4, … seconds."""
        if now >= self._next_start:  # otherwise another one has failed just now
            self._pause = min(max(1.0, 2 * self._pause), _LONGEST_PAUSE)
            self._next_start = now + self._pause
        reload = self._unfinished
        if reload is not None and self._wanted is self._proved:
            self._state.reloaded = False
            self._note(replace(reload, reason=reason))
            reason = f"not yet reloaded: {reason}"
        log.error("%s; starting another in %g s", reason, self._pause)

    def _reload(self, now: float) -> None:
        """Makes a new generation the wanted one, if its keys can be read."""
        log.info("reloading: the workers are replaced one after the other")
        self._pause = self._next_start = 0.0  # what could not start may have been mended
        number = max(self._reloads, default=0) + 1
        self._note(Reload(number))
        try:
            keys = self._read()
        except MovemaskError as error:
            self._refuse(number, str(error))
            return
        if self._wanted is not self._proved:  # none of its workers has served
            self._note(replace(self._reloads[self._wanted.number], outcome="superseded"))
            for worker in self.workers:
                if worker.generation is self._wanted:
                    worker.leave(now, self._grace)
        self._wanted = Generation(number, keys)

    def _refuse(self, number: int, reason: str) -> None:
        """Ends a reload of which no worker has served."""
        if self._wanted.number == number:
            assert self._proved is not None
            self._wanted = self._proved
        self._note(replace(self._reloads[number], outcome="refused", reason=reason))
        self._state.reloaded = False
        rest = "the workers stay as they were"
        if self._unfinished is not None:
            rest = f"reload {self._wanted.number}, which came before, goes on"
        log.error("not reloaded: %s; %s", reason, rest)

    def _reconcile(self, now: float) -> None:
        """Takes the next step towards the desired number of workers, all of the wanted generation."""
        if self._proved is None:
            if not self.workers:
                self._start_worker(self._wanted, now)
            return
        unproved = self._wanted is not self._proved
        current = [worker for worker in self.workers if worker.generation is self._wanted]
        # A generation of which no worker has served fills no place: it may be dropped.
        places = [
            worker
            for worker in self.workers
            if not worker.leaving and not (unproved and worker in current)
        ]
        outdated = [worker for worker in places if worker not in current]
        loading = [worker for worker in places if not worker.serving]
        missing = self._state.desired - len(places)
        if missing < 0:  # a replacement runs beside the worker that it replaces
            if outdated and not any(worker in current for worker in loading):
                unready = [worker for worker in outdated if not worker.serving]
                (unready or outdated)[0].leave(now, self._grace)
            return
        # One after the other, so that there is never more than one process too many.
        one_leaves = any(worker.leaving for worker in self.workers)
        if unproved and not current and not one_leaves:
            self._start_worker(self._wanted, now)
        if now < self._next_start:
            return
        if self._pause:  # the last start failed: one at a time
            missing = min(missing, 0 if loading else 1)
        for _ in range(missing):
            if not self._start_worker(self._proved, now):
                return
        if outdated and not (missing or loading or one_leaves or unproved):
            self._start_worker(self._wanted, now)

    def _start_worker(self, generation: Generation, now: float) -> bool:
        """Starts a worker of a generation. Returns whether it could be; raises OSError for the first of the service."""
        numbers = {worker.order.number for worker in self.workers}
        number = next(number for number in itertools.count() if number not in numbers)
        order = Order(number, generation.keys, generation.needed)
        try:
            process, pipe = self._start(order)
        except OSError as error:
            if self._proved is None:
                raise
            reason = os.strerror(error.errno).lower() if error.errno else str(error)
            reason = f"no worker can be started: {reason}"
            if generation.models is None:
                self._refuse(generation.number, reason)
            else:
                self._put_off(reason, now)
            return False
        self.workers.append(Worker(process, pipe, order, generation, now))
        return True

    def _update(self, now: float) -> None:
        """Publishes the numbers of workers, and how the reloads stand."""
        state, models = self._state, self._proved.models if self._proved else None
        serving = [worker for worker in self.workers if worker.serving and not worker.leaving]
        self._watch_clocks(serving, now)
        state.serving = sum(not worker.still for worker in serving)
        state.differing = sum(worker.models != models for worker in serving)
        state.outdated = len(self._outdated)
        reload = self._unfinished
        if reload is not None and self._wanted is self._proved and not self._outdated:
            log.info("reloaded")
            self._note(replace(reload, outcome="reloaded", outdated=0, reason=""))
            if reload.reload == max(self._reloads):  # otherwise a later one has been refused
                state.reloaded = True
        elif reload is not None:
            self._note(replace(reload, outdated=state.outdated))
        reloads = sorted(self._reloads.values(), key=lambda reload: reload.reload)
        if reloads != self._reported:
            with suppress(OSError):  # such as a full disk
                self._report(reloads)
                self._reported = reloads

    def _watch_clocks(self, serving: Sequence[Worker], now: float) -> None:
        """Notes which workers stand still: their event loop is stuck, or the system has stopped them.

        Only changes that the supervisor itself has had the time to see count: it may have been stopped as well.
        """
        resumed = now - self._last_turn > _LONGEST_GAP
        self._last_turn = now
        for worker in serving:
            clock = self._state.clock(worker.order.number)
            if resumed or clock != worker.clock:
                worker.clock, worker.clock_changed = clock, now
            still = now - worker.clock_changed > _STILL_SECONDS
            if still and not worker.still:
                text = "worker %d does nothing for %d s, and counts as not serving"
                log.warning(text, worker.process.pid, _STILL_SECONDS)
            worker.still = still

    @property
    def _outdated(self) -> list[Worker]:
        """The workers that are not of the wanted generation, those that are leaving included."""
        return [worker for worker in self.workers if worker.generation is not self._wanted]

    @property
    def _unfinished(self) -> Reload | None:
        """The reload that made the wanted generation, while it is under way."""
        reload = self._reloads.get(self._wanted.number)
        return reload if reload is not None and reload.outcome == "reloading" else None

    def _note(self, reload: Reload) -> None:
        """Keeps how a reload stands, and forgets the one that ended first if many have ended."""
        self._reloads.pop(reload.reload, None)
        self._reloads[reload.reload] = reload
        ended = [number for number, one in self._reloads.items() if one.outcome != "reloading"]
        if len(ended) > _REMEMBERED:
            del self._reloads[ended[0]]


def _is_terminal() -> bool:
    with suppress(OSError, ValueError, AttributeError):
        return sys.stderr.isatty()
    return False
