"""Checks a network against its contract, when a model loads and in `movemask models check`.

A step passes with a finding or fails with an error. A model that fails a step is not served.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.moves import uci_of
from movemask.board.position import Position, board_of
from movemask.encoding.vocabulary import slot_name
from movemask.errors import ContractError, InferenceFailed, ModelError, MoveOutsideVocabulary
from movemask.network.model import Batch, Model, Outputs, TensorInfo, expected_tensors
from movemask.policy.ragged import Index

#: Castling, promotions, en passant and checks for both sides. Only eight, since every start of the service runs them.
CHECK_FENS = (
    chess.STARTING_FEN,
    "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1",
    "r3k2r/pppq1ppp/2npbn2/2b1p3/2B1P3/2NPBN2/PPPQ1PPP/R3K2R w KQkq - 6 8",
    "r3k2r/pppq1ppp/2npbn2/2b1p3/2B1P3/2NPBN2/PPPQ1PPP/R3K2R b KQkq - 7 8",
    "1n5k/P4ppp/8/3pP3/8/8/1p3PPP/2N4K w - d6 0 30",
    "1n5k/P4ppp/8/8/3pP3/8/1p3PPP/2N4K b - e3 0 30",
    "4k3/8/8/8/8/8/4q3/4K3 w - - 0 60",
    "8/8/8/4k3/8/8/4P3/4K3 w - - 99 120",
)

#: Positions in which White is a queen and a rook up. Mirrored, Black is.
WON = (
    "4k3/8/8/8/8/8/3QR3/4K3 w - - 0 40",
    "6k1/5ppp/8/8/8/8/1Q3PPP/1R4K1 w - - 0 30",
    "r5k1/5ppp/8/8/8/8/1Q3PPP/RR4K1 w - - 0 30",
)

#: The value is read wrongly (its order, or its point of view with Black) if the mean score of lost positions is above
#: that of won positions by more than this, on a scale of 0 to 1.
INVERTED = 0.1
#: Largest difference, relative and absolute, between a position's logits in a batch and in a run of its own.
TOLERANCE = 1e-2
_FLOATS = {"float32", "float16", "float64"}
#: Types of the input for the legal mask.
_MASKS = _FLOATS | {"bool", "uint8", "int32", "int64"}
#: Numbers are probabilities if none is negative and their sum differs from 1 by at most this much.
_SUM_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the check and its result."""

    name: str
    passed: bool
    found: str


def check(model: Model) -> tuple[Step, ...]:
    """Returns the results of the steps, up to the first failure. Later steps rely on earlier ones."""
    steps: list[Step] = []
    for name, run in _STEPS:
        try:
            steps.append(Step(name, True, run(model)))
        except ModelError as error:
            steps.append(Step(name, False, str(error)))
            break
    return tuple(steps)


def _probes(model: Model) -> Batch:
    try:
        return model.whole_batch([Position.read(fen) for fen in CHECK_FENS])
    except MoveOutsideVocabulary as error:
        raise ContractError(
            f"{error}: correct contract.vocabulary; if the network has none for it, write incomplete = true into "
            "[contract]"
        ) from None


def _tensors(model: Model) -> str:
    inputs, outputs = expected_tensors(model.contract)
    _check_tensors("input", inputs, model.session.inputs)
    _check_lines(model)
    _check_tensors("output", outputs, model.session.outputs)
    unfed = {info.name for info in model.session.inputs} - {info.name for info in inputs}
    if unfed:
        raise ContractError(
            f"the network has inputs that the contract does not feed: {', '.join(sorted(unfed))}"
        )
    return f"{len(inputs)} inputs and {len(outputs)} outputs by name, shape and type"


