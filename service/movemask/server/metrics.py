"""`Metrics`: the Prometheus metrics. Each is declared here; whoever knows a number counts it.

`python -m tests.snapshots` lists them in docs/operations.md. No label holds a FEN or a move. Except on Windows,
`movemask serve` sets PROMETHEUS_MULTIPROC_DIR: a scrape of any worker reports all of them, and what ended ones counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
    multiprocess,
    values,
)
from prometheus_client.core import GaugeMetricFamily

from movemask.schemas.answers import Problem
from movemask.server import problems
from movemask.server.metrics_files import METRICS_FOLDER, SharedValues
from movemask.server.service_state import ServiceState
from movemask.version import __version__

#: Upper bounds of times in seconds.
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_LEAKAGE = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99, 1)

#: The statuses of requests that are refused, whatever is in them.
_REFUSED = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)


def share_metrics(number: int, models: int) -> None:
    """Has this process, a worker, share its metrics with the others; on Windows, there are none.

    Parameters
    ----------
    number, models : as of `SharedValues`
    """
    if folder := os.environ.get(METRICS_FOLDER):
        values.ValueClass = SharedValues(Path(folder), number, models)


class Metrics:
    """The metrics of one app, in their own registry.

    state : of the service; None for its only process
    """

    def __init__(self, state: ServiceState | None = None) -> None:
        registry = CollectorRegistry()
        self._shared = values.ValueClass if isinstance(values.ValueClass, SharedValues) else None
        self._registry, self.of_service = registry, _OfService(state or ServiceState(1, 1, 0, True))
        registry.register(self.of_service)
        self._of_requests: dict[tuple[str, str, int], tuple[Counter, Histogram | None]] = {}
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        seconds = partial(histogram, buckets=_SECONDS)
        gauge = partial(Gauge, registry=registry, multiprocess_mode="livesum")
        least = partial(Gauge, registry=registry, multiprocess_mode="livemin")
        by_kind = ["model", "kind", "trained_with_mask"]
        self.requests = counter(
            "movemask_requests",
            "Requests answered; 499: the client disconnected.",
            ["route", "method", "status"],
        )
        self.request_seconds = seconds(
            "movemask_request_seconds", "Time to answer requests to /v1 and /mcp.", ["route"]
        )
        self.positions = counter(
            "movemask_positions",
            "Positions answered: ongoing, checkmate or stalemate.",
            ["model", "status"],
        )
        self.batches = counter("movemask_batches", "Runs of a network.", ["model"])
        self.batch_size = histogram(
            "movemask_batch_size", "Positions in one run.", ["model"], buckets=_SIZES
        )
        self.queue_seconds = seconds(
            "movemask_queue_seconds", "Time that positions waited for a network.", ["model"]
        )
        self.inference_seconds = seconds(
            "movemask_inference_seconds", "Time of one run.", ["model"]
        )
        self.leakage = histogram(
            "movemask_leakage",
            "Leakage of the answered positions, by kind; raw is meaningless where trained_with_mask is true. GET "
            "/v1/leakage has exact figures.",
            by_kind,
            buckets=_LEAKAGE,
        )
        self.top_move_changed = counter(
            "movemask_top_move_changed",
            "Answered positions whose best move this mistake would have changed.",
            by_kind,
        )
        self.illegal_mass = counter(
            "movemask_illegal_mass",
            "Probability that plain softmax would have given to illegal moves, summed over positions, by cause.",
            ["model", "cause", "trained_with_mask"],
        )
        self.served_leakage = counter(
            "movemask_served_leakage",
            "Answers withheld because they failed their check; must stay 0.",
        )
        self.rejected = counter(
            "movemask_rejected",
            "Requests and connections rejected with a 429 or 503, by problem.",
            ["reason"],
        )
        # From the first scrape on, so that the first refusal is an increase, too.
        for name, status in problems.STATUSES.items():
            if status in _REFUSED:
                self.rejected.labels(name)
        self.invalid = counter(
            "movemask_invalid",
            "Invalid requests, or positions of a batch, by problem.",
            ["problem"],
        )
        self.ledger_lost = counter(
            "movemask_ledger_lost",
            "Answered positions that the ledger will not get: the buffer was full while the database could not be "
            "written, or a bug (see the log); should stay 0.",
        )
        self.metrics_refused = counter(
            "movemask_metrics_refused",
            "Label sets that no scrape reports, because the metrics files have no room for them; should stay 0.",
        )
        self.connections = gauge("movemask_connections", "Open connections.")
        self.waiting_positions = gauge(
            "movemask_waiting_positions", "Positions that wait for a network.", ["model"]
        )
        self.ledger_waiting = gauge(
            "movemask_ledger_waiting", "Answered positions that wait to be written to the ledger."
        )
        self.ledger_writable = least(
            "movemask_ledger_writable",
            "1, or 0 while a worker cannot open or write the ledger; its log says why.",
        )
        self.model_served = least(
            "movemask_model_served",
            "1 for a model that is served, 0 for one that failed its check; none for a removed one.",
            ["model"],
        )
        self.certificate_end_seconds = least(
            "movemask_certificate_end_seconds",
            "End of the TLS certificate that new connections get, in seconds since 1970; none without TLS.",
            ["file"],
        )
        self.build_info = least(
            "movemask_build_info", "Always 1; the version is a label.", ["version"]
        )
        self.build_info.labels(__version__).set(1)
        self.process_cpu_seconds = counter(
            "process_cpu_seconds", "CPU time of all workers, ended ones included."
        )
        self.process_resident_memory_bytes = gauge(
            "process_resident_memory_bytes",
            "Resident memory of all workers; shared pages count for each.",
        )
        self.process_virtual_memory_bytes = gauge(
            "process_virtual_memory_bytes", "Virtual memory of all workers."
        )
        self.process_open_fds = gauge("process_open_fds", "Open file descriptors of all workers.")
        self.process_max_fds = least(
            "process_max_fds", "File descriptors that one worker may open."
        )
        self.process_start_time_seconds = least(
            "process_start_time_seconds", "Start of the oldest worker, since 1970."
        )
        self._process, self._cpu_seconds = ProcessCollector(registry=None), 0.0
        self._refused = 0  # of those that `metrics_refused` has counted

    @property
    def refused(self) -> int:
        """Number of label sets that have no room in this worker's files."""
        return 0 if self._shared is None else len(self._shared.refused)

    @property
    def in_memory(self) -> bool:
        """Whether this worker's metrics are in memory, because there was no room for their files."""
        return self._shared is not None and self._shared.failure is not None

    def update_gauges(
        self,
        connections: int,
        waiting: Mapping[str, int],
        ledger_waiting: int,
        *,
        ledger_writable: bool,
    ) -> None:
        """Sets what is so now; called twice a second.

        Parameters
        ----------
        connections : number of open connections
        waiting : number of positions that wait for each model
        ledger_waiting : number of positions that wait for the ledger
        ledger_writable : whether the ledger could be written at the last try
        """
        self.connections.set(connections)
        self.ledger_waiting.set(ledger_waiting)
        self.ledger_writable.set(ledger_writable)
        self.metrics_refused.inc(self.refused - self._refused)
        self._refused = self.refused
        for model, positions in waiting.items():
            self.waiting_positions.labels(model).set(positions)
        for family in self._process.collect():  # nothing where the system is not Linux
            for name, _, value, *_ in family.samples:
                if name == "process_cpu_seconds_total":
                    self.process_cpu_seconds.inc(value - self._cpu_seconds)
                    self._cpu_seconds = value
                else:
                    getattr(self, name).set(value)

    def count_request(
        self, route: str, method: str, status: int, seconds: float, *, timed: bool
    ) -> None:
        """Counts a request by its route's template, and observes the duration if the route is timed."""
        metrics = self._of_requests.get((route, method, status))
        if metrics is None:  # kept, because looking up the labels costs more than observing
            metrics = (
                self.requests.labels(route, method, str(status)),
                self.request_seconds.labels(route) if timed else None,
            )
            self._of_requests[route, method, status] = metrics
        requests, request_seconds = metrics
        requests.inc()
        if request_seconds is not None:
            request_seconds.observe(seconds)

    def problem(self, problem: Problem) -> None:
        """Counts a problem sent to a client, as a response or in a batch."""
        if problem.name == problems.SERVED_LEAKAGE:
            self.served_leakage.inc()
        elif problem.status in _REFUSED:
            self.rejected.labels(problem.name).inc()
        elif problem.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            self.invalid.labels(problem.name).inc()

    def exposition(self) -> bytes:
        """Returns all metrics in Prometheus's text format, of all worker processes; of this one alone if it has no
        files."""
        registry = self._registry
        if self._shared is not None and not self.in_memory:
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry, str(self._shared.folder))  # type: ignore[no-untyped-call]
            registry.register(self.of_service)
        return generate_latest(registry)


class _OfService:
    """Collects the metrics that the supervisor knows."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state

    def collect(self) -> Iterator[GaugeMetricFamily]:
        state = self._state
        for name, text, value in (
            ("movemask_workers_desired", "Workers that there should be.", state.desired),
            ("movemask_workers_serving", "Workers that serve.", state.serving),
            (
                "movemask_workers_differing",
                "Workers whose model files are not those of the last start or reload.",
                state.differing,
            ),
            (
                "movemask_workers_outdated",
                "Workers that are not of the last start or reload that succeeded or is under way.",
                state.outdated,
            ),
            (
                "movemask_last_reload_successful",
                "1, or 0 after a reload that was refused or that a worker cannot follow yet.",
                state.reloaded,
            ),
        ):
            yield GaugeMetricFamily(name, text, value=float(value))
