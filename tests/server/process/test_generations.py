"""Supervisor: random histories of deaths and reloads, and the cases that they do not judge, in a simulated world."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.parts import part_of
from tests.server.process.histories import GRACE, Random, World


def settled(world: World) -> bool:
    """Whether the desired number of workers serve, and nothing is under way."""
    workers = world.supervisor.workers
    return len(workers) == len(world.serving) == world.state.desired and not world.state.outdated


def check_turn(world: World, seconds: float) -> bool:
    """Takes a turn, after which these hold whatever has happened. Returns whether the service has ended."""
    world.now += seconds
    before = len(world.serving)
    ended = world.turn()
    assert len(world.alive) <= world.state.desired + 1, "more than one process too many"
    assert len(world.serving) >= min(before, world.state.desired), "a worker was ended that was needed"
    numbers = [process.order.number for process in world.alive]
    assert len(numbers) == len({*numbers}), "two processes have one number"
    return ended


def check_history(seed: int) -> None:
    world = Random(seed)
    proved = 0
    for _ in range(world.random.choice([40, 120])):
        if check_turn(world, world.random.choice([0.1, 0.5, 2, 10])):
            assert not proved, "the service has ended"
            return
        served = [worker.generation.number for worker in world.supervisor.workers if worker.serving]
        proved = max([proved, *served])
        world.happen()
    world.calm = world.descriptors = world.readable = True
    world.fault = ""
    for _ in range(3000):
        if check_turn(world, 1.0) or settled(world):
            break
    if not world.serving:
        return  # the first worker could not serve
    assert settled(world), world.supervisor.workers
    generations = {worker.generation for worker in world.supervisor.workers}
    assert len(generations) == 1, "workers of several generations"
    assert max(generation.number for generation in generations) >= proved, "of an older one than has served"
    assert not [reload for reload in world.reloads.values() if reload.outcome == "reloading"]

    # A reload that cannot succeed changes nothing.
    world.fault = "a model is broken"
    before = {worker.process.pid for worker in world.serving}
    world.hang_up()
    world.turn(1.0)
    number = max(world.reloads)
    while world.reloads[number].outcome == "reloading":
        check_turn(world, 1.0)
    assert world.reloads[number].outcome == "refused"
    assert {worker.process.pid for worker in world.serving} == before
    assert world.state.serving == world.state.desired


@pytest.mark.parametrize("seed", part_of([*range(0, 2000, 100)], 5))
def test_random_histories(seed: int) -> None:
    for number in range(seed, seed + 100):
        check_history(number)


@pytest.fixture
def world() -> World:
    """Two workers that serve."""
    world = World(2)
    world.turns(5)
    assert settled(world)
    return world


def outcome(world: World, number: int) -> str:
    return world.reloads[number].outcome


def test_worker_that_has_served_is_replaced_during_a_pause(world: World) -> None:
    world.fault = "a model is broken"
    world.alive[0].kill()
    world.turns(2)
    assert len(world.alive) == 1, "no pause"
    world.fault = ""
    world.alive[0].kill()
    world.turn()
    assert len(world.alive) == 2
    world.turns(2)
    assert settled(world)


def test_starts_that_fail_together_pause_once() -> None:
    world = World(4)
    world.turn()
    world.fault = "a model is broken"  # for the other three
    world.turns(16)
    assert [process.started for process in world.processes] == [0, 1, 1, 1, 3, 6, 11]
    world.fault = ""
    world.turns(15)
    assert settled(world)


def test_numbers_of_ended_workers_are_used_again(world: World) -> None:
    for _ in range(3):
        world.hang_up()
        world.turns(20)
        world.alive[0].kill()
        world.turns(5)
    assert {process.order.number for process in world.processes} == {0, 1, 2}
    assert len(world.forgotten) == len(world.processes) - 2


def test_reload_before_any_worker_serves_waits() -> None:
    world = World(2)
    world.turn()
    world.hang_up()
    world.hang_up()
    world.turns(0.5)
    assert not world.reloads
    world.turns(20)
    assert {number: reload.outcome for number, reload in world.reloads.items()} == {1: "reloaded"}
    assert world.keys == [True, True]


def test_reload_is_done_when_old_workers_have_ended(world: World) -> None:
    world.leaving = lambda: 60.0
    world.hang_up()
    world.turns(1.5)
    old = world.processes[:2]
    while any(process.is_alive() for process in old):
        assert world.reloads[1].outcome == "reloading"
        assert world.reloads[1].outdated == world.state.outdated > 0
        world.turn(0.5)
    world.turn()
    assert (world.reloads[1].outcome, world.reloads[1].outdated) == ("reloaded", 0)
    assert world.now > 2 * GRACE


@pytest.mark.parametrize("fault", ["keys", "models", "descriptors"])
def test_refused_reload_lets_the_one_before_it_go_on(world: World, fault: str) -> None:
    world.leaving = lambda: 60.0
    world.hang_up()
    world.turns(1.5)
    assert world.keys == [False, False, True]
    world.readable, world.descriptors = fault != "keys", fault != "descriptors"
    world.fault = "a model is broken" if fault == "models" else ""
    world.hang_up()
    world.turns(20)
    assert world.reloads[2].outcome == "refused"
    assert not world.state.reloaded
    assert outcome(world, 1) == "reloading"
    world.readable, world.descriptors, world.fault = True, True, ""
    world.turns(60)
    assert settled(world)
    assert {worker.generation.number for worker in world.supervisor.workers} == {1}
    assert outcome(world, 1) == "reloaded"
    assert not world.state.reloaded, "the last reload has been refused"
    world.hang_up()
    world.turns(60)
    assert world.state.reloaded


def test_reload_supersedes_one_of_which_no_worker_serves(world: World) -> None:
    world.hang_up()
    world.turn()
    (unproved,) = world.processes[2:]
    world.hang_up()
    world.turn()
    assert not unproved.is_alive()
    assert len(world.alive) == 2, "another process before the superseded one has ended"
    world.turns(30)
    assert {number: reload.outcome for number, reload in world.reloads.items()} == {1: "superseded", 2: "reloaded"}
    assert settled(world)


def test_superseded_reload_ends_no_other_worker_that_loads(world: World) -> None:
    world.loading = lambda: 10.0
    world.alive[0].kill()
    world.turn()
    world.hang_up()
    world.turn()
    replacement, unproved = world.processes[2:]
    world.hang_up()
    world.turn()
    assert not unproved.is_alive()
    assert replacement.is_alive()
    world.turns(60)
    assert {number: reload.outcome for number, reload in world.reloads.items()} == {1: "superseded", 2: "reloaded"}


def test_worker_that_ends_while_a_reload_is_tried_is_replaced(world: World) -> None:
    """A generation of which no worker has served fills no place."""
    world.loading = lambda: 10.0
    world.hang_up()
    world.turn()
    world.processes[0].kill()
    world.turn()
    assert [process.order.needed for process in world.alive[1:]] == [None, frozenset({"net"})]
    world.turns(120)
    assert settled(world)


def test_reload_after_failing_starts_is_tried_at_once(world: World) -> None:
    world.fault = "a model is broken"
    for process in world.alive:
        process.kill()
    world.turns(30)
    assert not world.serving
    world.fault = ""
    world.hang_up()
    world.turns(1.5)
    assert 1 in {worker.generation.number for worker in world.serving}
    world.turns(5)
    assert settled(world)


def test_generation_needs_the_models_of_its_first_worker(world: World) -> None:
    net = frozenset({"net"})
    assert [process.order.needed for process in world.processes] == [frozenset(), net]
    world.models = {"net": "1", "other": "1"}
    world.alive[0].kill()
    world.turns(5)
    assert (world.processes[-1].order.needed, world.state.differing) == (net, 1)
    world.hang_up()
    world.turns(20)
    assert [process.order.needed for process in world.processes[-2:]] == [None, net | {"other"}]
    assert world.state.differing == 0


@pytest.mark.parametrize("moment", range(0, 14))
def test_stop_at_any_moment_of_a_reload(world: World, moment: int) -> None:
    world.leaving = lambda: 3.0
    world.hang_up()
    world.turns(moment * 0.5)
    world.supervisor.handle(signal.SIGTERM)
    for _ in range(8):
        ended = world.turn(0.5)
    assert ended
    assert not world.alive
    assert world.stops > 1


def test_stop_before_any_worker_serves() -> None:
    world = World(2)
    world.turn()
    world.supervisor.handle(signal.SIGTERM)
    world.turn()
    assert world.turn()
    assert len(world.processes) == 1


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="Windows has no SIGHUP")
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_sighup_of_a_terminal_that_is_closed_stops(monkeypatch: pytest.MonkeyPatch, closed: bool) -> None:
    """A terminal sends SIGHUP when it is closed; one that is open did not send it."""
    terminal, stderr = os.openpty()
    with open(stderr, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        world = World(1)
        world.turns(5)
        if closed:
            os.close(terminal)
        world.hang_up()
        world.turn()
        assert (world.stops > 0, len(world.reloads)) == ((True, 0) if closed else (False, 1))
    if not closed:
        os.close(terminal)


@pytest.mark.parametrize(("signals", "seconds"), [(1, GRACE), (2, 0)])
def test_stop_kills_after_the_grace_or_a_second_signal(world: World, signals: int, seconds: float) -> None:
    world.leaving = lambda: 1000.0
    for _ in range(signals):
        world.supervisor.handle(signal.SIGTERM)
    world.turn()
    if seconds:
        world.turns(seconds - 0.5)
        assert len(world.alive) == 2
        world.turn(0.5)
    assert not world.alive
    assert world.turn()


def test_worker_whose_clock_stands_still_counts_as_not_serving(world: World, caplog: pytest.LogCaptureFixture) -> None:
    stuck = world.processes[0]
    world.stopped.add(stuck)
    world.turns(60)
    assert world.state.serving == 2
    world.turns(1)
    assert (world.state.serving, world.state.desired) == (1, 2)
    assert f"worker {stuck.pid} does nothing for 60 s" in caplog.text
    assert stuck.is_alive(), "the supervisor has ended it"
    world.stopped.clear()
    world.turn(0.5)
    assert world.state.serving == 2


def test_clock_counts_only_while_the_supervisor_watches(world: World) -> None:
    """After a suspended machine resumes, all clocks have stood still."""
    world.stopped.add(world.processes[0])
    world.turns(50)
    world.turn(5.5)
    world.turns(60)
    assert world.state.serving == 2
    world.turns(1)
    assert world.state.serving == 1


def test_reloads_are_reported_when_the_disk_has_room_again(world: World) -> None:
    world.full = True
    world.hang_up()
    world.turns(30)
    assert settled(world)
    assert not world.reloads
    world.full = False
    world.turn()
    assert world.reloads[1].outcome == "reloaded"


def test_outcomes_of_many_reloads_stay_bounded(world: World) -> None:
    for number in range(1, 30):
        world.readable = number % 3 > 0
        world.hang_up()
        world.turn(0.1)
        assert max(world.reloads) == number
        assert len(world.reported) <= 11
