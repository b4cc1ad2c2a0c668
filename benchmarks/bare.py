"""What onnxruntime does by itself, inputs ready: the limit of everything that serves its networks."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort


class Bare:
    """One network in onnxruntime as it comes, on so many cores; inputs of random numbers."""

    def __init__(self, file: Path, cores: int) -> None:
        self.cores = cores
        self._one, self._all = _session(file, 1), _session(file, cores)

    def rate_beside(self, size: int, seconds: float) -> float:
        """Positions a second of as many runs at once as there are cores, each on a thread."""
        rates: list[float] = []
        threads = [
            threading.Thread(target=lambda: rates.append(_rate(self._one, size, seconds))) for _ in range(self.cores)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(rates)

    def cpu_seconds(self, seconds: float, size: int = 64) -> float:
        """CPU time of a position, in runs of `size` on one thread."""
        feeds = _feeds(self._one, size)
        self._one.run(None, feeds)
        runs, started, end = 0, time.process_time(), time.perf_counter() + seconds
        while time.perf_counter() < end:
            self._one.run(None, feeds)
            runs += 1
        return (time.process_time() - started) / (runs * size)

    def lone_seconds(self, seconds: float, pause: float = 0.0, *, one_core: bool = False) -> float:
        """Median time of a run of one position on all cores, or on one, `pause` seconds after the last."""
        session = self._one if one_core else self._all
        feeds = _feeds(session, 1)
        times = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            started = time.perf_counter()
            session.run(None, feeds)
            times.append(time.perf_counter() - started)
            if pause:
                time.sleep(pause)
        return float(np.median(times))


def _session(file: Path, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _feeds(session: ort.InferenceSession, size: int) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(0)
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    return {
        node.name: (rng.random([size, *node.shape[1:]]) < 0.1).astype(kinds[node.type]) for node in session.get_inputs()
    }


def _rate(session: ort.InferenceSession, size: int, seconds: float) -> float:
    feeds = _feeds(session, size)
    session.run(None, feeds)
    runs, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        session.run(None, feeds)
        runs += 1
    return runs * size / (time.perf_counter() - started)
