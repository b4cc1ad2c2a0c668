"""What an operator would lose: settings that come from where they say, and reach every worker."""

from __future__ import annotations

import pytest

from service.errors import SettingsError
from service.settings import Settings


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
