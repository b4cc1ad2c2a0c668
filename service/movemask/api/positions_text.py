"""Audited positions as lines of CSV or NDJSON, made one at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import islice

from movemask.api.schemas.leakage import AuditedOut, rfc3339
from movemask.leakage.causes import Cause
from movemask.leakage.kinds import KINDS
from movemask.store.reader import StoredPosition

_PLAIN = (
    *("time", "time_utc", "model", "digest", "trained_with_mask"),
    *("fen", "chess960", "turn", "phase", "in_check", "legal_moves", "elo"),
)

#: The columns of the CSV.
COLUMNS = (*_PLAIN, *KINDS, *(f"cause_{cause.value}" for cause in Cause), "illegal")


def ndjson_lines(positions: Iterable[StoredPosition]) -> Iterator[bytes]:
    """One line per position, as in the JSON of `GET /v1/leakage/positions`."""
    for position in positions:
        yield AuditedOut.model_validate(position).model_dump_json().encode() + b"\n"


def csv_lines(positions: Iterable[StoredPosition]) -> Iterator[bytes]:
    """A header, then one line per position; `illegal` is a list of `uci:probability:cause`, separated by spaces."""
    yield _line(COLUMNS)
    for position in positions:
        plain = [rfc3339(position.time) if name == "time_utc" else getattr(position, name) for name in _PLAIN]
        columns = {"raw": position.raw, "multiplied": position.multiplied, "served": position.served}
        leaked = [position.figures[kind].leaked if kind in position.figures else columns.get(kind) for kind in KINDS]
        causes = [position.causes.get(cause.value) for cause in Cause]
        illegal = " ".join(f"{move.uci}:{move.probability!r}:{move.cause or ''}" for move in position.illegal)
        yield _line([*plain, *leaked, *causes, illegal])


def blocks(lines: Iterable[bytes], size: int = 500) -> Iterator[bytes]:
    """Lines joined into blocks of `size`, since each block of a streamed response is a trip to another thread."""
    remaining = iter(lines)
    while block := b"".join(islice(remaining, size)):
        yield block


def _line(values: Iterable[object]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerow(str(value).lower() if isinstance(value, bool) else value for value in values)
    return out.getvalue().encode()
