"""A trial: what was done, what is promised, what was seen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    """One row of benchmarks/results/hostile.md."""

    done: str
    promised: str
    seen: str
    kept: bool

    @property
    def row(self) -> str:
        return f"| {self.done} | {self.promised} | {self.seen} | {'yes' if self.kept else '**no**'} |"


HEAD = "| done | promised | seen | kept |\n|---|---|---|---|"
