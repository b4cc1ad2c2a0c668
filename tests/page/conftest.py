"""Chromium and the service of the page's tests, which are skipped without Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from movemask.network.files import shipped_models
from tests.games.engines import program
from tests.networks import write_fake
from tests.page.visits import Visit
from tests.processes import free_port, served

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

#: How strongly a network plays, as its card says it.
STRENGTH = """
[[card.strength]]
elo = 1200
rating = 900
temperature = 1.0
[[card.strength]]
elo = 1400
rating = 1900
temperature = 0.5
"""

#: Another origin, whose pages may ask the service.
ORIGIN = f"http://127.0.0.1:{free_port()}"


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The package's own: while Playwright runs, no other test of the process could run an event loop."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    expect.set_options(timeout=60_000)  # as machines may be busy; a test that passes does not wait for it
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped networks, one whose strength is measured, two of one rating each, and one that fails its check."""
    folder = tmp_path_factory.mktemp("models")
    for file in shipped_models().iterdir():
        if file.suffix in (".toml", ".onnx"):
            (folder / file.name).symlink_to(file)
    for name in ("zz-1100", "zz-1900"):
        write_fake(folder, name)
    (shipped,) = shipped_models().glob("*.toml")
    card = shipped.read_text().partition("\n[[card.strength]]")[0]  # the rows are its last
    (folder / "zz-strength.toml").write_text(f"{card}\n{STRENGTH}")
    (folder / "zz-broken.toml").write_text("[contract]\n")
    return folder


@pytest.fixture(scope="session")
def shipped_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped networks alone, for services that start and stop."""
    folder = tmp_path_factory.mktemp("shipped")
    for file in shipped_models().iterdir():
        if file.suffix in (".toml", ".onnx"):
            (folder / file.name).symlink_to(file)
    return folder


@pytest.fixture(scope="session")
def port(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A service of its own for the tests of the page, with an engine that finds every position even."""
    engine = program(tmp_path_factory.mktemp("engine"), "moves")
    with served(models, "--runs", "1", "--cors-origins", ORIGIN, "--engine", engine) as (_, port):
        yield port


@pytest.fixture(scope="package")
def visitor(browser: Browser, port: int) -> Iterator[Visit]:
    visitor = Visit(browser, f"http://127.0.0.1:{port}")
    yield visitor
    visitor.leave()


@pytest.fixture
def visit(visitor: Visit) -> Iterator[Visit]:
    """A visitor who has not been here before; at the end nothing may have gone wrong in the browser. The window is the
    same in all tests, because a new one takes a second."""
    visitor.forgets()
    yield visitor
    visitor.has_seen_no_fault()


@pytest.fixture
def own_visit(browser: Browser, port: int) -> Iterator[Visit]:
    """A visitor with a window of their own, for tests that change its clock or its storage."""
    visit = Visit(browser, f"http://127.0.0.1:{port}")
    yield visit
    visit.leave()
