"""Finds a network's family by the shapes of its tensors, and the changes that its graph needs to
fit a contract.

Shapes come first, types second. An export may differ from its family only in a type or in a layout:

- a type: float16 planes, int32 ratings
- a layout: `[B, 8, 8, 112]` for `[B, 112, 8, 8]`, a policy of `[B, 73, 8, 8]` for `[B, 4672]`,
  ratings of `[B, 1]`

Each such difference is a `Change`, which `network_tools.rewriting` writes into the graph. Sizes
that the file leaves open are taken from a run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from movemask.board.position import Position, boards_of
from movemask.encoding.encoders import PlaneEncoder, plane_encoder, plane_encoder_names
from movemask.encoding.vocabularies import vocabulary_names
from movemask.errors import ContractError, ModelError
from movemask.network.check import CHECK_FENS
from movemask.network.model import Array, Session, TensorInfo
from movemask.network_tools.families import FAMILIES, MIXED, Family, chosen_families

Shape = tuple[int | None, ...]

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
WHOLES = frozenset(
    {"bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"}
)
#: Types of outputs that are read without a Cast.
READ = frozenset({"float32", "float16", "float64"})

#: Vocabularies whose slots are numbered by square and plane, square first.
_BY_SQUARE = {"alphazero-4672": (64, 73)}


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between a tensor of the contract and a tensor of the file, and the operators that bridge it.

    at : `input` or `output`
    actual, required : the tensor in the file, and the tensor that the contract takes; both have the same name
    order : permutation of the axes after the batch; empty for no transposition
    scaled : factor and summand for an output
    log : whether an output holds probabilities; their logarithms are the logits

    An input is transposed, reshaped and cast. An output is cast, transposed, reshaped, and then scaled or made logits.
    """

    at: str
    actual: TensorInfo
    required: TensorInfo
    order: tuple[int, ...] = ()
    scaled: tuple[float, float] | None = None
    log: bool = False

    @property
    def steps(self) -> tuple[str, ...]:
        """ONNX names of the operators, in order; empty if only the declared shape changes."""
        source, target = (
            (self.required, self.actual) if self.at == "input" else (self.actual, self.required)
        )
        shape = (
            tuple(source.shape[1:][axis] for axis in self.order) if self.order else source.shape[1:]
        )
        moved = ["Transpose"] if self.order else []
        sizes = target.shape[1:]
        if self.actual.shape and None not in (*shape, *sizes) and shape != sizes:
            moved.append("Reshape")
        cast = [f"Cast to {target.dtype}"] if source.dtype != target.dtype else []
        last = (
            ["Log"]
            if self.log
            else [f"{self.scaled[0]:g} x {self.scaled[1]:+g}"]
            if self.scaled
            else []
        )
        return (*moved, *cast) if self.at == "input" else (*cast, *moved, *last)

    @property
    def note(self) -> str | None:
        """A line for the user; None if the graph gets no operator."""
        if not self.steps:
            return None
        source, target = (
            (self.required, self.actual) if self.at == "input" else (self.actual, self.required)
        )
        return (
            f"put into the graph at {self.at} {self.actual.name!r}: {', '.join(self.steps)} "
            f"({_form(source)} → {_form(target)})"
        )

    def of_input(self, values: Array) -> Array:
        """Returns an input's values in the form that the file takes, to try it before the graph is changed."""
        shape = (
            tuple(values.shape[1:][axis] for axis in self.order) if self.order else values.shape[1:]
        )
        moved = values.transpose(0, *(axis + 1 for axis in self.order)) if self.order else values
        sizes = [size or shape[axis] for axis, size in enumerate(self.actual.shape[1:])] or list(
            shape
        )
        return np.ascontiguousarray(moved.reshape(len(values), *sizes), dtype=self.actual.dtype)


@dataclass(frozen=True, slots=True)
class Fit:
    """The family chosen for a network, with the names of its planes and of the outputs that may be the policy.

    It is one that the user chose, or else the only one that fits.

    named : whether the user chose the family
    shapes : the tensors of the file, in words
    """

    family: Family
    encoder: PlaneEncoder
    planes: str
    policies: tuple[str, ...]
    changes: tuple[Change, ...]
    named: bool
    shapes: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    family: Family
    encoder: PlaneEncoder
    planes: Change
    policies: tuple[Change, ...]
    outputs: Mapping[str, Shape]  # shapes seen in a run; empty without a run


