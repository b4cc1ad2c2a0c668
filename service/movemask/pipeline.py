"""The path of a request on one page: queries → batch → network → policies and leakage → answers → audit.

    queries ─► queue ─► read ─► Batch ─► evaluate ─► check ─► Answer ─► `write` ─► the caller
                                            └─► after the reply: kinds, heavy slots ─► the recorder

Read it in this order. `Pipeline.submit` puts queries into the queue, on the event loop. A thread of the queue takes
queries and calls `run_queries`; a small lone request runs on the event loop, and `movemask.load` needs no queue.
`run_queries` calls `evaluate`, as do the bulk audit, calibration, diagnosis, quantisation and training's measuring.
After the replies, a thread of the queue calls `_follow_up` for many batches at once.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

import numpy as np

from movemask.board.moves import uci_of
from movemask.board.position import Draw, Elo, Position, draw_of
from movemask.errors import InferenceFailed, InvalidLogits, MovemaskError, ServedLeakage
from movemask.leakage.causes import Cause
from movemask.leakage.explain import IllegalMass, explained
from movemask.leakage.kinds import Plan
from movemask.leakage.measure import UnmaskedLogits, measure
from movemask.leakage.served import check_answer
from movemask.network.model import Batch, Model, Session
from movemask.network.pace import Quicker
from movemask.network.queue import Queue, Submission
from movemask.network.value import Value
from movemask.normalisation import Normalisation, Policies, policies
from movemask.numeric.ragged import Float, row_max, row_of_each
from movemask.records import AuditBatch
from movemask.serving.tally import Tally

R = TypeVar("R")

#: Playing this many moves costs the same as evaluating a position.
_PLIES = 32


@dataclass(frozen=True, slots=True)
class Query:
    """A request for one position, given as text or as a `position` that has been read already."""

    fen: str | None = None
    moves: tuple[str, ...] = ()
    chess960: bool = False
    elo: Elo | None = None
    rule: Normalisation = field(default_factory=Normalisation)
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of a call of `Pipeline.submit`.

    model : the model's name
    answers : queries with an answer, not an error
    evaluated : answers from batches for which the network ran; the others came from a cache or have no legal move
    submission : its times say how long it waited and ran
    """

    model: str
    answers: int
    evaluated: int
    submission: Submission


@dataclass(slots=True, kw_only=True)
class Caller:
    """The sender of queries. Clients take turns. The base class ignores every event."""

    client: str = ""

    def done(self, run: Run) -> None:
        """Called on the event loop when a submission of this caller is done."""


@dataclass(frozen=True)
class Evaluated:
    """A batch with its results: everything that an answer contains.

    value : float64 `[B, 3]` win, draw, loss for the side to move, or `[B, 1]` its expected score; None without a value
    unmasked : the logits, from which every kind of leakage can be measured
    policies : the distributions, by each position's rule
    raw, multiplied : float64 `[B]`, probability that these two mistakes would have given to illegal moves
    ran, seconds : rows that the network ran on, and the time of the run; both 0 if a cache had every row
    unusable : by row, why it has no distribution; ignore the other fields of such a row
    """

    batch: Batch
    value: Float | None
    unmasked: UnmaskedLogits
    policies: Policies
    raw: Float
    multiplied: Float
    ran: int
    seconds: float
    unusable: Mapping[int, InvalidLogits]


