"""`Model`: a session with its contract. Positions → `Batch` → logits `[B, A]`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import Boards, Flags
from movemask.board.moves import code_of, legal_moves
from movemask.board.position import Elo, Position
from movemask.columns import INDPTR, RAGGED, Columns
from movemask.encoding.encoders import PlaneEncoder
from movemask.encoding.vocabulary import Vocabulary
from movemask.errors import InferenceFailed, MovemaskError, NotCalibrated
from movemask.network.contract import Contract
from movemask.policy.ragged import Float, Index, row_lengths

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Name, numpy dtype name and shape of an input or output. A free dimension, such as the batch, is None."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


class Session(Protocol):
    """Runs one network, from up to `runs` threads at a time."""

    @property
    def runs(self) -> int:
        """How many runs at the same time give the best throughput."""
        ...

    @property
    def inputs(self) -> tuple[TensorInfo, ...]: ...

    @property
    def outputs(self) -> tuple[TensorInfo, ...]: ...

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """Returns the named outputs for a batch of inputs; raises InferenceFailed on an error of the runtime."""
        ...


@dataclass(frozen=True, slots=True)
class Batch(Columns):
    """B positions and their N legal moves in CSR form, without those that an incomplete vocabulary leaves out.

    positions : the positions, with python-chess boards
    boards : the same positions as bitboards
    codes : intp `[N]`, the legal moves (`board.moves`), in the order of their slots within each position
    slots : intp `[N]`, ascending within each position
    indptr : intp `[B + 1]`
    in_check : bool `[B]`
    elo : float64 `[B, 2]`, the ratings of the side to move and of its opponent, as the network gets them; NaN for a
        network without ratings
    """

    positions: Sequence[Position]
    boards: Boards
    codes: Index = field(metadata=RAGGED)
    slots: Index = field(metadata=RAGGED)
    indptr: Index = field(metadata=INDPTR)
    in_check: Flags
    elo: Float

    def __len__(self) -> int:
        return len(self.positions)

    def legal_mask(self, size: int) -> NDArray[np.bool_]:
        """Returns the legal mask for a vocabulary of `size` slots: bool `[B, A]`, True for legal
        moves.
        """
        mask = np.zeros((len(self), size), dtype=np.bool_)
        mask[np.repeat(np.arange(len(self)), self.counts), self.slots] = True
        return mask

    @property
    def counts(self) -> Index:
        """Number of legal moves of each position, `[B]`."""
        return row_lengths(self.indptr)

    def legal(self, row: int) -> slice:
        """Returns the range of one position's legal moves in `codes` and `slots`."""
        return slice(int(self.indptr[row]), int(self.indptr[row + 1]))

    def elo_of(self, row: int) -> Elo | None:
        """Returns a position's ratings, as the network gets them; None for a network without ratings."""
        mover, opponent = self.elo[row].tolist()
        return None if math.isnan(mover) else Elo(mover, opponent)

    def place_of(self, row: int, move: chess.Move) -> int:
        """Returns the index of a move among its position's legal moves. Raises ValueError if it is not among them."""
        place = self.find(row, move)
        if place is None:
            raise ValueError(f"{move} is not a legal move with a slot")
        return place

    def find(self, row: int, move: chess.Move) -> int | None:
        """Like `place_of`; None for a move without a slot."""
        places = np.flatnonzero(self.codes[self.legal(row)] == code_of(move))
        return int(places[0]) if len(places) else None


@dataclass(frozen=True, slots=True)
class Outputs:
    """A network's outputs for a batch.

    logits : `[B, A]`, unmodified
    value : float64 `[B, 3]` win, draw, loss for the side to move, or `[B, 1]` its expected score from 0 to 1; None if
        the network has no value. A row in which the network's numbers are not finite holds NaN
    """

    logits: NDArray[np.floating]
    value: NDArray[np.float64] | None


