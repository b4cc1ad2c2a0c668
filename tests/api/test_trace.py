"""What whoever follows a request through the code would lose: a way that is short enough to read."""

from __future__ import annotations

from benchmarks.trace_request import traced
from movemask.settings import shipped_models

#: Most files whose functions run for a `POST /v1/policy`.
MOST = 24


def test_few_files_run_between_accept_and_the_last_byte() -> None:
    files = traced(shipped_models())
    assert "pipeline.py" in files
    assert len(files) <= MOST, sorted(files)
