"""What an operator would lose: workers that serve whatever happens to another; a supervisor that never stands still.

The processes are real and do nothing; the clock of the supervisor's turns is the test's own."""

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
from movemask.server.process.supervisor import Supervisor, Worker
from movemask.server.service_state import shared_state
from tests.processes import running, until
from tests.server.process.tiny import work

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals as Linux has them")

GRACE = 10.0


class Service:
    """A supervisor whose turns the test takes."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self.now, self.key = folder, 0.0, "a"
        self.ready, self.stopped, self.forgotten = 0, 0, list[int]()
        self.state = shared_state(workers)
        (folder / "models").write_text("net 1\n")
        self.supervisor = Supervisor(
            partial(work, folder),
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
        return Keys.of(self.key * 20, None)

    def turn(self) -> bool:
        return self.supervisor.turn(self.now)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Takes turns until a condition holds; the clock stands still."""

        def met() -> object:
            ended = self.turn()
            if found := condition():
                return found
            assert not ended, "the service has ended"
            self.supervisor.wait()
            return None

        until(met, what, 60)

    @property
    def workers(self) -> list[Worker]:
        return [place.worker for place in self.supervisor._places if place.worker is not None]

    @property
    def pids(self) -> set[int]:
        """Of the workers that serve."""
        return {worker.process.pid or 0 for worker in self.workers if worker.models is not None}

    @property
    def keys(self) -> list[bool]:
        """Whether each worker has the keys of `key`."""
        return [
            worker.order.keys is not None and worker.order.keys.find(self.key * 20) is not None
            for worker in self.workers
        ]

    def serves(self, workers: int = 2) -> set[int]:
        self.until(lambda: len(self.pids) == workers and not self.supervisor._leaving, f"{workers} workers serve")
        return self.pids

    def signal(self, number: signal.Signals) -> None:
        self.supervisor.handle(number)
        self.turn()


@contextmanager
def begun(folder: Path, workers: int = 2) -> Iterator[Service]:
    service = Service(folder, workers)
    try:
        service.serves(workers)
        yield service
    finally:
        for worker in service.supervisor._all():
            worker.process.kill()


@pytest.fixture
def service(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Service]:
    with caplog.at_level(logging.INFO), begun(tmp_path) as service:
        yield service


def test_workers_that_are_killed_are_replaced_at_once(service: Service) -> None:
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


