"""`movemask compare OUT OUT…`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

import click

from movemask.audit.files import Folder, is_uri
from movemask.cli.audit import EXCEEDED
from movemask.errors import AuditError
from movemask.extras import require

_SHOWN = 10


@click.command()
@click.argument("outs", nargs=-1, required=True, metavar="OUT OUT…")
def compare(outs: tuple[str, ...]) -> None:
    """Compare the summaries of audits, by their folders OUT or the URIs of these: exit with 3 if a figure differs.

    Every figure must be the same to the last digit: of the same files and networks, it is, whether they were audited on
    one machine or on many. The commands may differ.
    """
    if len(outs) < 2:
        raise AuditError("compare: name two folders or more")
    first, *others = ((out, _read(out)) for out in outs)
    differing = 0
    for out, summary in others:
        for name in sorted(first[1]["models"].keys() ^ summary["models"].keys()):
            differing += 1
            click.echo(f"{name}: only in {first[0] if name in first[1]['models'] else out}", err=True)
        both = first[1]["models"].keys() & summary["models"].keys()
        found = list(_differences("", _of(first[1], both), _of(summary, both)))
        for where, one, other in found[:_SHOWN]:
            click.echo(f"{where}: {one} in {first[0]}, {other} in {out}", err=True)
        if len(found) > _SHOWN:
            click.echo(f"{len(found) - _SHOWN} more differ", err=True)
        differing += len(found)
    if differing:
        sys.exit(EXCEEDED)
    positions = ", ".join(f"{name}: {one['positions']:,} positions" for name, one in first[1]["models"].items())
    click.echo(f"{len(outs)} equal summaries; {positions}")


def _read(out: str) -> dict[str, Any]:
    """What two summaries must have in common."""
    file: Folder | Path = Path(out) / "summary.json"
    if is_uri(out):
        require("audit", f"compare {out}")
        file = Folder(out) / "summary.json"
    try:
        summary = json.loads(file.read_text())
        return {name: summary[name] for name in ("files", "left_out", "models")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = "not the summary of an audit"
        if isinstance(error, OSError):  # pyarrow's say the name once more
            why = os.strerror(error.errno) if error.errno else str(error)
        raise AuditError(f"{file}: {why}") from None


def _of(summary: dict[str, Any], names: Set[str]) -> dict[str, Any]:
    """The summary with these networks alone."""
    return {**summary, "models": {name: one for name, one in summary["models"].items() if name in names}}


def _differences(where: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """The places where two values of JSON differ, and both values there."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys([*one, *other]):
            yield from _differences(f"{where}.{name}".lstrip("."), one.get(name, "nothing"), other.get(name, "nothing"))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            yield from _differences(f"{where}[{index}]", mine, theirs)
    elif one != other or type(one) is not type(other):
        yield where, one, other