class UnknownFamily(ContractError):
    """No family fits the network, or several do."""


def fitted(session: Session, families: Sequence[Family] = ()) -> Fit:
    """Returns the network's family: one of `families`, or else of the known ones.

    If no known family fits, it may be the planes of one with the vocabulary of another. Raises UnknownFamily, which
    lists the tensors, or ContractError.
    """
    for info in session.inputs:
        if info.shape and info.shape[0] is not None:
            if info.shape in {plane_encoder(known).shape for known in plane_encoder_names()}:
                raise ContractError(
                    f"input {info.name!r} is {_form(info)}: it has no batch; export it with one"
                )
            raise ContractError(
                f"input {info.name!r} has a fixed batch of {info.shape[0]}; export it with a variable batch"
            )
    chosen = _chosen(session, families)
    declared = {info.name: info for info in (*session.inputs, *session.outputs)}
    rest = [info for info in session.inputs if info.name != chosen.planes.actual.name]
    changes = [
        chosen.planes,
        *chosen.policies,
        *_ratings(rest, chosen.family, named=bool(families)),
    ]
    _refuse_types(chosen)
    for info in session.outputs:
        shape = chosen.outputs.get(info.name, info.shape)
        if all(info.name != change.actual.name for change in chosen.policies):
            expected = _without_ones(shape)
            if (expected in ((None, 3), (None, 1)) and expected != info.shape) or (
                expected in ((None, 3), (None, 1), (None,)) and info.dtype not in READ
            ):
                dtype = info.dtype if info.dtype in READ else "float32"
                actual = replace(info, shape=shape)
                changes.append(Change("output", actual, TensorInfo(info.name, dtype, expected)))
    return Fit(
        chosen.family,
        chosen.encoder,
        chosen.planes.actual.name,
        tuple(change.actual.name for change in chosen.policies),
        tuple(change for change in changes if declared[change.actual.name] != change.required),
        bool(families),
        shapes(session),
    )


def _chosen(session: Session, families: Sequence[Family]) -> _Candidate:
    known = families or [family for family in FAMILIES.values() if family.name != "maia1"]
    chosen = _candidates(session, known)
    if not chosen and not families:
        chosen = _candidates(session, chosen_families(None, None, {}))
    if len(chosen) == 1:
        return chosen[0]
    if not chosen:
        raise UnknownFamily(_nothing_fits(session, families))
    inputs = dict.fromkeys(f"{fit.planes.actual.name!r} as {fit.encoder.name}" for fit in chosen)
    names = dict.fromkeys(fit.family.name for fit in chosen)
    words = dict.fromkeys(fit.family.vocabulary for fit in chosen)
    advice = "say which with --planes"
    if len(words) > 1:
        advice = f"say which with --vocabulary: {', '.join(words)}"
    if len(names) > 1:
        advice = "say which with --contract"
    fits = "it can be read in several ways" if MIXED in names else f"fits {', '.join(names)}"
    raise UnknownFamily(f"{fits} (input {', '.join(inputs)}): {advice}; it has {shapes(session)}")


def _candidates(session: Session, families: Sequence[Family]) -> list[_Candidate]:
    """Returns the ways in which families fit; those that their declared shapes tell, if there are such."""
    candidates: list[_Candidate] = []
    for family in families:
        for encoder in map(plane_encoder, family.planes):
            for info in session.inputs:
                fits = (_fit(session, family, encoder, way) for way in _ways_in(encoder, info))
                candidates += [candidate for candidate in fits if candidate is not None][:1]
    return [candidate for candidate in candidates if not candidate.outputs] or candidates


