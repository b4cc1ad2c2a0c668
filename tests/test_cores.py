"""The number of usable cores, in containers and systemd units too."""

from __future__ import annotations

from pathlib import Path

import pytest

from movemask.cores import available_cores

V1, V2 = "cpu.cfs_quota_us cpu.cfs_period_us", "cpu.max"


@pytest.mark.parametrize(
    ("own", "group", "files", "limit", "cores"),
    [
        *(
            ("0::/", ".", V2, limit, cores)
            for limit, cores in [("max 100000", 64), ("200000 100000", 2), ("10000 100000", 1), ("99900000 100000", 64)]
        ),
        ("0::/", ".", V2, "150000 100000", 1),  # a second worker would have half a core
        ("0::/", ".", V2, "x", 64),
        # Docker and systemd's CPUQuota= beside the system's own groups
        ("0::/system.slice/movemask.service", "system.slice/movemask.service", V2, "200000 100000", 2),
        ("0::/system.slice/movemask.service/worker", "system.slice/movemask.service", V2, "200000 100000", 2),
        ("0::/system.slice/docker-1f.scope", ".", V2, "200000 100000", 2),  # the container's own, mounted at the root
        ("0::/../../kubepods/pod1", "kubepods", V2, "200000 100000", 2),
        ("0::/system.slice/other.service", "system.slice/movemask.service", V2, "200000 100000", 64),
        # version 1: Amazon Linux 2, RHEL 8, older Docker
        ("0::/", "cpu", V1, "50000 100000", 1),
        ("4:cpu,cpuacct:/docker/1f\n3:memory:/x", "cpu,cpuacct/docker/1f", V1, "300000 100000", 3),
        ("4:cpu,cpuacct:/docker/1f", "cpu", V1, "300000 100000", 3),
        ("4:cpu,cpuacct:/", "cpu", V1, "-1 100000", 64),
        ("4:cpuset:/x\n5:cpu:/y", "cpu/x", V1, "300000 100000", 64),  # another group's
        ("", ".", V2, "200000 100000", 2),
    ],
)
def test_cpu_limit_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, group: str, files: str, limit: str, cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)), raising=False)
    (tmp_path / "own").write_text(own + "\n")
    folder = tmp_path / "groups" / group
    folder.mkdir(parents=True)
    texts = [limit] if files == V2 else limit.split()
    for name, text in zip(files.split(), texts, strict=True):
        (folder / name).write_text(text + "\n")
    assert available_cores(tmp_path / "groups", tmp_path / "own") == cores


def test_without_groups_all_cores_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert available_cores(tmp_path / "none", tmp_path / "none") == 64
