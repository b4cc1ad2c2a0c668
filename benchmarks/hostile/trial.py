"""A trial: what was done, what is promised, and the result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    """One row of benchmarks/results/hostile.md."""

    done: str
    promised: str
    result: str
    passed: bool

    @property
    def row(self) -> str:
        return f"| {self.done} | {self.promised} | {self.result} | {'yes' if self.passed else '**no**'} |"


HEAD = "| done | promised | seen | kept |\n|---|---|---|---|"
