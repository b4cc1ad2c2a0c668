"""Supervisor: replacements, reloads and stops with real processes, which do nothing, and a clock of the test's own."""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import spawn
from pathlib import Path

import pytest

from movemask.errors import KeysError, SettingsError
from movemask.server.edge.keys import Keys
from movemask.server.process.supervisor import Supervisor
from movemask.server.process.worker_process import Worker, spawn_worker
from movemask.server.service_state import shared_state
from tests.processes import running, until
from tests.server.process.tiny import work

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals as Linux has them")

GRACE = 10.0


class Service:
    """A supervisor whose turns the test takes."""

    def __init__(self, folder: Path, workers: int, more_keys: str = "") -> None:
        self.folder, self.now, self.key, self.more_keys = folder, 0.0, "a", more_keys
        self.ready, self.stopped, self.forgotten = 0, 0, list[int]()
        self.state = shared_state(workers)
        (folder / "models").write_text("net 1\n")
        self.supervisor = Supervisor(
            partial(spawn_worker, partial(work, folder)),
            self.state,
            keys=self.read(),
            read=self.read,
            grace=GRACE,
            ready=lambda: setattr(self, "ready", self.ready + 1),
            stopping=lambda: setattr(self, "stopped", self.stopped + 1),
            forget=self.forgotten.append,
        )

    def read(self) -> Keys | None:
        if self.key == "broken":
            raise KeysError("keys: line 1")
        return Keys.of(f"{self.key * 20},{self.more_keys}", None)

    def turn(self) -> bool:
        return self.supervisor.turn(self.now)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Takes turns until a condition holds; the clock stands still."""

        def met() -> object:
            ended = self.turn()
            if result := condition():
                return result
            assert not ended, "the service has ended"
            self.supervisor.wait()
            return None

        until(met, what, 60)

    @property
    def workers(self) -> list[Worker]:
        """Those that have not been told to leave."""
        return [worker for worker in self.supervisor.workers if not worker.leaving]

    @property
    def leaving(self) -> list[Worker]:
        return [worker for worker in self.supervisor.workers if worker.leaving]

    @property
    def pids(self) -> set[int]:
        """Of the workers that serve."""
        return {worker.process.pid or 0 for worker in self.workers if worker.serving}

    @property
    def keys(self) -> list[bool]:
        """Whether each worker has the keys of `key`."""
        return [
            worker.order.keys is not None and worker.order.keys.find(self.key * 20) is not None
            for worker in self.workers
        ]

    def serves(self, workers: int = 2) -> set[int]:
        def settled() -> bool:
            return len(self.pids) == len(self.supervisor.workers) == workers

        self.until(settled, f"{workers} workers serve")
        return self.pids

    def signal(self, number: signal.Signals) -> None:
        self.supervisor.handle(number)
        self.turn()


@contextmanager
def started(folder: Path, workers: int = 2, more_keys: str = "") -> Iterator[Service]:
    service = Service(folder, workers, more_keys)
    try:
        service.serves(workers)
        yield service
    finally:
        for worker in service.supervisor.workers:
            worker.process.kill()


@pytest.fixture
def service(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Service]:
    with caplog.at_level(logging.INFO), started(tmp_path) as service:
        yield service


def test_killed_workers_are_replaced_at_once(service: Service) -> None:
    assert (service.ready, service.state.serving, service.state.desired) == (1, 2, 2)
    first = service.pids
    os.kill(min(first), signal.SIGKILL)
    service.until(lambda: len(service.pids - first) == 1, "it is replaced")
    second = service.serves()
    for pid in second:
        os.kill(pid, signal.SIGKILL)
    service.until(lambda: len(service.pids - second) == 2, "both are replaced")
    assert sorted(worker.order.number for worker in service.workers) == [0, 1]
    assert len(service.forgotten) == 3
    assert service.ready == 1


def test_failing_starts_pause_longer_each_time(service: Service, caplog: pytest.LogCaptureFixture) -> None:

    def said(words: str) -> bool:
        return words in caplog.text

    (service.folder / "broken").write_text("a file is away")
    os.kill(min(service.pids), signal.SIGKILL)
    for pause in (1, 2, 4, 8, 16, 30, 30):
        message = f"cannot serve: a file is away; starting another in {pause} s"
        service.until(partial(said, message), message)
        assert service.state.serving == 1
        service.now += pause - 0.1
        service.turn()
        assert len(service.workers) == 1  # not yet
        service.now += 0.1
        caplog.clear()
    (service.folder / "broken").unlink()
    service.serves()


def test_start_without_descriptors_is_retried(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """It lost the worker for good, and the next SIGTERM did nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.kill(min(service.pids), signal.SIGKILL)
    until(lambda: not all(map(running, service.pids)), "it has ended")
    used = max(map(int, os.listdir("/proc/self/fd")))
    with open(os.devnull) as free:
        resource.setrlimit(resource.RLIMIT_NOFILE, (free.fileno(), hard))
        try:
            service.turn()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert used
    assert "no worker can be started: too many open files; starting another in 1 s" in caplog.text
    service.now += 1
    service.serves()


