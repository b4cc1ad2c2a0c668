"""Prometheus metrics of one app, listed in docs/operations.md (a test compares). No label holds a FEN or a move.

With several worker processes (`movemask serve --workers` sets PROMETHEUS_MULTIPROC_DIR), a scrape of any worker
reports all of them.
"""

from __future__ import annotations

import math
import os
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

from movemask.api import problems
from movemask.api.schemas.answers import Problem
from movemask.leakage.record import AuditRecord, Figure, Leakage
from movemask.service import RuntimeEvents

MULTIPROCESS_DIR = "PROMETHEUS_MULTIPROC_DIR"

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_LEAKAGE = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99, 1)


class Metrics(RuntimeEvents):
    """The metrics of one app, in their own registry."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        gauge = partial(Gauge, registry=registry, multiprocess_mode="livesum")
        self.requests = counter("movemask_requests", "Requests answered.", ["route", "method", "status"])
        self.request_seconds = histogram(
            "movemask_request_seconds", "Time to answer a request.", ["route"], buckets=_SECONDS
        )
        self.positions = counter("movemask_positions", "Positions answered.", ["model", "status"])
        self.batches = counter("movemask_batches", "Runs of a network.", ["model"])
        self.batch_size = histogram(
            "movemask_batch_size", "Positions in one run of a network.", ["model"], buckets=_SIZES
        )
        self.queue_seconds = histogram(
            "movemask_queue_seconds", "Time that positions waited for the network.", ["model"], buckets=_SECONDS
        )
        self.inference_seconds = histogram(
            "movemask_inference_seconds", "Time of one run of a network.", ["model"], buckets=_SECONDS
        )
        self.leakage = histogram(
            "movemask_leakage",
            "Leakage of the answered positions, by kind; raw is meaningless where trained_with_mask is true.",
            ["model", "kind", "trained_with_mask"],
            buckets=_LEAKAGE,
        )
        self.top_move_changed = counter(
            "movemask_top_move_changed",
            "Answered positions whose best move this mistake would have changed.",
            ["model", "kind", "trained_with_mask"],
        )
        self.illegal_mass = counter(
            "movemask_illegal_mass",
            "Probability that plain softmax would have given to illegal moves, summed over positions, by cause.",
            ["model", "cause", "trained_with_mask"],
        )
        self.cache_hits = counter("movemask_cache_hits", "Positions answered from the cache.", ["model"])
        self.cache_misses = counter("movemask_cache_misses", "Positions that the cache did not hold.", ["model"])
        self.cache_bytes = gauge("movemask_cache_bytes", "Size of the cache.")
        self.served_leakage = counter(
            "movemask_served_leakage", "Answers withheld because a check of them failed. Must stay 0."
        )
        self.rejected = counter(
            "movemask_rejected",
            "Requests rejected: overload, rate limit, or shutdown.",
            ["reason"],
        )
        self.invalid = counter("movemask_invalid", "Invalid requests, or positions of a batch.", ["problem"])
        self.log_dropped = counter(
            "movemask_log_dropped", "Log lines dropped because standard error was read too slowly."
        )
        self.audit_dropped = counter(
            "movemask_audit_dropped",
            "Audit records that were lost: the buffer was full while the store was down, or they could not be written.",
        )
        self.connections = gauge("movemask_connections", "Open connections.")
        self.waiting = gauge(
            "movemask_waiting_positions", "Positions still waiting after the last run of a network.", ["model"]
        )
        self.audit_waiting = gauge("movemask_audit_waiting", "Audit records waiting to be written.")

    def ran(self, model: str, size: int, seconds: float, waiting: int, waited: Sequence[float]) -> None:
        """Counts one run of a network."""
        self.batches.labels(model).inc()
        self.batch_size.labels(model).observe(size)
        self.inference_seconds.labels(model).observe(seconds)
        self.waiting.labels(model).set(waiting)
        histogram = self.queue_seconds.labels(model)
        for seconds_waited in waited:
            histogram.observe(seconds_waited)

    def answered(self, model: str, statuses: Sequence[str]) -> None:
        """Counts answered positions by status."""
        for status, count in Counts(statuses).items():
            self.positions.labels(model, status).inc(count)

    def audited(self, records: Sequence[AuditRecord]) -> None:
        """Counts the leakage of answered positions. Unmeasured kinds, and records with a NaN or without numbers, are
        skipped."""
        leaked: dict[tuple[str, str, str], list[Figure]] = defaultdict(list)
        masses: dict[tuple[str, str, str], float] = defaultdict(float)
        for record in records:
            mask = "true" if record.trained_with_mask else "false"
            if not _countable(record.leakage):  # a NaN would make the counter NaN for good
                continue
            for kind, figure in record.leakage.figures.items():
                leaked[record.model, kind, mask].append(figure)
            for cause, mass in record.leakage.causes.items():
                masses[record.model, cause.value, mask] += mass
        for labels, figures in leaked.items():  # looking up the labels costs more than observing
            histogram = self.leakage.labels(*labels)
            for figure in figures:
                if figure.leaked is not None:
                    histogram.observe(figure.leaked)
            changed = sum(figure.flipped for figure in figures if figure.leaked is not None)
            if changed:
                self.top_move_changed.labels(*labels).inc(changed)
        for labels, mass in masses.items():
            self.illegal_mass.labels(*labels).inc(mass)

    def cached(self, model: str, hits: int, misses: int, size: int) -> None:
        """Counts cache hits and misses, and keeps the size."""
        self.cache_hits.labels(model).inc(hits)
        self.cache_misses.labels(model).inc(misses)
        self.cache_bytes.set(size)

    def audit_waits(self, waiting: int, dropped: int) -> None:
        """Keeps the number of waiting audit records, and counts those dropped."""
        self.audit_waiting.set(waiting)
        if dropped:
            self.audit_dropped.inc(dropped)

    def problem(self, problem: Problem, count: int = 1) -> None:
        """Counts a problem sent to a client, as a response or in a batch, so many times."""
        if problem.name == problems.SERVED_LEAKAGE:
            self.served_leakage.inc(count)
        elif problem.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
            self.rejected.labels(problem.name).inc(count)
        elif problem.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            self.invalid.labels(problem.name).inc(count)

    def exposition(self) -> bytes:
        """All metrics in Prometheus's text format, of all worker processes."""
        if MULTIPROCESS_DIR not in os.environ:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def _countable(leakage: Leakage) -> bool:
    """Whether counters and histograms can take every figure: finite and at least 0."""
    leaked = (figure.leaked for figure in leakage.figures.values() if figure.leaked is not None)
    try:
        return all(0 <= value < math.inf for values in (leaked, leakage.causes.values()) for value in values)
    except TypeError:  # not a number
        return False
