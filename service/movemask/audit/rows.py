"""Evaluates the positions of a chunk into rows of the audit's table. docs/audit.md lists the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from movemask.audit.samples import Choice, Sample, Skipped
from movemask.board.boards import PHASES, Phase
from movemask.board.moves import uci_of
from movemask.leakage.causes import Cause
from movemask.leakage.kinds import SERVED
from movemask.leakage.measure import check_answer, measure
from movemask.leakage.table import columns_of
from movemask.network.model import Batch, Model
from movemask.pipeline import evaluate
from movemask.policy import Normalisation

#: Positions per run of a network.
_BATCH = 128

#: Legal and illegal moves kept per position, each.
_MOVES_KEPT = 5

_MOVE = pa.struct([("uci", pa.string()), ("probability", pa.float64())])
_ILLEGAL = pa.struct([("uci", pa.string()), ("probability", pa.float64()), ("cause", pa.string())])


def schema(kinds: Sequence[str]) -> pa.Schema:
    """The columns of the table."""
    fields: list[tuple[str, pa.DataType]] = [
        ("source", pa.string()),
        ("item", pa.int64()),
        ("ply", pa.int32()),
        ("fen", pa.string()),
        ("chess960", pa.bool_()),
        ("turn", pa.string()),
        ("phase", pa.string()),
        ("in_check", pa.bool_()),
        ("legal_moves", pa.int32()),
        ("elo", pa.float64()),
        ("opponent_elo", pa.float64()),
        ("played", pa.string()),
        ("model", pa.string()),
        ("digest", pa.string()),
        ("trained_with_mask", pa.bool_()),
        ("top", pa.string()),
        ("top_probability", pa.float64()),
    ]
    for kind in kinds:
        fields += [(kind, pa.float64()), (f"{kind}_flipped", pa.bool_()), (f"{kind}_kl", pa.float64())]
    fields += [(f"cause_{cause.value}", pa.float64()) for cause in Cause]
    return pa.schema([*fields, ("legal", pa.list_(_MOVE)), ("illegal", pa.list_(_ILLEGAL))])


def rows(model: Model, samples: Sequence[Sample], choice: Choice, skipped: Skipped) -> pa.Table:
    """The table of positions evaluated by one network; those that it cannot answer are skipped and counted."""
    columns: dict[str, list[Any]] = {name: [] for name in schema(choice.kinds).names}
    for start in range(0, len(samples), _BATCH):
        part = samples[start : start + _BATCH]
        batch, refused = model.batch([sample.position for sample in part], [sample.elo for sample in part])
        for row, error in refused.items():
            where = f"{part[row].source}: {part[row].item}"
            skipped.add(f"position that {model.name} cannot read", f"{where}: {error}")
        keep = np.array([row for row in range(len(part)) if row not in refused], dtype=np.intp)
        if len(keep):
            _add(model, [part[row] for row in keep.tolist()], batch.rows(keep), choice, columns, skipped)
    return pa.table(columns, schema=schema(choice.kinds))


def _add(
    model: Model,
    samples: Sequence[Sample],
    batch: Batch,
    choice: Choice,
    columns: dict[str, list[Any]],
    skipped: Skipped,
) -> None:
    evaluated = evaluate(model, batch, [Normalisation()] * len(batch))
    if evaluated.unusable:
        for row, error in evaluated.unusable.items():
            fen = samples[row].position.fen
            skipped.add(f"position whose logits by {model.name} are unusable", f"{fen}: {error}")
        sound = np.array([row for row in range(len(batch)) if row not in evaluated.unusable], dtype=np.intp)
        if len(sound):
            _add(model, [samples[row] for row in sound.tolist()], batch.rows(sound), choice, columns, skipped)
        return
    unmasked, boards, policies = evaluated.unmasked, batch.boards, evaluated.policies
    measured = measure(choice.kinds, unmasked, model.vocabulary, boards.black)
    legal = [batch.codes[batch.legal(row)] for row in range(len(batch))]
    heavy = unmasked.heavy(choice.least)
    leakage = columns_of(
        boards, batch.in_check, batch.codes, batch.indptr, measured, heavy, model.vocabulary, named=_MOVES_KEPT
    )
    codes, probabilities, indptr, abstention = policies.lists
    for kind in choice.kinds:
        values = measured[kind]
        columns[kind] += [None if np.isnan(value) else value for value in values.leaked.tolist()]
        columns[f"{kind}_flipped"] += values.flipped.tolist()
        columns[f"{kind}_kl"] += [None if np.isnan(value) else value for value in values.kl.tolist()]
    for row, sample in enumerate(samples):
        kept = slice(indptr[row], indptr[row + 1])
        if SERVED in choice.kinds:
            check_answer(sample.position, legal[row].tolist(), codes[kept], probabilities[kept], abstention[row])
        illegal, causes = leakage.explained.of(row)
        for cause in Cause:
            columns[f"cause_{cause.value}"].append(causes.get(cause, 0.0))
        columns["illegal"].append(
            [{"uci": move.uci, "probability": move.probability, "cause": move.cause.value} for move in illegal]
        )
        best = list(zip(uci_of(policies.codes[kept][:_MOVES_KEPT]), probabilities[kept][:_MOVES_KEPT], strict=True))
        columns["legal"].append([{"uci": uci, "probability": p} for uci, p in best])
        for name, value in _sample_columns(sample, model, PHASES[leakage.phases[row]]).items():
            columns[name].append(value)
        columns["in_check"].append(bool(batch.in_check[row]))
        columns["legal_moves"].append(len(legal[row]))
        columns["top"].append(best[0][0])
        columns["top_probability"].append(best[0][1])


def _sample_columns(sample: Sample, model: Model, phase: Phase) -> dict[str, Any]:
    return {
        "source": sample.source,
        "item": sample.item,
        "ply": sample.ply,
        "fen": sample.position.fen,
        "chess960": sample.position.chess960,
        "turn": sample.position.turn,
        "phase": phase.value,
        "elo": None if sample.elo is None else sample.elo.self,
        "opponent_elo": None if sample.elo is None else sample.elo.opponent,
        "played": None if sample.played is None else sample.played.uci(),
        "model": model.name,
        "digest": model.digest,
        "trained_with_mask": model.trained_with_mask,
    }