def _fit(
    session: Session, family: Family, encoder: PlaneEncoder, planes: Change
) -> _Candidate | None:
    """Returns the family as a candidate if the planes go in this way; None if not.

    Open sizes are found in a run.
    """
    policies = tuple(_ways_out(family, session.outputs))
    if policies and None not in planes.actual.shape[1:] and planes.actual.shape:
        return _Candidate(family, encoder, planes, policies, {})
    open_sizes = [info for info in session.outputs if None in info.shape[1:] or not info.shape]
    if not policies and not open_sizes:
        return None
    try:
        outputs = _run(session, encoder, planes)
    except (ModelError, ValueError, TypeError):  # the network does not take the planes in this form
        return None
    known = [replace(info, shape=outputs[info.name]) for info in session.outputs]
    policies = tuple(_ways_out(family, known))
    return _Candidate(family, encoder, planes, policies, outputs) if policies else None


def _run(session: Session, encoder: PlaneEncoder, planes: Change) -> dict[str, Shape]:
    """Returns the outputs' shapes for two positions, with ratings of 0."""
    positions = [Position.read(fen) for fen in CHECK_FENS[:2]]
    feeds = {
        planes.actual.name: planes.of_input(encoder.encode_all(positions, boards_of(positions)))
    }
    for info in session.inputs:
        if info.name != planes.actual.name:
            feeds[info.name] = np.zeros(
                (2, *(size or 1 for size in info.shape[1:])), dtype=info.dtype
            )
    names = [info.name for info in session.outputs]
    arrays = session.run(feeds, names)
    return {name: (None, *array.shape[1:]) for name, array in zip(names, arrays, strict=True)}


def _ways_in(encoder: PlaneEncoder, info: TensorInfo) -> Iterator[Change]:
    """Yields the ways in which an input may take these planes. The encoder's own layout comes first."""
    required = TensorInfo(info.name, encoder.dtype, (None, *encoder.shape))
    if not info.shape:  # the file does not declare the rank
        yield Change("input", info, required)
        return
    for order in _orders(encoder.shape):
        shape = tuple(encoder.shape[axis] for axis in order) if order else encoder.shape
        flat = not order and info.shape[1:] == (math.prod(shape),)
        if flat or _same_layout(shape, info.shape[1:]):
            yield Change("input", info, required, order)


def _ways_out(family: Family, outputs: Sequence[TensorInfo]) -> Iterator[Change]:
    """Yields how each output that may be the family's policy becomes `[B, A]`."""
    size = len(family.slots)
    by_square = _BY_SQUARE.get(family.vocabulary)
    for info in outputs:
        shape = info.shape[1:]
        if None in shape or not info.shape:
            continue
        required = TensorInfo(
            info.name, info.dtype if info.dtype in READ else "float32", (None, size)
        )
        if _without_ones(info.shape) == (None, size):
            yield Change("output", info, required)
        elif by_square is not None:
            for order in _orders(shape):
                moved = tuple(shape[axis] for axis in order) if order else shape
                if _same_layout(by_square, moved):
                    yield Change("output", info, required, order)
                    break


def _orders(shape: Sequence[int | None]) -> tuple[tuple[int, ...], ...]:
    """Returns the orders of axes that exporters use: unchanged, channels last, channels first."""
    return {3: ((), (1, 2, 0), (2, 0, 1)), 2: ((), (1, 0))}.get(len(shape), ((),))


def _same_layout(shape: Sequence[int | None], other: Sequence[int | None]) -> bool:
    """Returns whether two shapes hold the same squares.

    64 stands for 8 x 8, axes of 1 are ignored, and None fits any size.
    """
    if len(shape) == len(other) and all(
        None in (a, b) or a == b for a, b in zip(shape, other, strict=True)
    ):
        return True
    return None not in other and _squares(shape) == _squares(other)


def _squares(shape: Sequence[int | None]) -> list[int | None]:
    return [part for size in shape if size != 1 for part in ((8, 8) if size == 64 else (size,))]


def _without_ones(shape: Shape) -> Shape:
    """Returns the shape without axes of 1 after the batch. One number with axes becomes `[B, 1]`."""
    rest = tuple(size for size in shape[1:] if size != 1)
    return (*shape[:1], *(rest or shape[1:2]))


