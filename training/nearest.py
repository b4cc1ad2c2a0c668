"""Which of several nets, each trained on the games of one hundred ratings, a position is given to."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MIDDLE = 50  # Maia-1's nets are named by the lowest of their hundred ratings


def nets_by_rating(folder: Path) -> dict[int, str]:
    """The nets of a models folder by the rating that their names end with, rising."""
    found = {
        int(match[1]): file.stem for file in folder.glob("*.toml") if (match := re.search(r"-(\d{3,4})$", file.stem))
    }
    if not found:
        raise SystemExit(f"{folder}: no net with a rating in its name; movemask models import --models-dir makes them")
    return dict(sorted(found.items()))


def nearest(ratings: NDArray[np.floating], known: NDArray[np.integer]) -> NDArray[np.int64]:
    """For each rating the place of the net whose hundred ratings are nearest."""
    return np.asarray(np.abs(ratings[:, None] - (known + MIDDLE)[None, :]).argmin(axis=1), dtype=np.int64)
