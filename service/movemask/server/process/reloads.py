"""`Reload`: a reload and its outcome, in a file that `movemask reload` reads."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

#: reloaded: no worker of an older generation is left; superseded: by a later reload.
Outcome = Literal["reloading", "reloaded", "refused", "superseded"]

_FILE = "reloads"


@dataclass(frozen=True)
class Reload:
    """One reload of a service.

    reload : its number; the first reload of a service is 1
    outdated : workers that are not of the newest configuration yet
    reason : why it is refused, or not finished yet
    """

    reload: int
    outcome: Outcome = "reloading"
    outdated: int = 0
    reason: str = ""


def write_reloads(folder: Path | None, reloads: Sequence[Reload]) -> None:
    """Replaces the reloads in a runtime folder; None: there is none. Raises OSError."""
    if folder is None:
        return
    file = folder / _FILE
    part = file.with_suffix(".part")
    part.write_text(json.dumps([*map(asdict, reloads)]))
    os.replace(part, file)


def read_reloads(folder: Path) -> list[Reload]:
    """Returns the last reloads of a service, oldest first. Raises OSError."""
    try:
        return [Reload(**fields) for fields in json.loads((folder / _FILE).read_text())]
    except FileNotFoundError:  # no reload yet
        return []