@dataclass(frozen=True)
class Model:
    """A network with its contract."""

    name: str
    digest: str
    contract: Contract
    session: Session

    @cached_property
    def encoder(self) -> PlaneEncoder:
        return self.contract.terms.encoder

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return self.contract.terms.slots

    @cached_property
    def takes_elo(self) -> bool:
        """Whether the network takes ratings. Cached, since every batch and answer asks."""
        return self.contract.takes_elo

    @property
    def trained_with_mask(self) -> bool:
        return self.contract.terms.trained_with_mask

    def calibrated_temperature(self) -> float:
        """Returns the contract's fitted temperature; raises NotCalibrated."""
        if self.contract.calibration is None:
            raise NotCalibrated(
                f"temperature: model {self.name!r} is not calibrated; `movemask calibrate` writes it into its contract"
            )
        return self.contract.calibration.temperature

    def ignored(self, position: Position, elo: Elo | None) -> tuple[str, ...]:
        """Returns the inputs of a request that this network cannot use."""
        names = []
        if position.has_history and not self.encoder.uses_history:
            names.append("history")
        if elo is not None and not self.takes_elo:
            names.append("elo")
        return tuple(names)

    def batch(
        self, positions: Sequence[Position], elos: Sequence[Elo | None]
    ) -> tuple[Batch, dict[int, MovemaskError]]:
        """Returns the batch of all positions, and by row the errors of positions that the vocabulary cannot express.

        The errors are MoveOutsideVocabulary or UnsupportedVariant; do not use these rows of the batch. Positions
        without a legal move are fine. If the same object comes several times, as in a sweep over ratings, its legal
        moves are found once.
        """
        # by identity
        place_of = {position: place for place, position in enumerate(dict.fromkeys(positions))}
        if len(place_of) < len(positions):
            distinct, refused = self.batch(list(place_of), [None] * len(place_of))
            places = [place_of[position] for position in positions]
            errors = {row: refused[place] for row, place in enumerate(places) if place in refused}
            return replace(distinct.rows(places), elo=self._elo(elos)), errors
        boards = Boards.of([position.board for position in positions])
        legal = legal_moves(position.board for position in positions)
        codes, slots, indptr, refused_rows = self.vocabulary.slots(legal, boards)
        batch = Batch(positions, boards, codes, slots, indptr, legal.in_check, self._elo(elos))
        return batch, {
            row: self.vocabulary.refusal(positions[row])
            for row in np.flatnonzero(refused_rows).tolist()
        }

    def whole_batch(self, positions: Sequence[Position], elos: Sequence[Elo | None] = ()) -> Batch:
        """Returns the batch of all positions, as `batch` does, but raises the first error.

        Without `elos`, the default ratings are used.
        """
        batch, refused = self.batch(positions, elos or [None] * len(positions))
        for error in refused.values():
            raise error
        return batch

    def _elo(self, elos: Sequence[Elo | None]) -> Float:
        """Returns the ratings `[B, 2]` for the network, clamped to its range; NaN for a network without ratings."""
        if not self.takes_elo:
            return np.full((len(elos), 2), np.nan)
        known = self.contract.elo
        ratings = [
            (known.default,) * 2 if elo is None else (elo.self, elo.opponent) for elo in elos
        ]
        return np.clip(np.array(ratings, dtype=np.float64), known.minimum, known.maximum)

    def run(self, batch: Batch) -> Outputs:
        """Returns the outputs for a batch of 1 or more.

        Raises InferenceFailed if a shape differs from the contract's.
        """
        outputs = self.contract.outputs
        names = [outputs.logits] + ([outputs.value.name] if outputs.value else [])
        logits, *rest = self.session.run(self.feeds(batch), names)
        if logits.shape != (len(batch), len(self.vocabulary)):
            raise InferenceFailed(
                f"model {self.name}: output {outputs.logits!r} came as {logits.shape}, "
                f"expected [B, A] = {(len(batch), len(self.vocabulary))}"
            )
        return Outputs(logits, self._value(rest[0], batch) if outputs.value else None)

    def feeds(self, batch: Batch) -> dict[str, Array]:
        """Returns the network's inputs for a batch, by name."""
        inputs = self.contract.inputs
        feeds: dict[str, Array] = {
            inputs.planes: self.encoder.encode_all(batch.positions, batch.boards)
        }
        if inputs.elo_self is not None:
            feeds[inputs.elo_self] = self._ratings(batch.elo[:, 0])
        if inputs.elo_opponent is not None:
            feeds[inputs.elo_opponent] = self._ratings(batch.elo[:, 1])
        if inputs.legal_mask is not None:
            dtype = next(
                info.dtype for info in self.session.inputs if info.name == inputs.legal_mask
            )
            feeds[inputs.legal_mask] = batch.legal_mask(len(self.vocabulary)).astype(dtype)
        return feeds

    def _ratings(self, ratings: Float) -> Array:
        edges = self.contract.elo.edges
        if edges:
            return np.searchsorted(edges, ratings, side="right").astype(np.int64)
        return (
            np.rint(ratings).astype(np.int64)
            if self.contract.elo.whole
            else ratings.astype(np.float32)
        )

    def _value(self, raw: Array, batch: Batch) -> NDArray[np.float64]:
        """Returns the value in the form of `Outputs`, converted from the network's order, form and point of view."""
        terms = self.contract.outputs.value
        assert terms is not None
        rows, size = len(batch), 1 if terms.order == "score" else 3
        if raw.shape not in ((rows, size), (rows,) if size == 1 else (rows, size)):
            raise InferenceFailed(
                f"model {self.name}: output {terms.name!r} came as {raw.shape}, expected {(rows, size)}"
            )
        value = raw.astype(np.float64).reshape(rows, size)
        value[~np.isfinite(value).all(axis=1)] = np.nan
        if terms.order == "score":
            value = (np.clip(value, -1, 1) + 1) / 2
        elif not terms.softmaxed:
            value = np.exp(value - value.max(axis=1, keepdims=True))
            value /= value.sum(axis=1, keepdims=True)
        if terms.order == "loss_draw_win":
            value = value[:, ::-1]
        if terms.point_of_view == "white":
            black = batch.boards.black[:, None]
            value = np.where(black, 1 - value if size == 1 else value[:, ::-1], value)
        return np.ascontiguousarray(value)


def expected_tensors(contract: Contract) -> tuple[list[TensorInfo], list[TensorInfo]]:
    """Returns the inputs and outputs that a contract requires of an ONNX file."""
    encoder, size = contract.terms.encoder, len(contract.terms.slots)
    inputs = [TensorInfo(contract.inputs.planes, encoder.dtype, (None, *encoder.shape))]
    for name in (contract.inputs.elo_self, contract.inputs.elo_opponent):
        if name is not None:
            whole = contract.elo.edges or contract.elo.whole
            inputs.append(TensorInfo(name, "int64" if whole else "float32", (None,)))
    if contract.inputs.legal_mask is not None:
        inputs.append(TensorInfo(contract.inputs.legal_mask, "bool", (None, size)))
    outputs = [TensorInfo(contract.outputs.logits, "float32", (None, size))]
    if contract.outputs.value:
        numbers = 1 if contract.outputs.value.order == "score" else 3
        outputs.append(TensorInfo(contract.outputs.value.name, "float32", (None, numbers)))
    return inputs, outputs
