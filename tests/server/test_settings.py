"""Settings: flags, variables and defaults, and the messages for invalid values."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from movemask.errors import SettingsError
from movemask.server.settings import Settings


def test_flag_wins_over_variable_over_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.read().port == 8000
    monkeypatch.setenv("MOVEMASK_PORT", "9000")
    assert Settings.read().port == 9000
    assert Settings.read(port="9001", host=None).port == 9001


@pytest.mark.parametrize(
    ("variable", "nearest"), [("MOVEMASK_MAX_BACTH", "MOVEMASK_MAX_BATCH"), ("movemask_prot", "MOVEMASK_PORT")]
)
def test_unknown_variable_names_the_nearest(monkeypatch: pytest.MonkeyPatch, variable: str, nearest: str) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(SettingsError, match=f"^{variable}: there is no such setting; did you mean {nearest}"):
        Settings.read()


def test_variables_of_kubernetes_are_exempt(monkeypatch: pytest.MonkeyPatch) -> None:
    # https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
    for name in ("SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT_8000_TCP", "PORT_8000_TCP_PROTO", "POSTGRES_SERVICE_HOST"):
        monkeypatch.setenv(f"MOVEMASK_{name}", "10.0.0.11")
    assert Settings.read().port == 8000


@pytest.mark.parametrize(("value", "text"), [("0", "0"), ("many", "many"), ("", "''")])
def test_invalid_value_names_the_variable(monkeypatch: pytest.MonkeyPatch, value: str, text: str) -> None:
    monkeypatch.setenv("MOVEMASK_MAX_BATCH", value)
    with pytest.raises(SettingsError, match=f"^MOVEMASK_MAX_BATCH: {text} is not a whole number from 1 to 4096$"):
        Settings.read()


@pytest.mark.parametrize("name", sorted(Settings.model_fields.keys() - {"trusted_hosts"}))
def test_invalid_value_of_every_setting(name: str) -> None:
    """pydantic's own words name no setting of this service."""
    annotation = Settings.model_fields[name].annotation
    if annotation in (str, str | None, Path | None, SecretStr | None) and name not in Settings.expected:
        return  # any text is right
    with pytest.raises(SettingsError) as raised:
        Settings.read(**{name: "x y"})
    assert str(raised.value).startswith(f"MOVEMASK_{name.upper()}: x y is not ")
    assert "nput should" not in str(raised.value)


@pytest.mark.parametrize("level", ["INFO", "Debug"])
def test_log_level_in_any_case(level: str) -> None:
    assert Settings.read(log_level=level).log_level == level.lower()


@pytest.mark.parametrize("name", [name for name, field in Settings.model_fields.items() if field.annotation is float])
@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_inf_and_nan_raise(name: str, value: str) -> None:
    """With --client-rate inf, the service started and answered every request with a 500."""
    with pytest.raises(SettingsError, match=f"^MOVEMASK_{name.upper()}: {value} is not a number "):
        Settings.read(**{name: value})


@pytest.mark.parametrize(
    "names", ["*", "chess.example, *.b.example,[::1]", "::1", "LOCALHOST", "127.0.0.1", "a_b-c", ""]
)
def test_trusted_hosts(names: str) -> None:
    assert Settings.read(trusted_hosts=names).trusted_hosts == names


@pytest.mark.parametrize("name", ["localhost:8000", "127.0.0.1:80", "[::1]:80", "http://localhost", "a.b/c", "a b", ""])
def test_invalid_trusted_hosts_raise(name: str) -> None:
    """Every request would be refused, but for the probes."""
    with pytest.raises(
        SettingsError, match=r"MOVEMASK_TRUSTED_HOSTS: must be host names without scheme, port and path"
    ):
        Settings.read(trusted_hosts=f"chess.example,{name}")
