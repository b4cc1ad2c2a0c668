"""Audits run through the command, and their positions and tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chess
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner, Result

from movemask.audit.files import Folder
from movemask.audit.rows import schema
from movemask.audit.summary import ModelSummary
from movemask.audit.summary import summarise as summary_of
from movemask.cli.main import main
from movemask.leakage.causes import Cause
from tests.conftest import ROOT
from tests.ground_truth import tricky

MAIA = ROOT.parent / "shared" / "maia1" / "maia-1500.pb.gz"


GAMES = """[Event "one"]
[WhiteElo "1500"]
[BlackElo "2150"]

1. e4 e5 2. Nf3 Nc6 3. Bc4 Bc5 4. O-O Nf6 5. d3 d6 1-0

[Event "two"]

1. d4 d5 2. Qd3 Qd6 3. Qb5+ *

[Event "broken"]

1. e4 e5 2. Ke3 *
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, arguments)])


def audited(*arguments: object) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def fens(count: int) -> list[str]:
    """Positions with legal moves, of the public suites."""
    positions = [fen for fen, moves, _ in tricky() if moves and chess.Board(fen).is_valid()]
    return positions[:: max(1, len(positions) // count)][:count]


def table_of(file: Path, values: dict[str, list[float | None]], legal_moves: Sequence[int]) -> None:
    """A table with these values of each network as `raw` and as the mass of a cause, 1 in 7 not measured."""
    writer = pq.ParquetWriter(file, schema(("raw", "served")))
    for name, raws in values.items():
        for start in range(0, len(raws), 997):
            rows = []
            for number, raw in enumerate(raws[start : start + 997], start):
                row: dict[str, Any] = dict.fromkeys(schema(("raw", "served")).names)
                row |= {f"cause_{cause.value}": 0.0 for cause in Cause}
                row |= {"model": name, "digest": "d", "trained_with_mask": False, "turn": "white", "phase": "opening"}
                row |= {"in_check": number % 2 == 0, "legal_moves": legal_moves[number % len(legal_moves)]}
                row |= {"fen": str(number), "raw": raw, "raw_flipped": False, "raw_kl": raw, "served": 0.0}
                row |= {"served_flipped": False, "served_kl": 0.0, "cause_blocked": (raw or 0.0) / 2}
                rows.append(row)
            writer.write_table(pa.Table.from_pylist(rows, schema=schema(("raw", "served"))))
    writer.close()


def summarised(file: Path) -> list[ModelSummary]:
    """The summary of a table made by `table_of`."""
    names = dict.fromkeys(pq.read_table(file)["model"].to_pylist())
    return summary_of(("raw", "served"), list(names), Folder(str(file)))
