"""`ServiceState`: numbers that the supervisor and the workers of a service share."""

from __future__ import annotations

import ctypes
import multiprocessing

#: Slots for the clocks of workers. A service has at most 64 workers, and few more while it replaces them.
_CLOCKS = 128


class ServiceState(ctypes.Structure):
    """Numbers of workers, how the last reload ended, and a clock of each worker.

    desired, serving : workers that there should be, and that serve
    differing : workers that serve other model files than the last start or reload found
    reloaded : whether the last reload was not refused, and all workers could follow it
    outdated : workers that are not of the wanted generation
    """

    _fields_ = (
        ("desired", ctypes.c_int),
        ("serving", ctypes.c_int),
        ("differing", ctypes.c_int),
        ("reloaded", ctypes.c_bool),
        ("outdated", ctypes.c_int),
        ("_clocks", ctypes.c_double * _CLOCKS),
    )
    desired: int
    serving: int
    differing: int
    reloaded: bool
    outdated: int

    def clock(self, number: int) -> float:
        """Returns the clock of the worker with a number. It changes as long as the worker's event loop turns."""
        clock: float = self._clocks[number % _CLOCKS]
        return clock

    def set_clock(self, number: int, seconds: float) -> None:
        """Sets the clock of the worker with a number."""
        self._clocks[number % _CLOCKS] = seconds


def shared_state(desired: int) -> ServiceState:
    """Makes a state in memory that the supervisor and its workers share. multiprocessing passes it to them."""
    return multiprocessing.get_context("spawn").RawValue(ServiceState, desired, 0, 0, True)
