"""Clients of apps on other networks than the plain fake."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.conftest import Serve
from tests.networks import write_fake


@pytest.fixture
def rated(serve: Serve, tmp_path: Path) -> TestClient:
    """A client of a fake that takes ratings."""
    return serve(write_fake(tmp_path / "rated", elo=True).parent)


@pytest.fixture
def leela(serve: Serve, tmp_path: Path) -> TestClient:
    """A client of a fake with lc0's planes, which hold the history, and its vocabulary."""
    return serve(write_fake(tmp_path / "leela", planes="lc0-112", vocabulary="lc0-1858", elo=True).parent)