def test_reload_replaces_workers_one_by_one_with_new_keys(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    before, service.key = service.pids, "b"
    os.kill(min(before), signal.SIGKILL)  # the new keys are in the file, and nobody has asked for a reload
    service.until(lambda: service.pids - before, "it is replaced")
    service.serves()
    assert service.keys == [False, False]
    before = service.pids
    service.signal(signal.SIGHUP)
    service.until(lambda: "reloaded" in caplog.messages, "all are replaced")
    service.serves()
    assert not before & service.pids
    assert service.keys == [True, True]
    assert service.state.reloaded
    assert {worker.order.number for worker in service.workers} < {0, 1, 2}, "more than three processes"


@pytest.mark.parametrize("fault", ["broken", "ends", "keys"])
def test_refused_reload_changes_nothing(service: Service, caplog: pytest.LogCaptureFixture, fault: str) -> None:
    before, words = service.pids, {"broken": "away", "ends": "ended (exit code 7)", "keys": "keys: line 1"}[fault]
    if fault == "keys":
        service.key = "broken"
    else:
        (service.folder / fault).write_text("away")
    service.signal(signal.SIGHUP)
    service.until(lambda: "not reloaded" in caplog.text, "it is refused")
    (line,) = (line for line in caplog.messages if line.startswith("not reloaded: "))
    assert words in line
    assert line.endswith("; the workers stay as they were")
    assert service.serves() == before
    assert not service.state.reloaded
    service.key = "b"
    for name in ("broken", "ends"):
        (service.folder / name).unlink(missing_ok=True)
    service.signal(signal.SIGHUP)
    service.until(lambda: "reloaded" in caplog.messages, "it is mended")
    assert service.state.reloaded


def test_reload_that_loads_for_ever_is_refused(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    before = service.pids
    (service.folder / "hangs").touch()
    service.signal(signal.SIGHUP)
    service.now += 301
    service.until(lambda: "has not loaded its models in 300 s" in caplog.text, "it is given up")
    assert service.serves() == before


def test_replacement_that_loads_for_ever_is_retried(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    (service.folder / "hangs").touch()
    os.kill(min(service.pids), signal.SIGRTMIN + 6)  # which has no name
    service.until(lambda: f"ended (signal {signal.SIGRTMIN + 6})" in caplog.text, "it is replaced")
    service.until(lambda: len(service.workers) == 2, "another loads")
    service.now += 301
    (service.folder / "hangs").unlink()
    service.until(lambda: "cannot serve: it has not loaded its models in 300 s" in caplog.text, "it is given up")
    service.now += 1
    service.serves()


def test_stopped_old_worker_is_killed_after_its_grace(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """It held up the reload for ever, and nobody looked after the others."""
    before = service.pids
    for pid in before:
        os.kill(pid, signal.SIGSTOP)
    service.signal(signal.SIGHUP)
    service.until(lambda: service.leaving, "the first is told to leave")
    (new,) = service.pids - before
    os.kill(new, signal.SIGKILL)
    service.until(lambda: service.pids - before - {new}, "a worker that dies meanwhile is replaced")
    for _ in range(2):
        service.until(lambda: service.leaving, "an old one is told to leave")
        service.now += GRACE
        service.until(lambda: not service.leaving, "it is killed")
    service.until(lambda: "reloaded" in caplog.messages, "all are replaced")
    service.serves()
    assert not any(map(running, before))


def test_worker_that_dies_before_reading_many_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A pipe holds a thousand keys, and the supervisor once waited for a dead worker to read more."""
    with started(tmp_path, 2, ",".join(f"{number:020}" for number in range(3_000))) as service:
        executable = spawn.get_executable()
        try:
            spawn.set_executable("/bin/false")
            os.kill(min(service.pids), signal.SIGKILL)
            service.until(lambda: "ended (exit code 1); starting another in 1 s" in caplog.text, "it is put off")
        finally:
            spawn.set_executable(executable)
        service.now += 1
        service.serves()
        keys = [worker.order.keys for worker in service.workers]
        assert all(one is not None and one.find(f"{2_999:020}") is not None for one in keys)


@pytest.mark.parametrize("fault", ["broken", "ends", "hangs"])
def test_reload_retries_later_workers_until_keys_agree(
    service: Service, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    before, service.key = service.pids, "b"
    service.signal(signal.SIGHUP)
    service.until(lambda: len(service.pids - before) == 1 and not service.leaving, "one is replaced")
    (service.folder / fault).write_text("away")
    service.until(lambda: len(service.workers) == 3, "the replacement of the other starts")
    service.now += 301 if fault == "hangs" else 0
    service.until(lambda: "not yet reloaded: the new worker " in caplog.text, "it cannot serve")
    assert len(service.serves() & before) == 1  # no place is empty
    assert sorted(service.keys) == [False, True]
    assert not service.state.reloaded
    assert service.state.outdated == 1
    (service.folder / fault).unlink()
    service.turn()
    assert len(service.workers) == 2  # not at once
    service.now += 1
    service.until(lambda: "reloaded" in caplog.messages, "all are replaced")
    assert service.serves().isdisjoint(before)
    assert service.keys == [True, True]
    assert (service.state.reloaded, service.state.outdated) == (True, 0)


def test_repeated_sighup_and_a_kill_end_in_one_reload(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    before = service.pids
    for number in range(12):
        service.signal(signal.SIGHUP)
        if number == 6:
            os.kill(min(before), signal.SIGKILL)
    service.until(lambda: "reloaded" in caplog.messages, "all are replaced")
    service.serves()
    assert not before & service.pids


def test_second_signal_during_a_reload_kills_all(service: Service) -> None:
    for name in ("stays", "hangs"):
        (service.folder / name).touch()
    service.signal(signal.SIGHUP)
    workers = [*service.supervisor.workers]
    assert len(workers) == 3
    service.signal(signal.SIGTERM)
    assert service.stopped
    service.until(lambda: len(service.leaving) == 2, "the one that does not serve is killed")
    service.signal(signal.SIGTERM)
    until(service.turn, "all have ended", 60)
    assert not any(worker.process.is_alive() for worker in workers)


def test_replacement_needs_the_models_of_its_generation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The default was broken at the start: replacements ended for ever, because they needed it."""
    with started(tmp_path, 1) as service:
        assert service.workers[0].order.needed == frozenset()
        (tmp_path / "models").write_text("net 1\nother 1\n")  # another one came, or was mended
        os.kill(min(service.pids), signal.SIGKILL)
        service.until(lambda: service.forgotten and service.pids, "it is replaced")
        assert service.workers[0].order.needed == {"net"}
        assert "model other: worker" in caplog.text
        assert "reload, so that all workers agree" in caplog.text
        assert service.state.differing == 1
        (tmp_path / "models").write_text("other 1\n")
        os.kill(min(service.pids), signal.SIGKILL)
        service.until(lambda: "it needs ['net']" in caplog.text, "a worker without the model does not serve")
        (tmp_path / "models").write_text("net 1\n")
        service.now += 1
        service.serves(1)
        assert service.state.differing == 0
        service.signal(signal.SIGHUP)
        service.until(lambda: len(service.supervisor.workers) == 2, "the first worker of a reload starts")
        assert service.workers[-1].order.needed is None


def test_first_worker_that_cannot_serve_ends_the_service(tmp_path: Path) -> None:
    service = Service(tmp_path, 2)
    (tmp_path / "broken").write_text("MOVEMASK_X: is wrong")
    before = {name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        with pytest.raises(SettingsError, match=r"^MOVEMASK_X: is wrong$"):
            service.supervisor.run()
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
    assert not service.ready


def test_signals_for_more_and_fewer_workers_do_nothing(service: Service) -> None:
    before = service.pids
    service.signal(signal.SIGTTIN)
    service.signal(signal.SIGTTOU)
    assert service.serves() == before


@pytest.mark.parametrize("fault", ["keys", "broken"])
def test_reload_refused_during_another(service: Service, caplog: pytest.LogCaptureFixture, fault: str) -> None:
    """A deleted key once stayed valid in the workers that the first reload had not reached."""
    service.key = "b"
    service.signal(signal.SIGHUP)
    service.until(lambda: sorted(service.keys) == [False, True], "one worker is replaced")
    if fault == "keys":
        service.key = "broken"
    else:
        service.key = "c"
        (service.folder / fault).write_text("away")
    service.signal(signal.SIGHUP)
    service.until(lambda: "not reloaded" in caplog.text, "the second reload is refused")
    (service.folder / "broken").unlink(missing_ok=True)
    service.key = "b"
    service.now += 40
    service.until(lambda: service.keys == [True, True], "all workers have the keys of the first")
