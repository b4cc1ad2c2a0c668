"""The page's modules in node without a browser; their types and lint."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

MODULES = Path(__file__).with_name("modules")
PAGE = Path(__file__).parents[2] / "service" / "movemask" / "page"
TOOLS = MODULES / "node_modules" / ".bin"
LONGEST = 140  # characters of a line

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed (Debian: apt-get install nodejs)")
needs_tools = pytest.mark.skipif(
    NODE is None or not TOOLS.exists(), reason="the page's tools are not installed (npm ci --prefix tests/page/modules)"
)


def passes(*command: object) -> None:
    """Runs a command on the modules; fails with what it says."""
    done = subprocess.run([*map(str, command)], cwd=MODULES, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_node
def test_modules_without_a_browser() -> None:
    passes(NODE, "--test")


@needs_tools
def test_types() -> None:
    passes(TOOLS / "tsc")


@needs_tools
def test_lint() -> None:
    passes(TOOLS / "biome", "lint", PAGE, MODULES)
    passes(TOOLS / "biome", "format", PAGE, MODULES)


@pytest.mark.parametrize("file", sorted(PAGE.iterdir()), ids=lambda file: file.name)
def test_lines_are_short(file: Path) -> None:
    if file.suffix in (".js", ".css", ".html"):
        lengths = {number: len(line) for number, line in enumerate(file.read_text().splitlines(), 1)}
        assert not {number: length for number, length in lengths.items() if length >= LONGEST}
