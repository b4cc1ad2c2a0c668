"""A folder of models to audit, without processes, and with plots only where a test looks at the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from movemask.audit import run
from tests.networks import ONNX_TOML, write_fake, write_onnx


@pytest.fixture(autouse=True)
def _plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots take two of an audit's four seconds."""
    if not request.module.__name__.endswith("test_report"):
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, out, **_: out.write("<svg></svg>"))


class _Here(Executor):
    """In place of a pool of processes: calls a function at once."""

    def __init__(self, *_: Any) -> None:
        pass

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments, **named))
        except Exception as error:
            done.set_exception(error)
        return done


@pytest.fixture(autouse=True)
def _without_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that imports all that an audit needs takes a second. `test_resuming` audits by commands of their own,
    whose processes are real."""
    monkeypatch.setattr(run, "ProcessPoolExecutor", _Here)
    yield
    run._open.cache_clear()


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return write_models(tmp_path)


def write_models(tmp_path: Path) -> Path:
    """The folder m/ with a network `net` and a fake `masked`."""
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "net.toml").write_text(ONNX_TOML)
    write_onnx(folder / "net.onnx")
    write_fake(folder, "masked", trained_with_mask=True)
    return folder
