"""File systems that are small or cannot be written, mounted for a test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def as_root(*command: str) -> bool:
    """Whether a command that takes root succeeds."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def file_system(folder: Path, options: str) -> Iterator[Path]:
    """An empty file system in memory at `folder`, by the options of mount: `size=5m`, `ro`."""
    folder.mkdir(parents=True, exist_ok=True)
    if not as_root("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)):
        pytest.skip("a file system cannot be mounted here (it takes root): a full or read-only disk cannot be made")
    try:
        yield folder
    finally:
        as_root("umount", "-l", str(folder))
