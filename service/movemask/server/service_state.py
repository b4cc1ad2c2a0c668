"""`ServiceState`: what the supervisor knows of the workers, for the metrics that any of them reports."""

from __future__ import annotations

import ctypes
import multiprocessing


class ServiceState(ctypes.Structure):
    """Numbers of workers, and how the last reload ended.

    desired, serving : workers that there should be, and that serve
    differing : workers that serve other model files than the last start or reload found
    reloaded : whether the last reload was not refused, and all workers could follow it
    """

    _fields_ = (
        ("desired", ctypes.c_int),
        ("serving", ctypes.c_int),
        ("differing", ctypes.c_int),
        ("reloaded", ctypes.c_bool),
    )
    desired: int
    serving: int
    differing: int
    reloaded: bool


def shared_state(desired: int) -> ServiceState:
    """A state in memory that the supervisor and its workers share; multiprocessing hands it to them."""
    return multiprocessing.get_context("spawn").RawValue(ServiceState, desired, 0, 0, True)
