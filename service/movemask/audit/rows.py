"""Evaluates the positions of a chunk into rows of the audit's table. docs/audit.md lists the columns."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa

from movemask.audit.read import Choice, Sample, Skipped
from movemask.board.boards import PHASES, phases_of
from movemask.board.moves import code_of, uci_of
from movemask.evaluate import evaluate
from movemask.leakage.answer_check import check_answer
from movemask.leakage.causes import CAUSES, Cause
from movemask.leakage.explain import explain
from movemask.leakage.kinds import SERVED
from movemask.leakage.measure import measure
from movemask.network.model import Batch, Model
from movemask.policy.normalisation import Normalisation, Policies

#: Positions per run of a network.
_BATCH = 128

#: Legal moves kept per position, and as many illegal moves.
_MOVES_KEPT = 5

_MOVE = pa.struct([("uci", pa.string()), ("probability", pa.float64())])
_ILLEGAL = pa.struct([("uci", pa.string()), ("probability", pa.float64()), ("cause", pa.string())])


def schema(kinds: Sequence[str]) -> pa.Schema:
    """Returns the columns of the table."""
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
        ("played_probability", pa.float64()),
        ("model", pa.string()),
        ("digest", pa.string()),
        ("trained_with_mask", pa.bool_()),
        ("top", pa.string()),
        ("top_probability", pa.float64()),
    ]
    for kind in kinds:
        fields += [
            (kind, pa.float64()),
            (f"{kind}_flipped", pa.bool_()),
            (f"{kind}_kl", pa.float64()),
        ]
    fields += [(f"cause_{cause.value}", pa.float64()) for cause in Cause]
    return pa.schema([*fields, ("legal", pa.list_(_MOVE)), ("illegal", pa.list_(_ILLEGAL))])


def rows(model: Model, samples: Sequence[Sample], choice: Choice, skipped: Skipped) -> pa.Table:
    """Returns the table of positions evaluated by one network. Positions without an answer are left out and counted."""
    tables = [schema(choice.kinds).empty_table()]
    for start in range(0, len(samples), _BATCH):
        together = samples[start : start + _BATCH]
        batch, refused = model.batch(
            [sample.position for sample in together], [sample.elo for sample in together]
        )
        for row, error in refused.items():
            where = f"{together[row].source}: {together[row].item}"
            skipped.add(f"position that {model.name} cannot read", f"{where}: {error}")
        tables += _evaluate(model, together, batch, set(refused), choice, skipped)
    return pa.concat_tables(tables)


def _evaluate(
    model: Model,
    samples: Sequence[Sample],
    batch: Batch,
    left_out: Set[int],
    choice: Choice,
    skipped: Skipped,
) -> list[pa.Table]:
    """Returns the table of a batch without the rows `left_out`; no table if no row is left."""
    keep = np.array([row for row in range(len(samples)) if row not in left_out], dtype=np.intp)
    if not len(keep):
        return []
    samples, batch = [samples[row] for row in keep.tolist()], batch.rows(keep)
    evaluated = evaluate(model, batch, [Normalisation()] * len(batch))
    if evaluated.unusable:
        for row, error in evaluated.unusable.items():
            fen = samples[row].position.fen
            skipped.add(f"position whose logits by {model.name} are unusable", f"{fen}: {error}")
        return _evaluate(model, samples, batch, set(evaluated.unusable), choice, skipped)
    measured = measure(choice.kinds, evaluated.unmasked, model.vocabulary, batch.boards.black)
    heavy = evaluated.unmasked.heavy(choice.threshold)
    causes = explain(heavy, batch.boards, model.vocabulary, batch.codes, batch.indptr, _MOVES_KEPT)
    legal = _likeliest_moves(samples, batch, evaluated.policies, check=SERVED in choice.kinds)
    columns: dict[str, Any] = {
        "source": [sample.source for sample in samples],
        "item": [sample.item for sample in samples],
        "ply": [sample.ply for sample in samples],
        "fen": [sample.position.fen for sample in samples],
        "chess960": [sample.position.chess960 for sample in samples],
        "turn": [sample.position.turn for sample in samples],
        "phase": [PHASES[place].value for place in phases_of(batch.boards)],
        "in_check": batch.in_check,
        "legal_moves": batch.counts,
        "elo": [sample.elo and sample.elo.self for sample in samples],
        "opponent_elo": [sample.elo and sample.elo.opponent for sample in samples],
        "played": [sample.played and sample.played.uci() for sample in samples],
        "played_probability": _played_probabilities(samples, evaluated.policies),
        "model": [model.name] * len(samples),
        "digest": [model.digest] * len(samples),
        "trained_with_mask": [model.trained_with_mask] * len(samples),
        "top": [moves[0]["uci"] for moves in legal],
        "top_probability": [moves[0]["probability"] for moves in legal],
        "legal": legal,
        "illegal": [
            [
                {"uci": move.uci, "probability": move.probability, "cause": move.cause.value}
                for move in moves
            ]
            for moves, _ in map(causes.of, range(len(samples)))
        ],
    }
    for kind, values in measured.items():
        columns |= {kind: values.leaked, f"{kind}_flipped": values.flipped, f"{kind}_kl": values.kl}
    columns |= {
        f"cause_{cause.value}": causes.by_cause[:, place] for place, cause in enumerate(CAUSES)
    }
    table_schema = schema(choice.kinds)
    # `from_pandas` makes NaN null.
    arrays = [pa.array(columns[field.name], field.type, from_pandas=True) for field in table_schema]
    return [pa.table(arrays, schema=table_schema)]


def _played_probabilities(samples: Sequence[Sample], policies: Policies) -> list[float | None]:
    """Returns the probability of the move that was played in each position.

    None for a position of a list, and for a move without a slot, which is not judged.
    """
    codes, probabilities, indptr, _ = policies.lists
    played: list[float | None] = []
    for row, sample in enumerate(samples):
        moves = slice(indptr[row], indptr[row + 1])
        code = -1 if sample.played is None else code_of(sample.played)
        judged = code in codes[moves]
        played.append(probabilities[codes.index(code, moves.start)] if judged else None)
    return played


def _likeliest_moves(
    samples: Sequence[Sample], batch: Batch, policies: Policies, *, check: bool
) -> list[list[dict[str, Any]]]:
    """Returns the likeliest legal moves of each position.

    With `check`, raises ServedLeakage for a policy that leaks.
    """
    codes, probabilities, indptr, abstention = policies.lists
    likeliest = []
    for row, sample in enumerate(samples):
        span = slice(indptr[row], indptr[row + 1])
        if check:
            legal = batch.codes[batch.legal(row)].tolist()
            check_answer(sample.position, legal, codes[span], probabilities[span], abstention[row])
        best = slice(span.start, min(span.stop, span.start + _MOVES_KEPT))
        moves = zip(uci_of(policies.codes[best]), probabilities[best], strict=True)
        likeliest.append([{"uci": uci, "probability": probability} for uci, probability in moves])
    return likeliest