def test_a_worker_that_cannot_start_is_tried_again_after_pauses_that_grow(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:

    def said(words: str) -> bool:
        return words in caplog.text

    (service.folder / "broken").write_text("a file is away")
    os.kill(min(service.pids), signal.SIGKILL)
    for pause in (1, 2, 4, 8, 16, 30, 30):
        told = f"cannot serve: a file is away; starting another in {pause} s"
        service.until(partial(said, told), told)
        assert service.state.serving == 1
        service.now += pause - 0.1
        service.turn()
        assert len(service.workers) == 1  # not yet
        service.now += 0.1
        caplog.clear()
    (service.folder / "broken").unlink()
    service.serves()


def test_a_supervisor_without_descriptors_tries_again(service: Service, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_reload_replaces_one_after_the_other_and_hands_over_the_keys(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
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
    assert sorted(worker.order.number for worker in service.workers) == [0, 2]  # never one more than three processes


@pytest.mark.parametrize("fault", ["broken", "ends", "keys"])
def test_a_reload_that_is_refused_changes_nothing(
    service: Service, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
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


def test_a_replacement_that_loads_for_ever_is_given_up(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    before = service.pids
    (service.folder / "hangs").touch()
    service.signal(signal.SIGHUP)
    service.now += 301
    service.until(lambda: "has not loaded its models in 300 s" in caplog.text, "it is given up")
    assert service.serves() == before


def test_a_worker_that_takes_the_place_of_a_dead_one_and_loads_for_ever_is_given_up(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    (service.folder / "hangs").touch()
    os.kill(min(service.pids), signal.SIGRTMIN + 6)  # which has no name
    service.until(lambda: f"ended (signal {signal.SIGRTMIN + 6})" in caplog.text, "it is replaced")
    service.until(lambda: len(service.workers) == 2, "another loads")
    service.now += 301
    (service.folder / "hangs").unlink()
    service.until(lambda: "cannot serve: it has not loaded its models in 300 s" in caplog.text, "it is given up")
    service.now += 1
    service.serves()


def test_an_old_worker_that_stands_still_is_killed_when_its_time_is_over(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """It held up the reload for ever, and nobody looked after the others."""
    before = service.pids
    for pid in before:
        os.kill(pid, signal.SIGSTOP)
    service.signal(signal.SIGHUP)
    service.until(lambda: service.supervisor._leaving, "the first is told to leave")
    (new,) = service.pids - before
    os.kill(new, signal.SIGKILL)
    service.until(lambda: service.pids - before - {new}, "a worker that dies meanwhile is replaced")
    for _ in range(2):
        service.now += GRACE
        service.until(lambda: not service.supervisor._leaving, "it is killed")
    service.until(lambda: "reloaded" in caplog.messages, "all are replaced")
    service.now += GRACE
    service.serves()
    assert not any(map(running, before))


def test_a_worker_that_dies_at_once_does_not_hold_the_supervisor_that_has_many_keys_for_it(
    service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = ",".join(f"{number:020}" for number in range(3_000))
    service.supervisor._keys = Keys.of(listed, None)
    spawned = spawn.get_executable()
    try:
        spawn.set_executable("/bin/false")
        os.kill(min(service.pids), signal.SIGKILL)
        service.until(lambda: "ended (exit code 1); starting another in 1 s" in caplog.text, "it is put off")
    finally:
        spawn.set_executable(spawned)
    service.now += 1
    service.serves()
    keys = [worker.order.keys for worker in service.workers]
    assert any(one is not None and one.find(f"{2_999:020}") is not None for one in keys)


@pytest.mark.parametrize("fault", ["broken", "ends", "hangs"])
def test_a_reload_that_a_later_worker_cannot_follow_yet_goes_on_until_all_have_the_same_keys(
    service: Service, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    before, service.key = service.pids, "b"
    service.signal(signal.SIGHUP)
    service.until(lambda: len(service.supervisor._reload) == 1 and not service.supervisor._leaving, "one is replaced")
    (service.folder / fault).write_text("away")
    service.until(lambda: service.supervisor._places[1].replacement, "the other is to be")
    service.now += 301 if fault == "hangs" else 0
    service.until(lambda: "not yet reloaded: the new worker " in caplog.text, "it cannot")
    assert len(service.serves() & before) == 1  # nobody's place is empty
    assert service.keys == [True, False]
    assert not service.state.reloaded
    (service.folder / fault).unlink()
    assert not service.supervisor._places[1].replacement  # at once
    service.now += 1
    service.until(lambda: "reloaded" in caplog.messages, "all are replaced")
    assert service.serves().isdisjoint(before)
    assert service.keys == [True, True]
    assert service.state.reloaded


def test_twelve_hangups_and_a_kill_end_in_one_reload(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    before = service.pids
    for number in range(12):
        service.signal(signal.SIGHUP)
        if number == 6:
            os.kill(min(before), signal.SIGKILL)
    service.until(lambda: "reloaded" in caplog.messages, "all are replaced")
    service.serves()
    assert not before & service.pids


def test_a_stop_during_a_reload_is_one_and_a_second_signal_kills_all(service: Service) -> None:
    for name in ("stays", "hangs"):
        (service.folder / name).touch()
    service.signal(signal.SIGHUP)
    workers = service.supervisor._all()
    assert len(workers) == 3
    service.signal(signal.SIGTERM)
    assert service.stopped
    service.until(lambda: len(service.supervisor._leaving) == 2, "the one that does not serve is killed")
    service.signal(signal.SIGTERM)
    until(service.turn, "all have ended", 60)
    assert not any(worker.process.is_alive() for worker in workers)


def test_a_replacement_needs_what_the_worker_before_it_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The default was broken at the start: replacements ended for ever, because they needed it."""
    with begun(tmp_path, 1) as service:
        assert service.workers[0].order.needed == frozenset()
        (tmp_path / "models").write_text("net 1\nother 1\n")  # another one came, or was mended
        os.kill(min(service.pids), signal.SIGKILL)
        service.until(lambda: service.forgotten and service.pids, "it is replaced")
        assert service.workers[0].order.needed == {"net"}
        assert "model other: worker" in caplog.text
        assert "reload, so that all workers agree" in caplog.text
        assert service.state.differing == 1
        (tmp_path / "models").write_text("net 1\n")
        os.kill(min(service.pids), signal.SIGKILL)
        service.until(lambda: "it needs ['net', 'other']" in caplog.text, "it needs both")


def test_a_first_worker_that_cannot_serve_ends_the_service(tmp_path: Path) -> None:
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


def test_signals_by_which_others_change_the_number_of_workers_do_nothing(service: Service) -> None:
    before = service.pids
    service.signal(signal.SIGTTIN)
    service.signal(signal.SIGTTOU)
    assert service.serves() == before
