"""`available_cores`: how many processor cores this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

#: Where Linux mounts the control groups (version 2), and in it the groups of CPU time of version 1.
_GROUPS = Path("/sys/fs/cgroup")
_FOLDERS = ("", "cpu", "cpu,cpuacct")

#: The groups that this process is in: a line `number:controllers:path` for each; version 2 has no controllers.
_OWN = Path("/proc/self/cgroup")


def available_cores(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Returns the number of cores that this process may use, at least 1.

    It counts the cores of its CPU affinity, or the whole cores of its CPU limit if these are fewer.

    The limit is that of a container, or of systemd's CPUQuota: the lowest of its control groups,
    version 1 or 2.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    limits = (
        limit
        for path in _paths(own)
        for folder in _FOLDERS
        for limit in _limits(groups / folder / path)
    )
    return max(1, int(min((cores, *limits))))


def _paths(own: Path) -> Iterator[PurePosixPath]:
    """Yields the groups of CPU time that this process is in, and those above them, from the root.

    Only the root if they are unknown.
    """
    yield PurePosixPath()
    try:
        lines = own.read_text().splitlines()
    except (OSError, ValueError):  # not Linux
        return
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if not controllers or "cpu" in controllers.split(","):
            group = PurePosixPath(*(name for name in path.split("/") if name not in ("", "..")))
            yield from (group, *group.parents)


def _limits(group: Path) -> Iterator[float]:
    """Yields the limit of a group in cores, if it has one.

    It is written as microseconds of running time in the microseconds of a period.
    """
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            allowed, period = " ".join((group / name).read_text() for name in names).split()
            if allowed not in ("max", "-1"):
                yield int(allowed) / int(period)
        except (OSError, ValueError):  # no such group, or of the other version
            continue