def _outputs(model: Model) -> str:
    batch = _probes(model)
    for name, planes in model.feeds(batch).items():
        if not np.isfinite(planes).all():
            raise ContractError(f"input {name!r}: {model.encoder.name} gives NaN or infinity")
    try:
        outputs = model.run(batch)
    except InferenceFailed:
        for position in batch.positions:
            _run_alone(model, position)
        raise ContractError(
            f"each of {len(batch)} positions runs alone, and all together do not, though the batch is declared as "
            "variable: it is fixed at 1 inside. `movemask models add` tries to free it; or export it with a variable "
            "batch"
        ) from None
    _refuse_nonfinite(model, batch, outputs)
    logits = outputs.logits
    legal = _legal(batch, 0)
    if (logits[:, legal] == logits[0, legal]).all():
        raise ContractError("every position gets the same logits: the network ignores its input")
    return f"finite logits of {len(batch.codes)} legal moves in {len(batch)} positions, each in a separate slot"


def _batches(model: Model) -> str:
    batch = _probes(model)
    together, again = model.run(batch), model.run(batch)
    try:
        _run_alone(model, batch.positions[0])
    except InferenceFailed:
        raise ContractError(
            f"{len(batch)} positions run together, and one alone does not: its batch is fixed at {len(batch)} inside; "
            "export it with a variable batch"
        ) from None
    for row, probe in enumerate(batch.positions):
        legal = _legal(batch, row)
        if not np.array_equal(together.logits[row, legal], again.logits[row, legal]):
            raise ContractError(
                f"the same batch gets different logits the second time, in {probe.fen!r}"
            )
        alone = model.run(model.whole_batch([probe])).logits[0, legal]
        if not np.allclose(alone, together.logits[row, legal], rtol=TOLERANCE, atol=TOLERANCE):
            raise ContractError(
                f"the same position gets different logits alone than in a batch of {len(batch)}: {probe.fen!r}"
            )
    return f"the same logits twice, and alone as in a batch of {len(batch)}"


def _run_alone(model: Model, position: Position) -> None:
    """Runs the network for a single position. Raises InferenceFailed, which names the position."""
    try:
        model.run(model.whole_batch([position]))
    except InferenceFailed as error:
        raise InferenceFailed(f"{error}, in {position.fen!r}") from None


def _refuse_nonfinite(model: Model, batch: Batch, outputs: Outputs) -> None:
    """Raises ContractError for the first position with a NaN or an infinity, in a legal logit or in the value."""
    names = model.contract.outputs
    for row, position in enumerate(batch.positions):
        logits = np.asarray(outputs.logits[row, _legal(batch, row)], dtype=np.float64)
        wrong = np.flatnonzero(~np.isfinite(logits))
        fault = None
        if len(wrong):
            (move,) = uci_of(batch.codes[batch.legal(row)][wrong[:1]])
            fault = f"{names.logits!r} holds {logits[wrong[0]]} for the legal move {move}"
        elif outputs.value is not None and np.isnan(outputs.value[row]).any():
            assert names.value is not None
            fault = f"{names.value.name!r}, the value, holds NaN or infinity"
        if fault:
            raise ContractError(
                f"output {fault} in {position.fen!r}: correct the network, no contract can"
            )


def _legal(batch: Batch, row: int) -> Index:
    """Returns the legal slots of one position."""
    return batch.slots[batch.legal(row)]