def _ratings(inputs: Sequence[TensorInfo], family: Family, *, named: bool) -> Iterator[Change]:
    """Yields the changes of the rating inputs. Raises ContractError that names a type that cannot be fed."""
    edges = "edges" in (family.elo or {})
    for info in inputs:
        if _without_ones(info.shape) not in ((None,), (None, 1), (None, None), ()):
            continue  # not a rating; `guess` reports it
        whole = info.dtype in WHOLES
        if not whole and info.dtype not in FLOATS:
            raise ContractError(
                f"input {info.name!r} is {info.dtype}; export ratings as float32 or int64"
            )
        if edges and not whole and not named:
            raise ContractError(
                f"a network of the family {family.name} by its shapes, but its ratings {info.name!r} are {info.dtype}, "
                f"and {family.name} takes the numbers of its buckets, int64: export them so, or say with "
                f"--contract {family.name} that the network takes the ratings themselves"
            )
        if whole and not edges and np.dtype(info.dtype).itemsize < 2:
            raise ContractError(
                f"input {info.name!r} is {info.dtype}, too small for ratings; export it as int64"
            )
        yield Change("input", info, TensorInfo(info.name, "int64" if whole else "float32", (None,)))


def _refuse_types(chosen: _Candidate) -> None:
    """Raises ContractError if the input's type cannot hold the planes, or if the logits are not floats."""
    info, encoder = chosen.planes.actual, chosen.encoder
    if info.dtype not in FLOATS | WHOLES:
        raise ContractError(
            f"input {info.name!r} is {encoder.name} by its shape, but {info.dtype}: export it as {encoder.dtype}"
        )
    if info.dtype in WHOLES:
        positions = [Position.read(fen) for fen in CHECK_FENS]
        planes = encoder.encode_all(positions, boards_of(positions))
        if not np.array_equal(planes.astype(info.dtype), planes):
            raise ContractError(
                f"input {info.name!r} is {encoder.name} by its shape, but {info.dtype}, which cannot hold its "
                f"numbers: export it as {encoder.dtype}"
            )
    for change in chosen.policies:
        if change.actual.dtype not in FLOATS:
            raise ContractError(
                f"output {change.actual.name!r} has the {chosen.family.vocabulary} logits by its shape, but as "
                f"{change.actual.dtype}: export it as float32"
            )


def _nothing_fits(session: Session, families: Sequence[Family]) -> str:
    """Returns why no family fits, starting with families whose input or output fits alone."""
    near = []
    for family in families or [family for family in FAMILIES.values() if family.name != "maia1"]:
        size = len(family.slots)
        inputs = [
            f"input {info.name!r} is {encoder.name} by its shape"
            for encoder in map(plane_encoder, family.planes)
            for info in session.inputs
            if None not in info.shape[1:] and any(True for _ in _ways_in(encoder, info))
        ]
        outputs = [change.actual.name for change in _ways_out(family, session.outputs)]
        if inputs and not outputs:
            near.append(f"{inputs[0]}, but no output has {size} numbers ({family.vocabulary})")
        elif outputs and not inputs:
            near.append(
                f"output {outputs[0]!r} has {size} numbers ({family.vocabulary}), but no input is its planes"
            )
    none_fits = "no known network family fits"
    if families:
        none_fits = f"not a network of the family {families[0].name!r}"
    if families and families[0].name == MIXED:
        none_fits = "it has no such planes and vocabulary"
    known = ", ".join(
        f"{plane_encoder(n).name} {list(plane_encoder(n).shape)}" for n in plane_encoder_names()
    )
    sizes = ", ".join(vocabulary_names())
    why = "".join(f"{reason}. " for reason in near)
    return f"{none_fits}: {why}It has {shapes(session)}. Inputs known: {known}; outputs: {sizes}"


def shapes(session: Session) -> str:
    """Returns the inputs and outputs, in words."""

    def listed(infos: Sequence[TensorInfo]) -> str:
        return ", ".join(f"{info.name} {_form(info)}" for info in infos)

    return f"inputs {listed(session.inputs)}; outputs {listed(session.outputs)}"


def _form(info: TensorInfo) -> str:
    return f"{info.dtype} [{', '.join('B' if size is None else str(size) for size in info.shape)}]"
