"""`Query` and `Answer`: what is asked of the pipeline for one position, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from movemask.board.position import Draw, Elo, Position, draw_of
from movemask.evaluation import Evaluated
from movemask.leakage.measure import LogitBatch
from movemask.leakage.reasons import Explained, explained
from movemask.network.model import Model
from movemask.policy import Rule, Statistics


@dataclass(frozen=True, slots=True)
class Query:
    """A request for one position: as text, or as a `position` that has been read."""

    fen: str | None = None
    moves: tuple[str, ...] = ()
    chess960: bool = False
    elo: Elo | None = None
    rule: Rule = field(default_factory=Rule)
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that a query waited in the queue, and that the network took to run its batch."""

    queue: float
    inference: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one query: a row of an evaluated batch; without a legal move `evaluated` and `timing` are None.

    Read it on the thread that made it and do not keep it: it refers to its whole batch.
    """

    model: Model
    query: Query
    position: Position
    rule: Rule  # its temperature resolved to a number
    elo: Elo | None  # as passed to the network
    evaluated: Evaluated | None = None
    row: int = 0
    timing: Timing | None = None

    @property
    def ran(self) -> bool:
        """Whether the network ran for it: not without a legal move, nor where a cache knew the whole batch."""
        return self.evaluated is not None and self.evaluated.ran > 0

    @property
    def status(self) -> str:
        """`ongoing`, `checkmate` or `stalemate`."""
        return self.position.status(has_legal_moves=self.evaluated is not None)

    @property
    def draw(self) -> Draw | None:
        """A draw by the laws of chess; None in a position without legal moves."""
        return None if self.evaluated is None else draw_of(self.position)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names of the query's inputs that the network cannot use."""
        return self.model.ignored(self.position, self.query.elo)

    @property
    def legal_moves(self) -> int:
        """How many legal moves there are, before any filter."""
        return 0 if self.evaluated is None else int(self.evaluated.batch.counts[self.row])

    @property
    def policy(self) -> tuple[list[int], list[float]]:
        """The moves (`move_codes`) and their probabilities, most probable first."""
        if self.evaluated is None:
            return [], []
        codes, probabilities, indptr, _ = self.evaluated.policies.lists
        moves = slice(indptr[self.row], indptr[self.row + 1])
        return codes[moves], probabilities[moves]

    @property
    def logits(self) -> list[float]:
        """The logits of the moves of `policy`, in their order."""
        if self.evaluated is None:
            return []
        policies = self.evaluated.policies
        logits: list[float] = policies.logits[policies.indptr[self.row] : policies.indptr[self.row + 1]].tolist()
        return logits

    @property
    def abstention(self) -> float:
        """The mass that softmax_one leaves unassigned."""
        return 0.0 if self.evaluated is None else self.evaluated.policies.lists[3][self.row]

    @property
    def value(self) -> tuple[float, ...] | None:
        """Win, draw, loss for the side to move, or only its expected score; None if the network has no value head."""
        if self.evaluated is None or self.evaluated.value is None:
            return None
        return tuple(self.evaluated.value[self.row].tolist())

    @property
    def raw(self) -> float | None:
        """What plain softmax gives to illegal moves; None if an illegal logit is NaN or +inf."""
        assert self.evaluated is not None
        raw = float(self.evaluated.raw[self.row])
        return None if raw != raw else raw

    @property
    def multiplied(self) -> float:
        """What softmax(logits * mask) gives to illegal moves."""
        assert self.evaluated is not None
        return float(self.evaluated.multiplied[self.row])

    def statistics(self) -> Statistics:
        """Statistics of the distribution."""
        assert self.evaluated is not None
        return self.evaluated.policies.statistics(self.row, self.rule.temperature)

    def illegal(self, named: int) -> Explained:
        """What plain softmax gives to illegal moves: the heaviest `named`, and all of it by cause."""
        assert self.evaluated is not None
        batch, row = self.evaluated.batch, self.row
        slots = batch.slots[batch.legal(row)]
        own = LogitBatch(self.evaluated.unmasked.logits[row : row + 1], slots, np.array([0, len(slots)]))
        legal = [batch.codes[batch.legal(row)]]
        (found,) = explained(own.heavy(0.0), batch.boards.rows([row]), self.model.vocabulary, legal, named)
        return found

    def sample(self, seed: int) -> int:
        """Index in `policy` of a randomly drawn move; the same seed draws the same move."""
        assert self.evaluated is not None
        return self.evaluated.policies.sample(self.row, self.rule.temperature, seed)