def evaluate(model: Model, batch: Batch, rules: Sequence[Normalisation]) -> Evaluated:
    """The results of a batch, by one rule per position. Each position needs a legal move. Raises InferenceFailed."""
    started = time.perf_counter()
    try:
        outputs = model.run(batch)
    except MovemaskError:
        raise
    except Exception as error:
        raise InferenceFailed(f"model {model.name}: {type(error).__name__}: {error}") from error
    ran = len(batch) - outputs.cached
    seconds = time.perf_counter() - started if ran else 0.0
    logits, indptr = outputs.logits, batch.indptr
    legal = np.asarray(logits[row_of_each(indptr), batch.slots], dtype=np.float64)
    # A NaN, a +inf or a row of only -inf makes the row's maximum non-finite.
    unusable: dict[int, InvalidLogits] = {}
    for row in np.flatnonzero(~np.isfinite(row_max(legal, indptr))).tolist():
        moves = batch.legal(row)
        unusable[row] = _unusable(model, batch, row, legal[moves])
        legal[moves] = 0.0
    unmasked = UnmaskedLogits(logits, batch.slots, indptr, legal)
    raw, multiplied = unmasked.masses()
    distributions = policies(batch.codes, legal, indptr, rules)
    return Evaluated(batch, outputs.value, unmasked, distributions, raw, multiplied, ran, seconds, unusable)


def evaluate_positions(
    model: Model, positions: Sequence[Position], elos: Sequence[Elo | None], rule: Normalisation | None = None
) -> Evaluated:
    """The results of positions by one rule; plain softmax if None. Each position needs a legal move.

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
        return InvalidLogits(f"model {model.name}: the logit of every legal move is -inf, in {fen!r}")
    first = int(wrong[0])
    move = uci_of(batch.codes[start + first : start + first + 1])[0]
    return InvalidLogits(
        f"model {model.name}: slot {batch.slots[start + first]}: the logit of the legal move {move} is "
        f"{logits[first]}, in {fen!r}"
    )


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
    def logits(self) -> list[float]:
        """The logits of `policy`'s moves, in the same order."""
        if self.evaluated is None:
            return []
        policies = self.evaluated.policies
        logits: list[float] = policies.logits[policies.indptr[self.row] : policies.indptr[self.row + 1]].tolist()
        return logits

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
        """The number of illegal slots, the `named` heaviest of them, and their plain-softmax probability by cause."""
        assert self.evaluated is not None
        batch, row = self.evaluated.batch, self.row
        slots = batch.slots[batch.legal(row)]
        indptr = np.array([0, len(slots)])
        own = UnmaskedLogits(self.evaluated.unmasked.logits[row : row + 1], slots, indptr)
        legal, boards = batch.codes[batch.legal(row)], batch.boards.rows([row])
        moves, by_cause = explained(own.heavy(0.0), boards, self.model.vocabulary, legal, indptr, named).of(0)
        return len(self.model.vocabulary) - len(slots), moves, by_cause


def run_queries(
    model: Model, queries: Sequence[Query], waited: Sequence[float], max_moves: int | None = None
) -> tuple[list[Answer | MovemaskError], Evaluated | None]:
    """An answer or an error for each query, and the evaluated batch (None if no position has a legal move).

    `waited` holds each query's seconds in the queue. Raises InferenceFailed.
    """
    outcomes: dict[int, Answer | MovemaskError] = {}
    read: list[tuple[int, Position, Normalisation]] = []
    for place, query in enumerate(queries):
        rule = query.rule
        try:
            position = query.position or Position.read(
                query.fen, query.moves, chess960=query.chess960, max_moves=max_moves
            )
            if rule.temperature == "calibrated":
                rule = replace(rule, temperature=model.calibrated_temperature())
            read.append((place, position, rule))
        except MovemaskError as error:
            # The error outlives this call. Its tracebacks would keep this frame, and so the whole batch, alive.
            error.__context__ = None
            outcomes[place] = error.with_traceback(None)
    batch, refused = model.batch([position for _, position, _ in read], [queries[place].elo for place, *_ in read])
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
        batch = batch.rows(np.array(rows, dtype=np.intp))
        evaluated = evaluate(model, batch, [read[row][2] for row in rows])
        failed = {**evaluated.unusable, **_check(evaluated)}
        for kept, row in enumerate(rows):
            place, position, rule = read[row]
            outcomes[place] = failed.get(kept) or Answer(
                model, queries[place], position, rule, batch.elo_of(kept), evaluated, kept, waited[place]
            )
    return [outcomes[place] for place in range(len(queries))], evaluated


