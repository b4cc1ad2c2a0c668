"""The summary of an audit: figures by network, kind and group, the worst positions, and thresholds.

The table is read once, a few thousand rows at a time and in its order, so the figures do not depend on the processes
that wrote it. Quantiles come from the sketch of `leakage.cells`, as those of `/v1/leakage` do: at most 2 % too high.
pyarrow comes with the extra `audit`, and is imported in functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from movemask.audit.files import Folder
from movemask.board.boards import PHASES
from movemask.errors import BulkError
from movemask.leakage.causes import CAUSES
from movemask.leakage.cells import ALL, CAUSE, QUANTILES, Cell, CellKey, Cells, cells_of
from movemask.leakage.groups import DIMENSIONS, groups, groups_of
from movemask.leakage.kinds import KINDS, MEANINGLESS_IF_MASKED, MULTIPLIED, RAW
from movemask.leakage.measure import Measured
from movemask.policy.ragged import Float

if TYPE_CHECKING:
    import pyarrow as pa

#: Kinds whose worst positions and distributions are in the report.
REPORT_KINDS = (RAW, MULTIPLIED)

#: Number of worst positions per kind.
_WORST = 20

#: Rows of the table that are in memory at a time.
_ROWS = 1 << 15


@dataclass(slots=True)
class ModelSummary:
    """The figures of one network.

    worst : by kind, rows of the table
    histograms : by kind, each bin's highest value and count
    of_games : number of positions that come from games; the others are single positions, from lists
    judged : number of these positions whose played move has a slot
    surprise : sum of -ln p of the judged moves, in nats
    first : number of judged moves that were the most probable
    games : `raw` of the positions of games alone, if there are single positions too
    """

    name: str
    digest: str
    trained_with_mask: bool
    positions: int = 0
    cells: dict[CellKey, Cell] = field(default_factory=dict)
    worst: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    histograms: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    of_games: int = 0
    judged: int = 0
    surprise: float = 0.0
    first: int = 0
    games: ModelSummary | None = None

    def of(self, kind: str, dimension: str = ALL, group: str = "") -> Cell:
        """Returns the figures of a group; an empty cell if it has no positions."""
        return self.cells.get(CellKey(kind, dimension, group), Cell())

    @property
    def played(self) -> dict[str, float] | None:
        """Of the judged moves: their number, the mean surprise in nats, and the share of first choices."""
        count = self.judged
        return (
            {"moves": count, "cross_entropy": self.surprise / count, "top1": self.first / count}
            if count
            else None
        )

    def groups(self, dimension: str) -> list[str]:
        """Returns the groups that have positions, in natural order; causes by falling mass."""
        present = {key.group for key in self.cells if key.dimension == dimension}
        if dimension == CAUSE:
            return sorted(present, key=lambda group: -self.of(RAW, CAUSE, group).sum)
        return [group for group in groups(dimension) if group in present]

    def as_json(self) -> dict[str, Any]:
        """Returns the network's entry in `summary.json`."""
        kinds = [kind for kind in KINDS if CellKey(kind, ALL, "") in self.cells]
        by: dict[str, Any] = {}
        for dimension in DIMENSIONS:
            by[dimension] = {
                group: {kind: self.of(kind, dimension, group).figures() for kind in kinds}
                for group in self.groups(dimension)
            }
        total = self.of(RAW).sum
        by[CAUSE] = {
            group: {
                "share": self.of(RAW, CAUSE, group).sum / total if total else None,
                RAW: self.of(RAW, CAUSE, group).mass_figures(),
            }
            for group in self.groups(CAUSE)
        }
        return {
            "digest": self.digest,
            "trained_with_mask": self.trained_with_mask,
            "positions": self.positions,
            "played": self.played,
            "kinds": {kind: self.of(kind).figures() for kind in kinds},
            "by": by,
            "worst": self.worst,
        }


