"""`Supervisor`: starts, replaces, reloads and stops the worker processes of a service.

It is one loop over the states of the workers, in which nothing blocks: a turn looks at all of them and takes the next
step of what is under way. A worker is starting, serving, or leaving until the time at which it is killed.
"""

from __future__ import annotations

import itertools
import logging
import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from movemask.errors import MovemaskError, SettingsError
from movemask.server.edge.keys import Keys
from movemask.server.service_state import ServiceState

log = logging.getLogger(__name__)

#: Seconds between two turns, if no worker ends or says that it serves.
_TURN_SECONDS = 0.5

#: Seconds that a worker has to load its models, but for the first one of the service.
_LOADING_SECONDS = 300
_TOO_SLOW = f"it has not loaded its models in {_LOADING_SECONDS} s"

#: Longest pause in seconds before a worker that cannot start is tried again.
_LONGEST_PAUSE = 30.0

#: The exit code of a process whose program cannot be run.
_NO_PROGRAM = 255


@dataclass(frozen=True)
class Order:
    """What a worker is started with.

    number : of no other process that runs; counts of ended workers go on under their number
    keys : the API keys; None: everything is open
    needed : names of the models without which it must not serve; None: all that it finds
    """

    number: int
    keys: Keys | None
    needed: frozenset[str] | None


@dataclass(eq=False)
class Worker:
    """A worker process.

    pipe : on which it sends once: `models` when it serves, or `fault`
    models : a digest of each model that it serves, by name; None: it is starting
    fault : why it cannot serve
    until : when it is killed
    """

    process: SpawnProcess
    pipe: Connection
    order: Order
    begun: float
    models: dict[str, str] | None = None
    fault: str = ""
    until: float = math.inf

    def begins_to_serve(self) -> bool:
        """Whether it says so now. Takes what the worker has sent."""
        try:
            if self.pipe.closed or not self.pipe.poll():
                return False
            told = self.pipe.recv()
        except (EOFError, OSError):  # it has ended
            told = ""
        self.pipe.close()
        if isinstance(told, str):
            self.fault = told
            return False
        self.models = told
        return True

    @property
    def end(self) -> str:
        """How it has ended, in words."""
        code = self.process.exitcode
        if self.fault:
            return f"cannot serve: {self.fault}"
        if code is not None and code < 0:
            names = {
                number.value: number.name for number in signal.Signals
            }  # not those for programs' own use
            return f"ended ({names.get(-code, f'signal {-code}')})"
        return f"ended (exit code {code})"


@dataclass(eq=False)
class Place:
    """The place of a worker.

    replacement : in a reload
    needed : what its last worker served, or the first of the service
    pause, again : seconds before a worker is started, and when that is over
    """

    worker: Worker | None = None
    replacement: Worker | None = None
    needed: frozenset[str] = frozenset()
    pause: float = 0.0
    again: float = 0.0

    @property
    def workers(self) -> list[Worker]:
        return [worker for worker in (self.worker, self.replacement) if worker is not None]


