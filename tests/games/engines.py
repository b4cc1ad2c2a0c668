"""Programs that are UCI engines, for tests that need no real one."""

from __future__ import annotations

import sys
from pathlib import Path


def program(folder: Path, how: str) -> str:
    """The path of a program that is an engine of a kind (`uci_engine.py`). `starts` counts its processes."""
    file = folder / how
    script = Path(__file__).with_name("uci_engine.py")
    file.write_text(
        f"#!/bin/sh\necho >> {folder}/starts\nexec {sys.executable} {'' if how == 'moves' else '-SE'} {script} {how}\n"
    )
    file.chmod(0o700)
    return str(file)


def starts(folder: Path) -> int:
    """How many of its processes have been started."""
    return len((folder / "starts").read_text())
