"""What an operator would lose: settings that come from where they say, and reach every worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.errors import SettingsError
from service.settings import Settings, available_cores


def test_a_flag_wins_over_the_environment_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.read().port == 8000
    monkeypatch.setenv("MOVEMASK_PORT", "9000")
    assert Settings.read().port == 9000
    assert Settings.read(port="9001", host=None).port == 9001


def test_workers_read_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Settings.read(port=1234, default_model="x", audit_keep_days=1.5, models_dir="somewhere")
    for name, value in chosen.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings.read() == chosen


@pytest.mark.parametrize("value", ["0", "-1", "many", ""])
def test_a_wrong_value_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("MOVEMASK_MAX_BATCH", value)
    with pytest.raises(SettingsError, match=rf"MOVEMASK_MAX_BATCH: .*, got '{value}'"):
        Settings.read()


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000", 64),
        ("150000 100000", 2),
        ("100000 100000", 1),
        ("10000 100000", 1),
        ("99900000 100000", 64),
        ("x", 64),
    ],
)
def test_a_containers_share_of_the_processors_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert available_cores(tmp_path / "cpu.max") == cores
    assert available_cores(tmp_path / "none") == 64