def _check(evaluated: Evaluated) -> dict[int, MovemaskError]:
    """By row, the errors of answers that must not be served."""
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


@dataclass(frozen=True, slots=True)
class DoneBatch:
    """Queries that ran together, as metrics and the audit see them.

    answers : without the queries that failed
    evaluated : None if no position has a legal move
    waiting : queries that waited for the next batch
    time : in seconds since 1970
    ticket : number from `Audit.expect`
    """

    answers: Sequence[Answer]
    evaluated: Evaluated | None
    waiting: int
    time: float
    ticket: int


class Audit(Protocol):
    """Records answers. Implemented by `store.recorder.Recorder`."""

    def expect(self, positions: int) -> int:
        """Announces a number of evaluated answers before they are sent. Returns a ticket for `audit`."""

    def audit(self, audited: Sequence[AuditBatch], tickets: Sequence[int]) -> None:
        """Takes batches and their tickets, and returns at once. `audited` is empty if the batches could not be made."""


#: The result of a query: the value that `write` returned, or an error; and whether the network ran for it.
_Result = tuple[R | Exception, bool]


class Pipeline:
    """Answers queries with one model, in batches from its `queue`. Clients take turns; small requests go first.

    Parameters
    ----------
    audit : records the answers; None for no audit
    max_batch, max_waiting, max_seconds, tally : as for `Queue`. A query costs 1, and 1/32 more for each of its moves
    max_moves : limit of `Query.moves`
    plan : the kinds of leakage to measure
    on_done : after the replies, gets the model's name and the finished batches
    lone_session : opens a session that runs on several cores. It is called once, after the first lone request; None if
        it cannot be opened. Lone requests run on it if it is quicker than the model's own
    """

    def __init__(
        self,
        model: Model,
        audit: Audit | None = None,
        *,
        max_batch: int,
        max_waiting: int,
        tally: Tally | None = None,
        max_seconds: float | None = None,
        max_moves: int | None = None,
        plan: Plan | None = None,
        on_done: Callable[[str, Sequence[DoneBatch]], None] = lambda model, batches: None,
        lone_session: Callable[[], Session | None] | None = None,
    ) -> None:
        self.model = model
        self._lone_session = lone_session
        self._lone_model: Model | None = None  # `model` with that session
        self._lone_came = False
        self._quicker = Quicker()
        self._audit = audit
        self._max_moves = max_moves
        self._plan = plan or Plan()
        self._on_done = on_done
        self.queue = Queue(
            model.name,
            self._run_batch,
            self._follow_up,
            threads=model.session.at_once,
            max_batch=max_batch,
            max_waiting=max_waiting,
            tally=tally,
            max_seconds=max_seconds,
        )

    async def submit(
        self, queries: Sequence[Query], write: Callable[[Answer], R], caller: Caller | None = None
    ) -> list[R | MovemaskError]:
        """For each query, in order: the result of `write(answer)`, or the query's error.

        `write` is called on the thread that ran the batch. Raises errors that concern all queries: Overloaded,
        ShuttingDown, InferenceFailed. If the caller is cancelled, queries not yet in a batch are dropped.
        """
        return await self.submit_each([(query, write) for query in queries], caller)

    async def submit_each(
        self, items: Sequence[tuple[Query, Callable[[Answer], R]]], caller: Caller | None = None
    ) -> list[R | MovemaskError]:
        """Like `submit`, with a separate `write` for each query."""
        caller = caller or Caller()
        costs = [1 + len(query.moves) / _PLIES for query, _ in items]
        submission = await self.queue.submit(items, caller.client, costs)
        results: list[R | MovemaskError] = []
        answers = evaluated = 0
        for result, ran in submission.results:
            if not isinstance(result, Exception):
                answers += 1
                evaluated += ran
            elif not isinstance(result, MovemaskError):  # a bug in `write`
                raise result
            results.append(result)
        caller.done(Run(self.model.name, answers, evaluated, submission))
        return results

    def close(self) -> None:
        """Answers the waiting queries and accepts no more."""
        self.queue.close()

    def _run_batch(
        self, items: Sequence[tuple[Query, Callable[[Answer], R]]], waited: Sequence[float], alone: bool
    ) -> tuple[list[_Result[R]], DoneBatch]:
        """The result of each query, and the batch for the follow-up."""
        self._lone_came |= alone
        lone = self._lone_model if alone else None
        second = lone is not None and self._quicker.second()
        model = lone if lone is not None and second else self.model
        outcomes, evaluated = run_queries(model, [query for query, _ in items], waited, self._max_moves)
        if lone is not None and evaluated is not None and evaluated.ran:
            self._quicker.observe(second, evaluated.seconds / evaluated.ran)
        answers = [outcome for outcome in outcomes if isinstance(outcome, Answer)]
        expected = sum(answer.evaluated is not None for answer in answers)
        ticket = 0 if self._audit is None else self._audit.expect(expected)
        results = [_written(outcome, write) for outcome, (_, write) in zip(outcomes, items, strict=True)]
        return results, DoneBatch(answers, evaluated, self.queue.waiting, time.time(), ticket)

    def _follow_up(self, batches: Sequence[DoneBatch]) -> None:
        """Feeds metrics and the audit, for many batches at once, after their replies."""
        audited: list[AuditBatch] = []
        try:
            self._on_done(self.model.name, batches)
            if self._audit is None:
                return
            by_kinds: dict[tuple[str, ...], list[DoneBatch]] = defaultdict(list)
            for batch in batches:
                if batch.evaluated is not None:
                    by_kinds[self._plan.drawn(random.random())].append(batch)
            audited = [self._audit_batch(kinds, of_kinds) for kinds, of_kinds in by_kinds.items()]
        finally:
            if self._audit is not None:
                self._audit.audit(audited, [batch.ticket for batch in batches])
            self._open_lone_session()

    def _open_lone_session(self) -> None:
        """Opens the session for lone requests, if one has come. Two threads may do it at once, which harms nothing."""
        opens = self._lone_session
        if self._lone_came and opens is not None:
            self._lone_session = None
            session = opens()
            self._lone_model = None if session is None else replace(self.model, session=session)

    def _audit_batch(self, kinds: Sequence[str], batches: Sequence[DoneBatch]) -> AuditBatch:
        """The batches joined for the audit. The logits are read here; the recorder computes the rest."""
        model = self.model
        results = [batch.evaluated for batch in batches if batch.evaluated is not None]
        joined = Batch.joined([evaluated.batch for evaluated in results])
        unmasked = UnmaskedLogits.joined([evaluated.unmasked for evaluated in results])
        rows: list[Answer | None] = []  # None where the answer failed
        for batch in batches:
            if batch.evaluated is not None:
                by_row = {answer.row: answer for answer in batch.answers if answer.evaluated is not None}
                rows += [by_row.get(row) for row in range(len(batch.evaluated.batch))]
        elos = [None if answer is None else answer.query.elo for answer in rows]
        audited = AuditBatch(
            model=model,
            times=np.repeat([batch.time for batch in batches], [len(evaluated.batch) for evaluated in results]),
            elos=[None if elo is None else elo.self for elo in elos],
            batch=joined,
            measured=measure(kinds, unmasked, model.vocabulary, joined.boards.black),
            heavy=unmasked.heavy(self._plan.least),
        )
        return audited if all(rows) else audited.rows(np.flatnonzero([answer is not None for answer in rows]))


def _written(outcome: Answer | MovemaskError, write: Callable[[Answer], R]) -> _Result[R]:
    """The result of a query. An error of `write` concerns no other query."""
    if isinstance(outcome, MovemaskError):
        return outcome, False
    ran = outcome.evaluated is not None and outcome.evaluated.ran > 0
    try:
        return write(outcome), ran
    except Exception as error:
        return error, ran