def summarise(kinds: Sequence[str], names: Sequence[str], table: Folder) -> list[ModelSummary]:
    """Returns the networks of a table, a Parquet file, in the order of `names`."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    figures: dict[str, _Figures] = {}
    system, path = table.place
    with system.open_input_file(path) as file:
        parquet = pq.ParquetFile(file)
        # Row groups are read one at a time, or memory grows with the table.
        for batch in chain.from_iterable(
            parquet.iter_batches(_ROWS, row_groups=[at]) for at in range(parquet.num_row_groups)
        ):
            for name in pc.unique(batch["model"]).to_pylist():
                rows = pa.table(batch).filter(pc.equal(batch["model"], name))
                if name not in figures:
                    digest, masked = rows["digest"][0].as_py(), rows["trained_with_mask"][0].as_py()
                    figures[name] = _Figures(ModelSummary(name, digest, masked), kinds)
                figures[name].add(rows)
    return [figures[name].finished() for name in names if name in figures]


class _Figures:
    """The figures of one network, while its rows are read."""

    def __init__(self, summary: ModelSummary, kinds: Sequence[str]) -> None:
        self._summary, self._kinds = summary, kinds
        self._cells = self._of_games = Cells(())
        self._worst: dict[str, list[dict[str, Any]]] = {
            kind: [] for kind in REPORT_KINDS if kind in kinds
        }

    def add(self, rows: pa.Table) -> None:
        """Adds rows of the network, in the order of the table."""
        import pyarrow.compute as pc

        played = rows["played"].is_valid()  # a single position has no move that was played
        of_games = rows.filter(played)
        self._summary.positions += rows.num_rows
        self._summary.of_games += of_games.num_rows
        judged = of_games["played_probability"].drop_null().to_numpy()
        self._summary.judged += len(judged)
        self._summary.surprise += float(surprises(judged).sum())
        self._summary.first += pc.sum(pc.equal(of_games["played"], of_games["top"])).as_py() or 0
        self._cells = self._cells.joined(_cells(rows, self._kinds))
        if RAW in self._kinds and of_games.num_rows:
            self._of_games = self._of_games.joined(_cells(of_games, (RAW,)))
        for kind, worst in self._worst.items():
            self._worst[kind] = _worst(kind, worst, rows)

    def finished(self) -> ModelSummary:
        summary = self._summary
        summary.cells, summary.worst = dict(self._cells), self._worst
        summary.histograms = {
            kind: self._cells.histogram(CellKey(kind, ALL, "")) for kind in self._worst
        }
        if RAW in self._kinds and 0 < summary.of_games < summary.positions:
            cells, count = dict(self._of_games), summary.of_games
            summary.games = replace(summary, positions=count, cells=cells, worst={}, histograms={})
        return summary


def surprises(probabilities: NDArray[np.float64]) -> Float:
    """Returns -ln p, in nats; at most 745, where a probability has underflowed to 0."""
    return -np.log(np.maximum(probabilities, np.finfo(np.float64).smallest_subnormal))


def _cells(rows: pa.Table, kinds: Sequence[str]) -> Cells:
    """Returns the cells of rows of one network."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def column(name: str) -> NDArray[Any]:
        return np.asarray(rows[name].to_numpy())

    def numbers(name: str) -> Float:
        return column(name).astype(np.float64)  # null becomes NaN

    measured = {
        kind: Measured(numbers(kind), column(f"{kind}_flipped"), numbers(f"{kind}_kl"))
        for kind in kinds
    }
    by_cause = np.stack([numbers(f"cause_{cause.value}") for cause in CAUSES], axis=1)
    phases = pc.index_in(rows["phase"], pa.array([phase.value for phase in PHASES])).to_numpy()
    black = pc.equal(rows["turn"], "black").to_numpy()
    traits = phases, black, column("in_check"), column("legal_moves"), numbers("elo")
    return cells_of(measured, by_cause, groups_of(*traits))


def _worst(kind: str, worst: list[dict[str, Any]], rows: pa.Table) -> list[dict[str, Any]]:
    """Returns the rows with the most leakage of `worst` and `rows`, worst first, each position once."""
    import pyarrow.compute as pc

    least = worst[-1][kind] if len(worst) == _WORST else 0.0
    more = rows.filter(pc.and_(pc.greater(rows[kind], 0), pc.greater_equal(rows[kind], least)))
    if not more.num_rows:
        return worst
    order = [
        (kind, "descending"),
        *((name, "ascending") for name in ("fen", "source", "item", "ply")),
    ]
    more = more.sort_by(order).drop_columns([f"cause_{cause.value}" for cause in CAUSES])
    _, firsts = np.unique(
        more["fen"].dictionary_encode().combine_chunks().indices.to_numpy(), return_index=True
    )
    candidates = [*worst, *more.take(np.sort(firsts)[:_WORST]).to_pylist()]
    candidates.sort(
        key=lambda row: (-row[kind], row["fen"], row["source"], row["item"], row["ply"])
    )
    by_fen: dict[str, dict[str, Any]] = {}
    for row in candidates:
        by_fen.setdefault(row["fen"], row)
    return list(by_fen.values())[:_WORST]


_STATISTICS = ("mean", "max", *QUANTILES, "mean_kl", "flips", "infinite_kl")


@dataclass(frozen=True, slots=True)
class Threshold:
    """`KIND.STATISTIC=VALUE`: a check fails if the statistic is above the value."""

    kind: str
    statistic: str
    value: float

    @classmethod
    def read(cls, text: str, kinds: Sequence[str] = KINDS) -> Threshold:
        """Reads a threshold. Raises BulkError, which quotes it, also for a kind that is not measured."""
        match = re.fullmatch(r"([a-z0-9_]+)\.([a-z0-9_]+)=([-+.e0-9]+)", text.strip())
        try:
            value = math.nan if match is None else float(match[3])
            if (
                match is None
                or match[1] not in KINDS
                or match[2] not in _STATISTICS
                or not math.isfinite(value)
            ):
                raise ValueError
        except ValueError:
            raise BulkError(
                f"--fail-above {text!r}: write KIND.STATISTIC=VALUE, such as raw.p99=0.1; "
                f"kinds: {', '.join(KINDS)}; statistics: {', '.join(_STATISTICS)}"
            ) from None
        if match[1] not in kinds:
            raise BulkError(
                f"--fail-above {text}: {match[1]} is not among --kinds {','.join(kinds)}"
            )
        return cls(match[1], match[2], value)

    def __str__(self) -> str:
        return f"{self.kind}.{self.statistic}={self.value:g}"

    def applies(self, model: ModelSummary) -> bool:
        """Returns whether the kind has a meaning for the network."""
        return not (model.trained_with_mask and self.kind in MEANINGLESS_IF_MASKED)

    def statistic_of(self, model: ModelSummary) -> float | None:
        """Returns a network's statistic; None if a position is unmeasured, inf for a mean with infinite values."""
        figures = model.of(self.kind)
        if figures.unmeasured or not figures.count:
            return None
        if self.statistic == "mean_kl" and figures.infinite:
            return math.inf
        return float(figures.figures()[self.statistic])

    def exceeded(self, model: ModelSummary) -> bool:
        """Returns whether the check fails: the statistic is above the value, or could not be measured."""
        statistic = self.statistic_of(model)
        return self.applies(model) and (statistic is None or statistic > self.value)
