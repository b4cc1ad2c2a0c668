"""Compares two audits: how each network's figures differ, and whether chance could explain it.

The figures come from `summary.json`. If both audits still have their tables, the positions in both are compared one by
one, so that different files cannot explain a difference of means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from movemask.audit.run import POSITIONS, SUMMARY
from movemask.audit.summary import surprises
from movemask.errors import BulkError
from movemask.leakage.kinds import KINDS, RAW

if TYPE_CHECKING:
    import pyarrow as pa

#: Standard errors above which a mean difference is called clear.
CLEAR = 5.0
_MOST_CHANGED = 5  # positions and causes that are listed

#: Columns that are equal for a position in both audits.
_POSITION = ["fen", "chess960", "elo", "opponent_elo"]

_STATISTICS = ("mean", "p50", "p99", "max", "flips")


@dataclass(frozen=True, slots=True)
class Paired:
    """Raw leakage at the positions of both audits. Positions with equal FEN and ratings count once.

    difference, error : mean of B minus A, and its standard error
    moves : of these positions, those in which a move was played
    surprise, surprise_error : B minus A of the mean surprise of these moves in nats (the cross-entropy), and its
        standard error
    flipped : positions where the best legal move differs
    most : the positions that changed most: FEN, leakage in A, leakage in B
    """

    positions: int
    difference: float
    error: float
    moves: int
    surprise: float
    surprise_error: float
    flipped: int
    most: tuple[tuple[str, float, float], ...]

    @property
    def z(self) -> float | None:
        """The mean difference in standard errors; None if nothing varies."""
        return self.difference / self.error if self.error else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One network in two audits, or two networks.

    figures : kind, statistic, value in A, value in B
    causes : cause, its share of the raw mass in A, and in B
    """

    first: str
    second: str
    digests: tuple[str, str]
    positions: tuple[int, int]
    trained_with_mask: bool
    figures: tuple[tuple[str, str, float | None, float | None], ...]
    causes: tuple[tuple[str, float, float], ...]
    paired: Paired | None

    @property
    def words(self) -> str:
        """The difference of mean raw leakage, in a sentence."""
        name = self.first if self.first == self.second else f"{self.first} → {self.second}"
        before, after = next(
            ((a, b) for kind, at, a, b in self.figures if (kind, at) == (RAW, "mean")), (None, None)
        )
        if self.trained_with_mask:
            return f"{name}: trained with the mask, so raw leakage means nothing"
        if before is None or after is None:
            return f"{name}: raw leakage was not measured in both"
        change = f"mean raw leakage {'rises' if after > before else 'falls'} from {before:.3g} to {after:.3g}"
        if before == after:
            change = f"mean raw leakage is {before:.3g} in both"
        if self.paired is None:
            return f"{name}: {change}; without both tables it is not known whether the positions are the same"
        if not self.paired.positions:
            return f"{name}: {change}; no position is in both, so the files may explain it"
        both = f"{self.paired.positions:,} positions that are in both"
        if self.paired.positions < min(self.positions):
            both += " (repeated ones count once)"
        if self.paired.z is None or not self.paired.difference:
            return f"{name}: the same at all {both}"
        sure = "clearly" if abs(self.paired.z) >= CLEAR else "not clearly"
        difference = (
            f"{self.paired.difference:+.2g} ± {self.paired.error:.1g}, z {self.paired.z:.1f}"
        )
        return f"{name}: {change}; at {both}, {sure}: {difference}"

    def as_json(self) -> dict[str, Any]:
        """Returns the comparison for `json.dumps`."""
        return {
            "words": self.words,
            **asdict(self),
            "z": None if self.paired is None else self.paired.z,
        }


def compare(first: Path, second: Path) -> list[Comparison]:
    """Returns the networks that have the same name in both audits, or else the only network of each.

    `first` and `second` are the audits' folders or their `summary.json`. Raises BulkError.
    """
    a, b = _models(first), _models(second)
    pairs = [(name, name) for name in a if name in b]
    if not pairs and len(a) == len(b) == 1:
        pairs = [(next(iter(a)), next(iter(b)))]
    if not pairs:
        raise BulkError(
            f"no network is in both audits: {first} has {', '.join(a)}, and {second} has {', '.join(b)}; audit one "
            "network each to compare two"
        )
    return [
        _comparison(name, a[name], _table(first), other, b[other], _table(second))
        for name, other in pairs
    ]


