"""A part of many cases for every run; `scripts/test-deep` tries the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def part_of(cases: Iterable[Any], every: int) -> list[Any]:
    """The cases for `parametrize`: every so many-th runs always, the others are marked `deep`. Their ids stay."""
    return [
        case if place % every == 0 else pytest.param(*_values(case), marks=_DEEP) for place, case in enumerate(cases)
    ]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)


_DEEP = pytest.mark.deep