def check_value(model: Model) -> str:
    """Returns the scores of won and lost positions, in words.

    Raises ContractError if won positions score clearly below lost ones, or if probabilities are
    declared as logits.
    """
    value = model.contract.outputs.value
    if value is None:
        return "no value"
    if value.softmaxed is False:
        (raw,) = model.session.run(model.feeds(_probes(model)), [value.name])
        if (raw >= 0).all() and np.allclose(raw.sum(axis=1), 1, atol=_SUM_TOLERANCE):
            raise ContractError(
                f"outputs.value.softmaxed: the three numbers of {value.name!r} are probabilities already, not logits: "
                "write softmaxed = true"
            )
    won, lost = _score(model, chess.WHITE, ahead=True), _score(model, chess.WHITE, ahead=False)
    if lost > won + INVERTED:
        raise ContractError(
            f"outputs.value: won positions score {won:.2f} and lost ones {lost:.2f}, on a scale of 0 to 1: "
            "check outputs.value.order and outputs.value.point_of_view"
        )
    black_won = _score(model, chess.BLACK, ahead=True)
    black_lost = _score(model, chess.BLACK, ahead=False)
    if black_lost > black_won + INVERTED:
        other = "white" if value.point_of_view == "side_to_move" else "side_to_move"
        raise ContractError(
            f"outputs.value: with Black to move, won positions score {black_won:.2f} and lost ones {black_lost:.2f}: "
            f"is outputs.value.point_of_view {other!r}?"
        )
    return f"won positions score {won:.2f}, lost {lost:.2f}; with Black to move {black_won:.2f} and {black_lost:.2f}"


def _score(model: Model, turn: chess.Color, *, ahead: bool) -> float:
    """Returns the mean expected score of the side to move, which is ahead or behind in material."""
    boards = [board_of(fen) if turn == ahead else board_of(fen).mirror() for fen in WON]
    for board in boards:
        board.turn = turn
    batch = model.whole_batch([Position(board) for board in boards])
    outputs = model.run(batch)
    _refuse_nonfinite(model, batch, outputs)
    return float(expected_score(outputs).mean())


def expected_score(evaluation: Outputs) -> NDArray[np.float64]:
    """Returns the expected score of the side to move, 0 to 1: outputs with a value → `[B]`."""
    value = evaluation.value
    assert value is not None
    return value[:, 0] if value.shape[1] == 1 else value[:, 0] + value[:, 1] / 2


_STEPS: tuple[tuple[str, Callable[[Model], str]], ...] = (
    ("tensors", _tensors),
    ("outputs", _outputs),
    ("batches", _batches),
    ("value", check_value),
)


def _check_tensors(role: str, expected: Sequence[TensorInfo], actual: Sequence[TensorInfo]) -> None:
    by_name = {info.name: info for info in actual}
    for info in expected:
        if info.name not in by_name:
            raise ContractError(
                f"the contract names the {role} {info.name!r}; the network has {', '.join(by_name)}"
            )
        got = by_name[info.name]
        dtypes = {"bool": _MASKS}.get(info.dtype, {info.dtype}) if role == "input" else _FLOATS
        if got.dtype not in dtypes:
            raise ContractError(
                f"{role} {info.name!r} is {got.dtype}; the contract takes {info.dtype} (`movemask models add` puts a "
                "Cast into a network where that is all)"
            )
        shape = info.shape
        if role == "output" and shape == (None, 1) and len(got.shape) == 1:
            shape = (None,)  # a score may be [B] instead of [B, 1]
        sizes = zip(shape, got.shape, strict=False)
        if len(got.shape) != len(shape) or any(None not in (a, b) and a != b for a, b in sizes):
            raise ContractError(
                f"{role} {info.name!r} is {_shape(got.shape)}; the contract asks for {_shape(shape)}"
            )
        if got.shape[0] is not None:
            raise ContractError(
                f"{role} {info.name!r} has a fixed batch of {got.shape[0]}; export it with a variable batch"
            )


def _check_lines(model: Model) -> None:
    """Raises ContractError if a file of moves has other lines than the network has logits."""
    file, logits = model.contract.terms.moves_file, model.contract.outputs.logits
    sizes = [
        info.shape[1] for info in model.session.outputs if info.name == logits and info.shape[1:]
    ]
    if file is None or sizes in ([], [None], [len(file.entries)]):
        return
    last, lines = file.entries[-1], len(file.entries)
    raise ContractError(
        f"contract.vocabulary: {file.name} has {lines} lines, and output {logits!r} has {sizes[0]} logits: its last, "
        f"line {lines}, is {'blank' if last is None else slot_name(*last)}"
    )


def _shape(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("B" if size is None else str(size) for size in shape) + "]"
