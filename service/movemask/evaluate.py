"""The way of a batch on one page. It knows no queue.

    queries ─► reading ─► Batch ─► evaluate: network ─► policies, leakage ─► check ─► Answer ─► writing

`answered` does it all; `run_queries` all but the writing, for the server's queue. `evaluate` is the middle: the audit
of files, calibration, diagnosis and training's measuring call it too. The code below has the forms first, then the
steps in this order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

import chess
import numpy as np

from movemask.board.moves import uci_of
from movemask.board.position import Draw, Elo, Position, draw_of
from movemask.errors import InferenceFailed, InvalidLogits, MovemaskError, ServedLeakage
from movemask.leakage.answer_check import check_answer
from movemask.leakage.causes import Cause
from movemask.leakage.explain import IllegalMass, explain
from movemask.leakage.measure import UnmaskedLogits
from movemask.network.model import Batch, Model
from movemask.network.value import Value
from movemask.policy.normalisation import Normalisation, Policies, policies
from movemask.policy.ragged import Float, row_max, row_of_each

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Query:
    """A request for one position, given as text or as a `position` that has been read already."""

    fen: str | None = None
    moves: tuple[str, ...] = ()
    chess960: bool = False
    elo: Elo | None = None
    rule: Normalisation = field(default_factory=Normalisation)
    position: Position | None = None


@dataclass(frozen=True)
class Evaluated:
    """A batch with its results: everything that an answer contains.

    value : float64 `[B, 3]` win, draw, loss for the side to move, or `[B, 1]` its expected score; None without a value
    unmasked : the logits, from which every kind of leakage can be measured
    policies : the distributions, by each position's rule
    raw, multiplied : float64 `[B]`, probability that these two mistakes would have given to illegal moves
    seconds : time of the network's run
    unusable : by row, why it has no distribution; ignore the other fields of such a row
    """

    batch: Batch
    value: Float | None
    unmasked: UnmaskedLogits
    policies: Policies
    raw: Float
    multiplied: Float
    seconds: float
    unusable: Mapping[int, InvalidLogits]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one query: a row of an evaluated batch. `evaluated` is None without a legal move.

    Read it on the thread that made it and do not keep it: it refers to the whole batch.
    """

    model: Model
    query: Query
    position: Position
    rule: Normalisation  # "calibrated" is replaced by the model's temperature
    elo: Elo | None  # as the network gets it
    evaluated: Evaluated | None = None
    row: int = 0
    waited: float = 0.0  # seconds in the queue

    @property
    def status(self) -> Literal["ongoing", "checkmate", "stalemate"]:
        """`ongoing`, `checkmate` or `stalemate`."""
        return self.position.status(has_legal_moves=self.evaluated is not None)

    @property
    def draw(self) -> Draw | None:
        """A draw by the laws of chess; None if there is none, or no legal move."""
        return None if self.evaluated is None else draw_of(self.position)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names of the query's inputs that the network cannot use."""
        return self.model.ignored(self.position, self.query.elo)

    @property
    def policy(self) -> tuple[list[int], list[float]]:
        """The moves (`board.moves`) and their probabilities, most probable first."""
        if self.evaluated is None:
            return [], []
        codes, probabilities, indptr, _ = self.evaluated.policies.lists
        moves = slice(indptr[self.row], indptr[self.row + 1])
        return codes[moves], probabilities[moves]

    @property
    def unshaped(self) -> tuple[list[int], list[float]]:
        """All legal moves and their plain softmax, whatever the rule: temperature 1, no filter. Most probable first."""
        if self.evaluated is None:
            return [], []
        unmasked, moves = self.evaluated.unmasked, self.evaluated.batch.legal(self.row)
        logits = unmasked.legal_logits[moves]
        order = np.argsort(-logits, kind="stable")
        codes: list[int] = self.evaluated.batch.codes[moves][order].tolist()
        probabilities: list[float] = np.exp(logits[order] - unmasked.log_legal[self.row]).tolist()
        return codes, probabilities

    @property
    def logits(self) -> list[float]:
        """The logits of `policy`'s moves, in the same order."""
        if self.evaluated is None:
            return []
        policies = self.evaluated.policies
        logits: list[float] = policies.logits[
            policies.indptr[self.row] : policies.indptr[self.row + 1]
        ].tolist()
        return logits

    @property
    def without_slot(self) -> tuple[chess.Move, ...]:
        """The legal moves that `policy` lacks, because the network has no slot for them. Only with `incomplete`."""
        return self.model.vocabulary.without_slot(self.position)

    @property
    def value(self) -> Value | None:
        """The forecast of the result; None if the network has no value, or the position no legal move."""
        if self.evaluated is None or self.evaluated.value is None:
            return None
        return Value.of(self.evaluated.value[self.row].tolist())

    @property
    def raw(self) -> float | None:
        """Probability that plain softmax gives to illegal moves; None if an illegal logit is NaN or +inf."""
        assert self.evaluated is not None
        raw = float(self.evaluated.raw[self.row])
        return None if math.isnan(raw) else raw

    @property
    def multiplied(self) -> float:
        """Probability that softmax(logits * mask) gives to illegal moves."""
        assert self.evaluated is not None
        return float(self.evaluated.multiplied[self.row])

    def illegal(self, named: int) -> tuple[int, tuple[IllegalMass, ...], dict[Cause, float]]:
        """Returns the number of illegal slots, the `named` heaviest of them, and their
        plain-softmax probability by cause.
        """
        assert self.evaluated is not None
        batch, row = self.evaluated.batch, self.row
        slots = batch.slots[batch.legal(row)]
        indptr = np.array([0, len(slots)])
        own = UnmaskedLogits(self.evaluated.unmasked.logits[row : row + 1], slots, indptr)
        legal, boards = batch.codes[batch.legal(row)], batch.boards.rows([row])
        moves, by_cause = explain(
            own.heavy(0.0), boards, self.model.vocabulary, legal, indptr, named
        ).of(0)
        return len(self.model.vocabulary) - len(slots), moves, by_cause