def _models(where: Path) -> dict[str, Any]:
    file = where / SUMMARY if where.is_dir() else where
    try:
        models = json.loads(file.read_bytes())["models"]
    except FileNotFoundError:
        what = "no finished audit in it" if where.is_dir() else "no such file or folder"
        raise BulkError(
            f"{where}: {what}; give the folder that `movemask audit --out` wrote"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise BulkError(f"{file}: not the summary of an audit") from None
    if not isinstance(models, dict) or not models:
        raise BulkError(f"{file}: not the summary of an audit")
    return models


def _table(where: Path) -> Path | None:
    table = (where if where.is_dir() else where.parent) / POSITIONS
    return table if table.is_file() else None


def _comparison(
    name: str,
    a: Mapping[str, Any],
    a_table: Path | None,
    other: str,
    b: Mapping[str, Any],
    b_table: Path | None,
) -> Comparison:
    kinds = [kind for kind in KINDS if kind in a["kinds"] and kind in b["kinds"]]
    figures = tuple(
        (kind, statistic, a["kinds"][kind][statistic], b["kinds"][kind][statistic])
        for kind in kinds
        for statistic in _STATISTICS
    )
    shares = [
        {cause: group["share"] or 0.0 for cause, group in side["by"].get("cause", {}).items()}
        for side in (a, b)
    ]
    named = sorted(
        {*shares[0], *shares[1]},
        key=lambda cause: -abs(shares[1].get(cause, 0) - shares[0].get(cause, 0)),
    )
    played = [side.get("played") or {} for side in (a, b)]
    figures += tuple(
        ("played", name, *(side[name] for side in played))
        for name in ("cross_entropy", "top1")
        if all(played)
    )
    causes = tuple((cause, shares[0].get(cause, 0.0), shares[1].get(cause, 0.0)) for cause in named)
    paired = (
        _paired(name, a_table, other, b_table) if a_table and b_table and RAW in kinds else None
    )
    positions = (a["positions"], b["positions"])
    masked = bool(a["trained_with_mask"] and b["trained_with_mask"])
    return Comparison(
        name, other, (a["digest"], b["digest"]), positions, masked, figures, causes, paired
    )


def _paired(name: str, a_table: Path, other: str, b_table: Path) -> Paired:
    import pyarrow.compute as pc

    both = _of_model(a_table, name).join(
        _of_model(b_table, other), _POSITION, join_type="inner", right_suffix="_after"
    )
    both = both.sort_by("fen")
    change = pc.subtract(both["raw_mean_after"], both["raw_mean"])
    difference, error = _mean(change)
    surprise = pc.subtract(both["surprise_mean_after"], both["surprise_mean"]).drop_null()
    flipped = pc.sum(pc.not_equal(both["top_first"], both["top_first_after"])).as_py()
    changed = both.append_column("by", pc.abs(change)).filter(pc.not_equal(change, 0))
    most = changed.sort_by([("by", "descending"), ("fen", "ascending")]).slice(0, _MOST_CHANGED)
    return Paired(
        both.num_rows,
        difference,
        error,
        len(surprise),
        *_mean(surprise),
        flipped or 0,
        tuple(
            zip(
                *(most[column].to_pylist() for column in ("fen", "raw_mean", "raw_mean_after")),
                strict=True,
            )
        ),
    )


def _mean(values: pa.ChunkedArray) -> tuple[float, float]:
    """Returns the mean and its standard error; 0 without values."""
    import pyarrow.compute as pc

    spread = pc.stddev(values, ddof=1).as_py()
    return pc.mean(values).as_py() or 0.0, (spread or 0.0) / len(values) ** 0.5 if len(
        values
    ) else 0.0


def _of_model(table: Path, name: str) -> pa.Table:
    """Returns a network's measured positions, each once: mean raw leakage and surprise, and its best legal move."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    chosen = (pc.field("model") == name) & pc.field("raw").is_valid()
    rows = pq.read_table(
        table, columns=[*_POSITION, "raw", "top", "played_probability"], filters=chosen
    )
    rows = rows.append_column(
        "surprise", pa.array(surprises(rows["played_probability"].to_numpy()), from_pandas=True)
    )
    for rating in ("elo", "opponent_elo"):
        known = pc.fill_null(rows[rating], -1.0)  # a join leaves out null
        rows = rows.set_column(rows.schema.get_field_index(rating), rating, known)
    return rows.group_by(_POSITION, use_threads=False).aggregate(
        [("raw", "mean"), ("surprise", "mean"), ("top", "first")]
    )


def lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yields the comparisons for people: a sentence each, then the figures."""
    for comparison in comparisons:
        yield comparison.words
        sides = zip("AB", comparison.digests, comparison.positions, strict=True)
        yield "  " + "; ".join(
            f"{side} {digest[:19]}, {count:,} positions" for side, digest, count in sides
        )
        yield f"  {'':<28}{'A':>12}{'B':>12}{'B / A':>9}"
        for kind, name, before, after in comparison.figures:
            if before or after:
                ratio = f"{after / before:.2f}" if before and after is not None else ""
                yield f"  {f'{kind} {name}':<28}{_number(before):>12}{_number(after):>12}{ratio:>9}"
        for cause, before, after in comparison.causes[:_MOST_CHANGED]:
            yield f"  {f'cause {cause}':<28}{before:>12.1%}{after:>12.1%}"
        paired = comparison.paired
        if paired is not None and paired.positions:
            if paired.moves:
                change = f"{paired.surprise:+.3g} ± {paired.surprise_error:.1g} nats"
                yield f"  cross-entropy of the moves played at {paired.moves:,} positions in both: {change}"
            yield f"  best legal move differs at {paired.flipped:,} of {paired.positions:,} positions"
            for fen, before, after in paired.most:
                yield f"  raw {before:.3g} → {after:.3g}  {fen}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
