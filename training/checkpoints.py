"""Checkpoints that survive: written beside the last one and renamed, and the one before it kept."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import torch

LAST, BEFORE = "checkpoint.pt", "checkpoint.before.pt"


def save(folder: Path, state: dict[str, Any]) -> None:
    """Writes `state`; killed at any moment, it leaves at least one whole checkpoint."""
    half = folder / "checkpoint.part"
    torch.save(state, half)
    if (folder / LAST).exists():
        os.replace(folder / LAST, folder / BEFORE)
    os.replace(half, folder / LAST)


def load(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint that can be read, or None where there is none; says so if it is not the last one."""
    for name in (LAST, BEFORE):
        file = folder / name
        if file.exists():
            try:
                state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
            except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, BadZipFile) as error:
                print(f"{file} cannot be read ({str(error).splitlines()[0]}): going back to the one before it")
            else:
                return state
    return None
