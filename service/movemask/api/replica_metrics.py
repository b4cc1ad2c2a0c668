"""The metrics of all replicas of a cluster in one scrape, each with a label `replica`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

#: Seconds after which a replica that has sent nothing counts as gone.
GONE_SECONDS = 60


class ReplicaMetrics:
    """Keeps the last metrics of each replica, in Prometheus's text format."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reports: dict[str, tuple[float, bytes]] = {}

    def report(self, replica: str, exposition: bytes) -> None:
        """Takes the metrics of a replica in place of its last ones."""
        self._reports[replica] = (self._clock(), exposition)

    def exposition(self) -> bytes:
        """The metrics of the replicas that are there."""
        oldest = self._clock() - GONE_SECONDS
        self._reports = {name: report for name, report in self._reports.items() if report[0] >= oldest}
        registry = CollectorRegistry()
        registry.register(_Labelled({name: text for name, (_, text) in self._reports.items()}))
        return generate_latest(registry)


class _Labelled:
    """A collector of expositions by replica."""

    def __init__(self, expositions: dict[str, bytes]) -> None:
        self._expositions = expositions

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for replica, text in self._expositions.items():
            for family in text_string_to_metric_families(text.decode()):
                merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    merged.samples.append(sample._replace(labels={**sample.labels, "replica": replica}))
        yield from families.values()