class Evaluator(Protocol):
    """Answers queries with one model: `Direct`, or the server's `ClientPipeline` with its queue."""

    @property
    def model(self) -> Model: ...

    async def submit(
        self, queries: Sequence[Query], write: Callable[[Answer, int], R]
    ) -> list[R | MovemaskError]:
        """Returns for each query, in order, the result of `write(answer, place)`, or the query's
        error.

        `place` is the query's index. `write` may run on another thread. Raises errors that concern
        all queries: Overloaded, ShuttingDown, InferenceFailed.
        """


@dataclass(frozen=True, slots=True)
class Direct:
    """An Evaluator without queue and threads: `answered`."""

    model: Model

    async def submit(
        self, queries: Sequence[Query], write: Callable[[Answer, int], R]
    ) -> list[R | MovemaskError]:
        return answered(self.model, queries, write)


#: Most queries in a submission of `submit_in_parts`.
_QUERIES_PER_SUBMISSION = 512


async def submit_in_parts(
    evaluator: Evaluator, queries: Sequence[Query], write: Callable[[Answer, int], R]
) -> list[R | MovemaskError]:
    """As `Evaluator.submit`, in several submissions, so that the positions of games do not fill the queue."""
    results: list[R | MovemaskError] = []
    for start in range(0, len(queries), _QUERIES_PER_SUBMISSION):
        part = queries[start : start + _QUERIES_PER_SUBMISSION]

        def write_part(answer: Answer, place: int, start: int = start) -> R:
            return write(answer, start + place)

        results += await evaluator.submit(part, write_part)
    return results


#: Positions in one run of the network for `answered`.
_TOGETHER = 64


def answered(
    model: Model, queries: Sequence[Query], write: Callable[[Answer, int], R]
) -> list[R | MovemaskError]:
    """Returns for each query, in order, the result of `write(answer, place)`, or the query's error.

    Raises InferenceFailed.
    """
    results: list[R | MovemaskError] = []
    for start in range(0, len(queries), _TOGETHER):
        some = queries[start : start + _TOGETHER]
        outcomes, _ = run_queries(model, some, [0.0] * len(some))
        for place, outcome in enumerate(outcomes, start):
            results.append(outcome if isinstance(outcome, MovemaskError) else write(outcome, place))
    return results


def run_queries(
    model: Model, queries: Sequence[Query], waited: Sequence[float], max_moves: int | None = None
) -> tuple[list[Answer | MovemaskError], Evaluated | None]:
    """Returns an answer or an error for each query, and the evaluated batch (None if no position
    has a legal move).

    `waited` holds each query's seconds in the queue. Raises InferenceFailed.
    """
    outcomes: dict[int, Answer | MovemaskError] = {}
    read: list[tuple[int, Position, Normalisation]] = []
    for place, query in enumerate(queries):
        try:
            read.append((place, *_read(model, query, max_moves)))
        except MovemaskError as error:
            # The error outlives this call. Its tracebacks would keep this frame, and so the whole batch, alive.
            error.__context__ = None
            outcomes[place] = error.with_traceback(None)
    batch, refused = model.batch(
        [position for _, position, _ in read], [queries[place].elo for place, *_ in read]
    )
    rows: list[int] = []
    for row, (place, position, rule) in enumerate(read):
        if row in refused:
            outcomes[place] = refused[row]
        elif batch.indptr[row] == batch.indptr[row + 1]:  # no legal move
            outcomes[place] = Answer(model, queries[place], position, rule, batch.elo_of(row))
        else:
            rows.append(row)
    evaluated = None
    if rows:
        if len(rows) < len(batch):
            batch = batch.rows(np.array(rows, dtype=np.intp))
        evaluated = evaluate(model, batch, [read[row][2] for row in rows])
        failed = {**evaluated.unusable, **_check(evaluated)}
        for batch_row, row in enumerate(rows):
            place, position, rule = read[row]
            outcomes[place] = failed.get(batch_row) or Answer(
                model,
                queries[place],
                position,
                rule,
                batch.elo_of(batch_row),
                evaluated,
                batch_row,
                waited[place],
            )
    return [outcomes[place] for place in range(len(queries))], evaluated


