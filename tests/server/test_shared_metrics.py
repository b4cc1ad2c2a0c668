"""What an operator would lose: every worker at once, to a /dev/shm that is full because others use it too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from movemask.errors import SettingsError
from movemask.server import shared_metrics
from movemask.server.shared_metrics import FILES, SharedMetrics
from movemask.server.tally import CONNECTIONS, Tally, new_table
from tests.disks import file_system
from tests.networks import write_fake
from tests.processes import call, served, serving, stopped, until, workers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/dev/shm is Linux's")


def full(folder: Path) -> None:
    """Leaves no room in a file system."""
    with (folder / "others").open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def test_a_full_dev_shm_ends_no_worker(models: Path, tmp_path: Path) -> None:
    program = "from movemask.server import shared_metrics as s; from pathlib import Path; import sys; "
    program += f"s._IN_MEMORY = Path({str(tmp_path / 'shm')!r}); from movemask.cli.main import main; main()"
    with file_system(tmp_path / "shm", "size=3m") as shm:
        with served(models, "--workers", "2", program=("-c", program)) as (process, port):
            begun = serving(models, 2, process.pid)
            (folder,) = shm.iterdir()
            files = {file.name: file.stat() for file in folder.iterdir()}
            assert set(files) == {f"{kind}_{worker}.db" for kind in FILES for worker in range(2)}
            full(shm)
            for number in range(40):
                call(port, "/v1/policy", {"moves": ["e2e4", "e7e5"][: number % 3]})
                call(port, "/metrics")
            assert workers(process.pid) == begun
            os.kill(min(begun), 9)
            serving(models, 3, process.pid)  # there is room for its replacement
            assert "movemask_connections" in call(port, "/metrics")
            assert stopped(process) == 0
        (shm / "others").unlink()
        assert list(shm.iterdir()) == []
    assert "no room" not in (models / "log.txt").read_text()


@pytest.mark.parametrize("count", [1, 2])
def test_a_removed_model_leaves_the_metrics(models: Path, count: int) -> None:
    write_fake(models, "second")
    with served(models, "--workers", str(count)) as (process, port):
        serving(models, count, process.pid)
        assert 'movemask_model_served{model="second"} 1.0' in call(port, "/metrics")
        (models / "second.toml").unlink()
        until(lambda: 'movemask_model_served{model="second"}' not in call(port, "/metrics"), "it has left")
        assert 'movemask_model_served{model="net"} 1.0' in call(port, "/metrics")


def test_without_room_the_service_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_metrics, "_IN_MEMORY", tmp_path / "none")
    with file_system(tmp_path / "small", "size=2m") as small:
        monkeypatch.setattr("tempfile.tempdir", str(small))
        with pytest.raises(SettingsError, match=r"2 workers .* 2\.8 MiB .*none: no such .*small: no space"):
            SharedMetrics(2)
        assert list(small.iterdir()) == []
    assert shared_metrics.FOLDER not in os.environ


def test_the_tally_needs_no_room_in_dev_shm() -> None:
    with new_table(4) as table:
        Tally(table, 4, 3).add(CONNECTIONS, 1)
        assert os.fstat(table.fileno()).st_dev != os.stat("/dev/shm").st_dev
        assert Tally(table, 4, 0).total(CONNECTIONS) == 1
