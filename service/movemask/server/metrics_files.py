"""`SharedValues`: the files through which the workers of a service share their metrics, allocated before their use.

prometheus_client maps these files into memory. Those that it makes are sparse: on a full disk, the first write to a new
page of one is a SIGBUS, which ends the process.
"""

from __future__ import annotations

import logging
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from movemask.atomic_writes import atomic_write

log = logging.getLogger(__name__)

#: The variable by which prometheus_client knows the folder of these files.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"

#: Bytes of each file. 256 KiB hold 1,300 label sets of `movemask_requests`.
_BYTES = {
    "counter": 256 << 10,
    "histogram": 128 << 10,
    "gauge_livesum": 64 << 10,
    "gauge_livemin": 64 << 10,
}

#: Bytes of histograms for each model; with every kind of leakage, one takes 79 kB.
_HISTOGRAM_BYTES_PER_MODEL = 96 << 10

#: Most values of a label set of a histogram: the sum, and one for each bucket.
_MOST_VALUES = 20

#: Most bytes of a value besides its key, and most bytes by which a bucket's key is longer than the sum's.
_VALUE_BYTES, _BUCKET_BYTES = 28, 32

#: The head of a file: how many of its bytes are in use.
_HEAD = struct.Struct("i")


class SharedValues:
    """Makes the values of a worker's metrics, in files of a fixed size. prometheus_client calls it for each value.

    A label set without room in its file is in memory, and no scrape reports it. If there is no room for the files, all
    values are in memory, and only a scrape of this worker reports them.

    Parameters
    ----------
    folder : of the service's metrics
    number : of this worker, which continues the counters of an ended worker with the same number
    models : number of models that the worker may serve

    Attributes
    ----------
    failure : why all values are in memory; None if they are in the files
    refused : the label sets without room: the name of a metric with the values of its labels
    """

    def __init__(self, folder: Path, number: int, models: int) -> None:
        self.folder = folder
        self.failure: OSError | None = None
        self.refused: set[tuple[str, ...]] = set()
        self._in_file = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]
        self._files = {name: _file(folder, name, number) for name in _BYTES}
        self._keys: set[str] = set()  # that an ended worker has left
        forget_gauges(folder, number)
        try:
            for name, file in self._files.items():
                more = models * _HISTOGRAM_BYTES_PER_MODEL if name == "histogram" else 0
                _allocate(file, _BYTES[name] + more)
                entries = MmapedDict.read_all_values_from_file(file)  # type: ignore[no-untyped-call]
                self._keys.update(key for key, *_ in entries)
        except OSError as error:
            self.failure = error
            log.error(
                "%s has no room for this worker's metrics (%s): they stay in memory until the worker is replaced, and "
                "only its own /metrics reports them",
                folder,
                error.strerror,
            )

    def __call__(self, *name: Any, multiprocess_mode: str = "", **_: Any) -> Any:
        """Returns a value, as `prometheus_client.values.ValueClass` makes it."""
        value = _ValueName(*name)
        if value.starts_label_set and not self._has_room(value, multiprocess_mode):
            self.refused.add(value.label_set)
        if self.failure is not None or value.label_set in self.refused:
            return values.MutexValue(*value)  # type: ignore[no-untyped-call]
        return self._in_file(*value, multiprocess_mode)

    def _has_room(self, value: _ValueName, mode: str) -> bool:
        """Returns whether all values of a label set have room in their file, or are there."""
        if self.failure is not None or value.last_key in self._keys:
            return True
        file = self._files[f"{value.kind}_{mode}" if mode else value.kind]
        with open(file, "rb") as content:
            used: int = _HEAD.unpack(content.read(_HEAD.size))[0]
        return used + value.label_set_bytes <= file.stat().st_size


class _ValueName(NamedTuple):
    """The name of a value, as prometheus_client gives it.

    name : that of the metric with a suffix, such as `_sum` or `_bucket`
    labels, label_values : those of the metric; a bucket has also `le`, the last
    """

    kind: str
    metric: str
    name: str
    labels: tuple[str, ...]
    label_values: tuple[str, ...]
    help_text: str

    @property
    def starts_label_set(self) -> bool:
        """Whether this is the first value of its label set: the sum of a histogram comes before the buckets."""
        return not (self.kind == "histogram" and self.name.endswith("_bucket"))

    @property
    def label_set(self) -> tuple[str, ...]:
        own = self.label_values if self.starts_label_set else self.label_values[:-1]
        return self.metric, *own

    @property
    def key(self) -> str:
        labels, label_values = list(self.labels), list(self.label_values)
        return mmap_key(self.metric, self.name, labels, label_values, self.help_text)

    @property
    def last_key(self) -> str:
        """The key of the last value of the label set that this value starts."""
        if self.kind != "histogram":
            return self.key
        labels, label_values = (*self.labels, "le"), (*self.label_values, "+Inf")
        return self._replace(
            name=f"{self.metric}_bucket", labels=labels, label_values=label_values
        ).key

    @property
    def label_set_bytes(self) -> int:
        """Most bytes that the label set takes which this value starts."""
        size = len(self.key.encode()) + _VALUE_BYTES
        return _MOST_VALUES * (size + _BUCKET_BYTES) if self.kind == "histogram" else size


def forget_gauges(folder: Path | None, number: int) -> None:
    """Takes the gauges of a worker that has ended out of the metrics; its counters stay.

    The files stay too: the next worker with this number has room for its gauges, however full the disk is by then.
    Without a folder, on Windows, there are none.
    """
    for name in _BYTES:
        if folder is not None and name.startswith("gauge"):
            with suppress(OSError), open(_file(folder, name, number), "r+b") as file:
                file.write(_HEAD.pack(0))


def _file(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}_{number}.db"


def _allocate(file: Path, size: int) -> None:
    """Makes a file at least `size` bytes long, all of them allocated by the file system.

    Raises OSError if there is no room. A file that is there and cannot grow stays as it is.
    """
    content = file.read_bytes() if file.exists() else b""
    if len(content) >= size:
        return
    try:
        with atomic_write(file) as stream:
            stream.write(content.ljust(size, b"\0"))
    except OSError:
        if not content:
            raise