class Supervisor:
    """The first worker starts alone, the others when it serves. A worker that ends is replaced; one that cannot start
    is tried again after a pause that grows. SIGHUP replaces the workers one after the other. If the first replacement
    cannot serve, the reload is refused, and all stay as they are. Once it serves, all follow, so that all workers have
    the same keys: a later one that cannot serve is tried again too, and the worker that it is to replace stays.

    Parameters
    ----------
    work : what a worker process runs, with its order and its end of the pipe; it is sent there
    state : of the service; its `desired` is the number of workers
    keys : the API keys; None: everything is open
    read : reads the keys anew, and checks what else a worker reads; raises MovemaskError
    grace : seconds that a worker has to stop
    ready : called once, when the first worker serves
    stopping : called in each turn of a stop
    forget : called with the number of each worker that has ended
    """

    def __init__(
        self,
        work: Callable[[Order, Connection], None],
        state: ServiceState,
        *,
        keys: Keys | None,
        read: Callable[[], Keys | None],
        grace: float,
        ready: Callable[[], None] = lambda: None,
        stopping: Callable[[], None] = lambda: None,
        forget: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._work, self._state, self._read, self._grace = work, state, read, grace
        self._ready, self._stopping, self._forget = ready, stopping, forget
        self._context = multiprocessing.get_context("spawn")
        self._places = [Place() for _ in range(state.desired)]
        self._leaving: list[Worker] = []
        self._reload: list[Place] = []  # still to be replaced
        self._keys = self._new_keys = keys
        self._models: dict[str, str] | None = (
            None  # of the last start or reload; None: no worker has served
        )
        self._failed: Worker | None = None  # the first worker, if it could not serve
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
            for worker in self._all():
                worker.process.kill()
        if self._failed is not None:
            hint = "the log's last line says what it was doing"
            if self._failed.process.exitcode == _NO_PROGRAM:
                hint = f"this user cannot run {sys.executable}"
            raise SettingsError(
                self._failed.fault or f"a worker {self._failed.end} before it could serve; {hint}"
            )

    def handle(self, number: int, frame: object = None) -> None:
        """Handles a signal. SIGTTIN and SIGTTOU, by which other services get more and fewer workers, do nothing."""
        self._stops += number in (signal.SIGTERM, signal.SIGINT)
        self._hangups += number == getattr(signal, "SIGHUP", None)

    def wait(self) -> None:
        """Returns when a process ends or tells something, after half a second at most."""
        workers = self._all()
        watched: list[Any] = [worker.process.sentinel for worker in workers]
        watched += [worker.pipe for worker in workers if not worker.pipe.closed]
        if watched:
            wait(watched, _TURN_SECONDS)
        else:  # every place pauses
            time.sleep(_TURN_SECONDS)

    def turn(self, now: float) -> bool:
        """Takes the next step of everything that is under way. Whether the service has ended."""
        for worker in filter(Worker.begins_to_serve, self._all()):
            self._welcome(worker)
        for worker in list(self._leaving):
            if not worker.process.is_alive():
                self._leaving.remove(worker)
                self._forget(worker.order.number)
            elif self._stops > 1 or now >= worker.until:
                worker.process.kill()
        if (
            self._hangups and self._terminal and not _is_terminal()
        ):  # the service's terminal was closed
            self._stops = max(self._stops, 1)
        if self._stops:
            self._stopping()
            for place in self._places:
                for worker in place.workers:
                    self._leave(worker, now)
                place.worker = place.replacement = None
            return not self._leaving
        if self._hangups and self._models is not None:
            self._hangups = 0
            self._begin_reload(now)
        for place in self._places:
            self._continue_reload(place, now)
            self._keep(place, now)
        # One after the other, so that there is never more than one worker too many.
        due = bool(self._reload) and now >= self._reload[0].again and not self._leaving
        if due and not any(place.replacement for place in self._places):
            try:
                self._reload[0].replacement = self._started(self._new_keys, None, now)
            except OSError as error:
                self._give_up(self._reload[0], _unstartable(error), now)
        serving = [
            place.worker.models
            for place in self._places
            if place.worker and place.worker.models is not None
        ]
        self._state.serving = len(serving)
        self._state.differing = sum(models != self._models for models in serving)
        return self._failed is not None

    def _all(self) -> list[Worker]:
        return [*(worker for place in self._places for worker in place.workers), *self._leaving]

    def _started(self, keys: Keys | None, needed: frozenset[str] | None, now: float) -> Worker:
        """A new worker. Raises OSError."""
        taken = {worker.order.number for worker in self._all()}
        order = Order(
            next(number for number in itertools.count() if number not in taken), keys, needed
        )
        here, there = self._context.Pipe(duplex=False)
        with there:
            try:
                process = self._context.Process(target=self._work, args=(order, there))
                process.start()
            except BaseException:
                here.close()
                raise
        return Worker(process, here, order, now)

    def _welcome(self, worker: Worker) -> None:
        """Tells that a worker serves, and which models it has that the others do not."""
        log.info("worker %d serves", worker.process.pid)
        assert worker.models is not None
        if self._models is None:
            self._models = worker.models
            for place in self._places:
                place.needed = frozenset(worker.models)
            self._ready()
        elif (
            worker.order.needed is not None and worker.models != self._models
        ):  # in a reload, all change
            changed = sorted({name for name, _ in worker.models.items() ^ self._models.items()})
            fault = "model %s: worker %d has other files than the last reload found; reload, so that all workers agree"
            log.warning(fault, ", ".join(changed), worker.process.pid)

    def _keep(self, place: Place, now: float) -> None:
        """Starts another worker if that of a place has ended, and ends one that loads for too long."""
        loading = place.worker if self._models is not None else None
        if (
            loading is not None
            and loading.models is None
            and now - loading.begun > _LOADING_SECONDS
        ):
            loading.fault = _TOO_SLOW
            loading.process.kill()
        if place.worker is not None and not place.worker.process.is_alive():
            ended, place.worker = place.worker, None
            self._forget(ended.order.number)
            if self._models is None:
                self._failed = ended
                return
            if ended.models is not None:
                place.needed = frozenset(ended.models)
            self._put_off(
                place,
                f"worker {ended.process.pid} {ended.end}",
                now,
                served=ended.models is not None,
            )
        if (
            place.worker is None
            and now >= place.again
            and (self._models is not None or place is self._places[0])
        ):
            try:
                place.worker = self._started(self._keys, place.needed, now)
            except OSError as error:
                if self._models is None:
                    raise
                self._put_off(place, _unstartable(error), now)

    def _put_off(self, place: Place, why: str, now: float, *, served: bool = False) -> None:
        """Sets when another worker is started: after 1, 2, 4, … seconds; at once for one that has served."""
        place.pause = 0.0 if served else min(max(1.0, 2 * place.pause), _LONGEST_PAUSE)
        place.again = now + place.pause
        log.error("%s; starting another%s", why, f" in {place.pause:g} s" if place.pause else "")

    def _leave(self, worker: Worker, now: float) -> None:
        """Ends a worker, which has time to finish its requests if it serves."""
        self._leaving.append(worker)
        if worker.models is None:
            worker.process.kill()
        else:
            worker.until = now + self._grace
            worker.process.terminate()

    def _begin_reload(self, now: float) -> None:
        log.info("reloading: the workers are replaced one after the other")
        self._end_reload(now)
        self._reload = list(self._places)
        for place in self._places:
            place.again = min(place.again, now)  # what could not start may have been mended
        try:
            self._new_keys = self._read()
        except MovemaskError as error:
            self._refuse(str(error), now)

    def _continue_reload(self, place: Place, now: float) -> None:
        """Lets a replacement that serves take the place; gives it up if it cannot."""
        new = place.replacement
        if new is None:
            return
        if new.models is not None:
            if place.worker is not None:
                self._leave(place.worker, now)
            place.worker, place.replacement = new, None
            place.pause = place.again = 0.0
            self._keys, self._models = new.order.keys, new.models
            self._reload.remove(place)
            if not self._reload:
                self._state.reloaded = True
                log.info("reloaded")
        elif not new.process.is_alive():
            self._give_up(place, f"the new worker {new.end}", now)
        elif now - new.begun > _LOADING_SECONDS:
            self._give_up(place, f"the new worker cannot serve: {_TOO_SLOW}", now)

    def _give_up(self, place: Place, why: str, now: float) -> None:
        """Gives a replacement up, and with the first one the reload; a later one is tried again."""
        if len(self._reload) == len(self._places):
            return self._refuse(why, now)
        self._state.reloaded = False
        if place.replacement is not None:
            self._leave(place.replacement, now)
            place.replacement = None
        self._put_off(place, f"not yet reloaded: {why}", now)

    def _refuse(self, why: str, now: float) -> None:
        """Ends a reload that has replaced no worker."""
        self._end_reload(now)
        self._state.reloaded = False
        log.error("not reloaded: %s; the workers stay as they were", why)

    def _end_reload(self, now: float) -> None:
        for place in self._places:
            if place.replacement is not None:
                self._leave(place.replacement, now)
                place.replacement = None
        self._reload = []


def _unstartable(error: OSError) -> str:
    return f"no worker can be started: {os.strerror(error.errno).lower() if error.errno else error}"


def _is_terminal() -> bool:
    with suppress(OSError, ValueError, AttributeError):
        return sys.stderr.isatty()
    return False
