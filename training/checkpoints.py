"""Checkpoints that survive: written beside the last one and renamed, and the one before it kept.

Beside them lies `trunk.pt`, from which another run goes on: the weights in float16 and the ranges of the rounding, a
quarter of a checkpoint's size, because the optimizers and an anneal begin anew.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import torch

LAST, BEFORE, TRUNK = "checkpoint.pt", "checkpoint.before.pt", "trunk.pt"
BATCH = 64  # of checkpoints that do not say theirs


def save(folder: Path, state: dict[str, Any]) -> None:
    """Writes `state`; killed at any moment, it leaves at least one whole checkpoint."""
    half = folder / "checkpoint.part"
    torch.save(state, half)
    if (folder / LAST).exists():
        os.replace(folder / LAST, folder / BEFORE)
    os.replace(half, folder / LAST)
    weights = {name: weight.half() for name, weight in state["network"].items()}
    trunk = {name: part for name, part in state.items() if name not in ("optimizers", "anneal")}
    torch.save(trunk | {"network": weights}, half)
    os.replace(half, folder / TRUNK)


def load(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint that can be read, or None where there is none; says so if it is not the last one."""
    for name in (LAST, BEFORE, TRUNK):
        file = folder / name
        if file.exists():
            try:
                state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
            except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, BadZipFile) as error:
                print(f"{file} cannot be read ({str(error).splitlines()[0]}): going back to the one before it")
            else:
                return state
    return None


def seen(state: Mapping[str, Any]) -> int:
    """How many positions the network had seen."""
    return int(state["step"]) * int(state.get("batch", BATCH))
