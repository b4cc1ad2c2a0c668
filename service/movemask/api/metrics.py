"""Prometheus metrics of one app. docs/metrics.md lists them; a test holds it to that. No label holds a FEN or a move.

With several worker processes (PROMETHEUS_MULTIPROC_DIR set, as `movemask serve --workers` does) a scrape of any of them
answers for all.
"""

from __future__ import annotations

import math
import os
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Sequence
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

from movemask.api import problems
from movemask.api.problems import Problem
from movemask.api.request_context import NetworkRun, request_context
from movemask.errors import MovemaskError
from movemask.inference.queue import Delivery
from movemask.leakage.record import AuditRecord, Figure, Leakage
from movemask.runtime import RuntimeEvents

MULTIPROCESS_DIR = "PROMETHEUS_MULTIPROC_DIR"

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_LEAKAGE = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99, 1)


class Metrics(RuntimeEvents):
    """All metrics, in a registry of their own."""

    def __init__(self) -> None:
        own = CollectorRegistry()
        self._registry = own
        self.requests = Counter("movemask_requests", "Requests answered.", ["route", "method", "status"], registry=own)
        self.request_seconds = Histogram(
            "movemask_request_seconds", "Time to answer a request.", ["route"], buckets=_SECONDS, registry=own
        )
        self.positions = Counter("movemask_positions", "Positions answered.", ["model", "status"], registry=own)
        self.batches = Counter("movemask_batches", "Runs of a network.", ["model"], registry=own)
        self.batch_size = Histogram(
            "movemask_batch_size", "Positions in one run of a network.", ["model"], buckets=_SIZES, registry=own
        )
        self.queue_seconds = Histogram(
            "movemask_queue_seconds",
            "Time that a request's positions waited for the network.",
            ["model"],
            buckets=_SECONDS,
            registry=own,
        )
        self.inference_seconds = Histogram(
            "movemask_inference_seconds", "Time of one run of a network.", ["model"], buckets=_SECONDS, registry=own
        )
        self.leakage = Histogram(
            "movemask_leakage",
            "Leakage of the answered positions, by kind; trained_with_mask says whether raw means anything.",
            ["model", "kind", "trained_with_mask"],
            buckets=_LEAKAGE,
            registry=own,
        )
        self.top_move_changed = Counter(
            "movemask_top_move_changed",
            "Answered positions whose best move this mistake would have changed.",
            ["model", "kind", "trained_with_mask"],
            registry=own,
        )
        self.illegal_mass = Counter(
            "movemask_illegal_mass",
            "Probability that plain softmax would have given to illegal moves, summed over positions, by cause.",
            ["model", "cause", "trained_with_mask"],
            registry=own,
        )
        self.judged_answers = Counter(
            "movemask_judged", "Answers by vectorised rules that were compared with python-chess.", registry=own
        )
        self.cache_hits = Counter(
            "movemask_cache_hits", "Positions that a network was asked about before.", ["model"], registry=own
        )
        self.cache_misses = Counter(
            "movemask_cache_misses", "Positions that were looked for in the cache in vain.", ["model"], registry=own
        )
        self.cache_bytes = Gauge(
            "movemask_cache_bytes", "What the cache holds.", registry=own, multiprocess_mode="livesum"
        )
        self.served_leakage = Counter(
            "movemask_served_leakage", "Answers withheld because a check of them failed. Must stay 0.", registry=own
        )
        self.rejected = Counter(
            "movemask_rejected", "Requests refused for want of room or at shutdown.", ["reason"], registry=own
        )
        self.invalid = Counter(
            "movemask_invalid", "Requests, or positions of a batch, that were at fault.", ["problem"], registry=own
        )
        self.log_dropped = Counter(
            "movemask_log_dropped", "Log lines dropped because standard error was read too slowly.", registry=own
        )
        self.audit_dropped = Counter(
            "movemask_audit_dropped",
            "Audit records that were lost: no room while the store was down, or impossible to write.",
            registry=own,
        )
        self.waiting = Gauge(
            "movemask_waiting_positions",
            "Positions that waited while the network ran last.",
            ["model"],
            registry=own,
            multiprocess_mode="livesum",
        )
        self.audit_waiting = Gauge(
            "movemask_audit_waiting",
            "Audit records that wait to be written.",
            registry=own,
            multiprocess_mode="livesum",
        )

    def ran(self, model: str, size: int, seconds: float, waiting: int, waited: Sequence[float]) -> None:
        """Counts one run of a network."""
        self.batches.labels(model).inc()
        self.batch_size.labels(model).observe(size)
        self.inference_seconds.labels(model).observe(seconds)
        self.waiting.labels(model).set(waiting)
        histogram = self.queue_seconds.labels(model)  # looking up the labels costs more than observing
        for one in waited:
            histogram.observe(one)

    def answered(self, model: str, statuses: Sequence[str]) -> None:
        """Counts answered positions by status."""
        for status, count in Counts(statuses).items():
            self.positions.labels(model, status).inc(count)

    def delivered(self, model: str, delivery: Delivery[object], ran: int) -> None:
        """Keeps what the request's log line and spans say of a submission."""
        context = request_context.get()
        if context is not None:
            context.positions += sum(not isinstance(one, MovemaskError) for one in delivery.results)
            if context.runs is not None and ran:
                context.runs.append(NetworkRun(model, ran, delivery.submitted, delivery.started, delivery.ended))

    def audited(self, records: Sequence[AuditRecord]) -> None:
        """Counts the leakage of answered positions; neither what could not be measured nor a record that holds NaN or
        no number is counted."""
        leaked: dict[tuple[str, str, str], list[Figure]] = defaultdict(list)
        masses: dict[tuple[str, str, str], float] = defaultdict(float)
        for record in records:
            mask = "true" if record.trained_with_mask else "false"
            if not _countable(record.leakage):  # a counter that NaN is added to stays NaN
                continue
            for kind, figure in record.leakage.figures.items():
                leaked[record.model, kind, mask].append(figure)
            for cause, mass in record.leakage.causes.items():
                masses[record.model, cause.value, mask] += mass
        for labels, figures in leaked.items():  # a metric's labels take longer to find than it to count
            histogram = self.leakage.labels(*labels)
            for figure in figures:
                if figure.leaked is not None:
                    histogram.observe(figure.leaked)
            changed = sum(figure.flipped for figure in figures if figure.leaked is not None)
            if changed:
                self.top_move_changed.labels(*labels).inc(changed)
        for labels, mass in masses.items():
            self.illegal_mass.labels(*labels).inc(mass)

    def judged(self, count: int) -> None:
        """Counts answers that were compared with python-chess."""
        self.judged_answers.inc(count)

    def cached(self, model: str, hits: int, misses: int, size: int) -> None:
        """Counts what the cache knew."""
        self.cache_hits.labels(model).inc(hits)
        self.cache_misses.labels(model).inc(misses)
        self.cache_bytes.set(size)

    def audit_waits(self, waiting: int, dropped: int) -> None:
        """Keeps count of the audit records that wait and of those that were dropped."""
        self.audit_waiting.set(waiting)
        if dropped:
            self.audit_dropped.inc(dropped)

    def problem(self, found: Problem) -> None:
        """Counts a problem that a client was answered with, alone or in a batch."""
        if found.name == problems.SERVED_LEAKAGE:
            self.served_leakage.inc()
        elif found.status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.rejected.labels(found.name).inc()
        elif found.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            self.invalid.labels(found.name).inc()

    def exposition(self) -> bytes:
        """Everything in Prometheus's text format, of all worker processes if there are several."""
        if MULTIPROCESS_DIR not in os.environ:
            return generate_latest(self._registry)
        everyone = CollectorRegistry()
        multiprocess.MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]
        return generate_latest(everyone)


def _countable(leakage: Leakage) -> bool:
    """Whether every figure is one that counters and histograms can bear: finite and at least 0."""
    leaked = (figure.leaked for figure in leakage.figures.values() if figure.leaked is not None)
    try:
        return all(0 <= value < math.inf for values in (leaked, leakage.causes.values()) for value in values)
    except TypeError:  # no number at all
        return False