def _read(model: Model, query: Query, max_moves: int | None) -> tuple[Position, Normalisation]:
    """Returns a query's position and rule, with the model's temperature in place of "calibrated"."""
    position = query.position or Position.read(
        query.fen, query.moves, chess960=query.chess960, max_moves=max_moves
    )
    if query.rule.temperature == "calibrated":
        return position, replace(query.rule, temperature=model.calibrated_temperature())
    return position, query.rule


def evaluate(model: Model, batch: Batch, rules: Sequence[Normalisation]) -> Evaluated:
    """Returns the results of a batch, by one rule per position.

    Each position needs a legal move. Raises InferenceFailed.
    """
    started = time.perf_counter()
    try:
        outputs = model.run(batch)
    except MovemaskError:
        raise
    except Exception as error:
        raise InferenceFailed(f"model {model.name}: {type(error).__name__}: {error}") from error
    seconds = time.perf_counter() - started
    logits, indptr = outputs.logits, batch.indptr
    legal = np.asarray(logits[row_of_each(indptr), batch.slots], dtype=np.float64)
    # A NaN, a +inf or a row of only -inf makes the row's maximum non-finite.
    unusable: dict[int, InvalidLogits] = {}
    for row in np.flatnonzero(~np.isfinite(row_max(legal, indptr))).tolist():
        moves = batch.legal(row)
        unusable[row] = _unusable(model, batch, row, legal[moves])
        legal[moves] = 0.0
    if outputs.value is not None:
        for row in np.flatnonzero(np.isnan(outputs.value[:, 0])).tolist():
            unusable.setdefault(row, _without_value(model, batch, row))
    unmasked = UnmaskedLogits(logits, batch.slots, indptr, legal)
    raw, multiplied = unmasked.raw_and_multiplied()
    distributions = policies(batch.codes, legal, indptr, rules)
    return Evaluated(
        batch, outputs.value, unmasked, distributions, raw, multiplied, seconds, unusable
    )


def evaluate_positions(
    model: Model,
    positions: Sequence[Position],
    elos: Sequence[Elo | None],
    rule: Normalisation | None = None,
) -> Evaluated:
    """Returns the results of positions by one rule; plain softmax if None.

    Each position needs a legal move.

    Raises a ModelError or UnsupportedVariant for the first position that cannot be evaluated.
    """
    batch = model.whole_batch(positions, elos)
    evaluated = evaluate(model, batch, [rule or Normalisation()] * len(batch))
    for error in evaluated.unusable.values():
        raise error
    return evaluated


def _unusable(model: Model, batch: Batch, row: int, logits: Float) -> InvalidLogits:
    start, fen = int(batch.indptr[row]), batch.positions[row].fen
    wrong = np.flatnonzero(np.isnan(logits) | (logits == np.inf))
    if not len(wrong):
        return InvalidLogits(
            f"model {model.name}: the logit of every legal move is -inf, in {fen!r}"
        )
    first = int(wrong[0])
    move = uci_of(batch.codes[start + first : start + first + 1])[0]
    return InvalidLogits(
        f"model {model.name}: slot {batch.slots[start + first]}: the logit of the legal move {move} is "
        f"{logits[first]}, in {fen!r}"
    )


def _without_value(model: Model, batch: Batch, row: int) -> InvalidLogits:
    head = model.contract.outputs.value
    assert head is not None
    return InvalidLogits(
        f"model {model.name}: output {head.name!r}, the value, is NaN or infinite in "
        f"{batch.positions[row].fen!r}"
    )


def _check(evaluated: Evaluated) -> dict[int, MovemaskError]:
    """Returns by row the errors of answers that must not be served."""
    failed: dict[int, MovemaskError] = {}
    batch = evaluated.batch
    all_legal, bounds = batch.codes.tolist(), batch.indptr.tolist()
    codes, probabilities, indptr, abstention = evaluated.policies.lists
    for row, position in enumerate(batch.positions):
        legal, moves = all_legal[bounds[row] : bounds[row + 1]], slice(indptr[row], indptr[row + 1])
        try:
            check_answer(position, legal, codes[moves], probabilities[moves], abstention[row])
        except ServedLeakage as error:
            failed[row] = error
    return failed
