"""The mistakes that the diagnosis knows: ways to read a network that differ from its contract in one thing.

A mistake in the contract can be mended there, and the advice names the key. A mistake in the network itself cannot:
`Altered` undoes it by changing inputs or outputs, and the advice says how the export is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, permutations

import numpy as np

from movemask.encoding.encoders import plane_encoder
from movemask.encoding.lc0 import HistoryFill
from movemask.encoding.variations import variation, variation_names
from movemask.encoding.vocabularies import vocabulary, vocabulary_names
from movemask.encoding.vocabulary import Vocabulary
from movemask.network.contract import Contract
from movemask.network.model import Array, Model, Session, TensorInfo
from movemask.policy.ragged import Index

Change = Callable[[Array], Array]

#: The tag of the probes that reveal each variation.
_SHOWS_IN = {
    "castling_slot": "castling",
    "bare_promotion": "promotion",
    "promotion_order": "promotion",
    "slots_unmirrored": "general_black",
    "slots_rotated": "general_black",
    "planes_unmirrored": "general_black",
    "planes_rotated": "general_black",
    "castling_planes": "rights",
    "clock_scale": "clock",
    "no_side_plane": "opening_black",
    "en_passant_unflipped": "en_passant",
    "no_ones_plane": "general",
    "no_history": "general",
}
#: Variations with which no network can be served, and why, after the vocabulary's name.
_UNREADABLE = {
    "slots_unmirrored": "has no slots for Black's promotions: export it with Black's moves mirrored (square ^ 56)",
}
#: Wrong numberings of a board's squares. Each is its own inverse.
_BOARDS: dict[str, Callable[[int], int]] = {
    "mirrored left to right": lambda square: square ^ 7,
    "upside down": lambda square: square ^ 56,
    "turned around": lambda square: square ^ 63,
    "transposed": lambda square: (square & 7) << 3 | square >> 3,
}
#: Planes per block, and number of blocks of history. The first twelve planes of a block are pieces.
_BLOCKS = {
    "lc0-112": (13, 8),
    "maia2-18": (12, 1),
    "maia3-tokens-12": (12, 1),
    "maia3-tokens-96": (12, 8),
    "movemask-tokens-99": (12, 8),
    "pgx-119": (14, 8),
}
_PIECES = {
    **{
        f"{'PNBRQK'[a]} and {'PNBRQK'[b]} exchanged": tuple(
            {a: b, b: a}.get(place % 6, place % 6) + place // 6 * 6 for place in range(12)
        )
        for a, b in combinations(range(6), 2)
    },
    "K Q R B N P": (*range(5, -1, -1), *range(11, 5, -1)),
    "of the opponent first": (*range(6, 12), *range(6)),
}
#: Undo each mistake: the block to take in each of the eight places.
_HISTORIES = {
    "oldest first": tuple(range(7, -1, -1)),
    "without the newest": (0, *range(7)),
    "with the newest twice": (0, *range(2, 8), 7),
    "every second position": tuple(block // 2 for block in range(8)),
}
_RATINGS: dict[str, Change] = {
    **{f"{shift:+d}": partial(np.add, -shift) for shift in (-400, -200, 200, 400)},
    "inverted": lambda ratings: 3000 - ratings,
    "in hundreds": lambda ratings: ratings / 100,
    "in thousands": lambda ratings: ratings / 1000,
}
#: Networks trained on people's games fit people's moves best at a temperature within this factor of 1.
_USUAL = 1.3


@dataclass(frozen=True, slots=True)
class Reorder:
    """Takes the numbers of a tensor in another order: `indices` along an axis of the tensor as `[B, *shape]`."""

    shape: tuple[int, ...]
    axis: int
    indices: tuple[int, ...]

    @classmethod
    def of_outputs(cls, indices: Index) -> Reorder:
        """Of an output `[B, A]`."""
        return cls((len(indices),), 1, tuple(indices.tolist()))

    def __call__(self, array: Array) -> Array:
        flat = array.reshape(len(array), *self.shape)
        return np.take(flat, self.indices, axis=self.axis).reshape(array.shape)


@dataclass(frozen=True)
class Altered:
    """A session that changes its network's inputs and outputs, by name."""

    session: Session
    changes: Mapping[str, Change]

    @property
    def runs(self) -> int:
        return self.session.runs

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        return self.session.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return self.session.outputs

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        changed = {name: self._changed(name, array) for name, array in feeds.items()}
        arrays = self.session.run(changed, outputs)
        return [self._changed(name, array) for name, array in zip(outputs, arrays, strict=True)]

    def _changed(self, name: str, array: Array) -> Array:
        return (
            np.ascontiguousarray(self.changes[name](array), array.dtype)
            if name in self.changes
            else array
        )


@dataclass(frozen=True, slots=True)
class Alternative:
    """A way to read a network. `advice` says what to do if it fits better.

    shows_in : the tag of the probes that reveal it; None for all probes
    bare : whether it is evaluated on positions without their history
    judged_by : the evidence that counts; not leakage for a scale, since any factor above 1 lowers leakage
    """

    name: str
    contract: Contract
    advice: str
    shows_in: str | None = "general"
    changes: Mapping[str, Change] = field(default_factory=dict)
    bare: bool = False
    judged_by: tuple[str, ...] = ("leakage", "moves", "result")

    def reading(self, model: Model) -> Model:
        """Returns the model, reading its network in this way."""
        session = Altered(model.session, self.changes) if self.changes else model.session
        return Model(model.name, model.digest, self.contract, session)


def alternatives(
    contract: Contract, scale: float = 1.0, *, probabilities: bool = False
) -> Iterator[Alternative]:
    """Yields every way to read this contract's network that differs from the contract in one thing.

    Parameters
    ----------
    scale : best factor for the logits, fitted to moves that people played
    probabilities : whether the logits look like probabilities
    """
    yield from _contracts(contract)
    yield from _values(contract)
    for name, reorder in reorderings(contract).items():
        advice = (
            f"the network has its {name}: no key of the contract says so; correct its export, or run `movemask models "
            f'add FILE --reorder "{name}"`'
        )
        if name.startswith("value"):
            yield Alternative(name, contract, advice, None, reorder, judged_by=("result",))
        else:
            shows_in = "promotion" if name.startswith("promotion") else "general"
            yield Alternative(name, contract, advice, shows_in, reorder)
    for name, cure, changes in _changes(contract, scale, probabilities=probabilities):
        advice = f"the network's {name.replace(' ', ' seem to be ', 1)}: {cure}"
        shows_in = "ratings" if name.startswith("ratings") else "general"
        judged_by = ("moves",) if " multiplied" in name else ("leakage", "moves", "result")
        yield Alternative(name, contract, advice, shows_in, changes, judged_by=judged_by)


def _contracts(contract: Contract) -> Iterator[Alternative]:
    terms, words = contract.terms, contract.terms.unvaried_vocabulary
    for name in variation_names():
        if variation(name).applies(terms.planes, words):
            declared = name in terms.variations
            names = (
                tuple(n for n in terms.variations if n != name)
                if declared
                else (*terms.variations, name)
            )
            changed = _changed(contract, "terms", variations=names)
            advice = f"{'not ' if declared else ''}trained with {variation(name).words}: "
            if declared or name not in _UNREADABLE:
                advice += f'take "{name}" out of' if declared else f'add "{name}" to'
                advice += " contract.variations"
            else:
                advice += (
                    f"no contract reads such a network, since {words.name} {_UNREADABLE[name]}"
                )
            yield Alternative(
                f"without {name}" if declared else name, changed, advice, _SHOWS_IN[name]
            )
    for other in vocabulary_names():
        if other != words.name and len(vocabulary(other)) == len(words):
            changed = _changed(contract, "terms", vocabulary=other, variations=(), perspective=None)
            yield Alternative(
                f"vocabulary = {other}", changed, f'write contract.vocabulary = "{other}"'
            )
    if terms.planes == "lc0-112":
        for fill in HistoryFill:
            if fill is not terms.history_fill:
                changed = _changed(contract, "terms", history_fill=fill)
                advice = f'write contract.history_fill = "{fill.value}"'
                yield Alternative(f"history_fill = {fill.value}", changed, advice, bare=True)
    inputs = contract.inputs
    if inputs.elo_self is not None and inputs.elo_opponent is not None:
        changed = _changed(
            contract, "inputs", elo_self=inputs.elo_opponent, elo_opponent=inputs.elo_self
        )
        yield Alternative(
            "ratings swapped", changed, "swap inputs.elo_self and inputs.elo_opponent", "ratings"
        )


def _values(contract: Contract) -> Iterator[Alternative]:
    value = contract.outputs.value
    if value is None:
        return

    def changed(**update: object) -> Contract:
        return _changed(contract, "outputs", value=value.model_copy(update=update))

    if value.order != "score":
        declared = value.order.split("_")
        for actual in permutations(declared):
            order = "_".join(actual)
            if order in ("win_draw_loss", "loss_draw_win") and order != value.order:
                advice = f'write outputs.value.order = "{order}"'
                yield Alternative(
                    f"value order {order}",
                    changed(order=order),
                    advice,
                    None,
                    judged_by=("result",),
                )
        softmaxed = not value.softmaxed
        advice = f"write outputs.value.softmaxed = {str(softmaxed).lower()}"
        name = "value as probabilities" if softmaxed else "value as logits"
        yield Alternative(name, changed(softmaxed=softmaxed), advice, None, judged_by=("result",))
    view = "white" if value.point_of_view == "side_to_move" else "side_to_move"
    advice = f'write outputs.value.point_of_view = "{view}"'
    yield Alternative(
        f"value for {view}",
        changed(point_of_view=view),
        advice,
        "general_black",
        judged_by=("result",),
    )


def _changed(contract: Contract, section: str, **update: object) -> Contract:
    return contract.model_copy(
        update={section: getattr(contract, section).model_copy(update=update)}
    )


def reorderings(contract: Contract) -> dict[str, dict[str, Reorder]]:
    """Returns the mistakes in a network that another order of its numbers undoes: by name, and then by tensor."""
    planes, logits, encoder = contract.inputs.planes, contract.outputs.logits, contract.terms.planes
    words, reorders = contract.terms.slots, dict[str, dict[str, Reorder]]()
    if encoder in _BLOCKS:
        shape = plane_encoder(encoder).shape
        size, count = _BLOCKS[encoder]
        total = int(np.prod(shape)) // 64
        first = shape[-2:] == (8, 8)  # `[B, C, 8, 8]`, otherwise `[B, 8, 8, C]` or `[B, 64, C]`
        flat = (total, 64) if first else (64, total)
        across, along = (1, 2) if first else (2, 1)
        for name, square in _BOARDS.items():
            board = {planes: Reorder(flat, along, tuple(square(place) for place in range(64)))}
            moves = {logits: _slots(words, _both(square))}
            reorders[f"planes {name}"] = board
            reorders[f"slots {name}"] = moves
            reorders[f"planes and slots {name}"] = board | moves
        for name, pieces in _PIECES.items():
            order = list(range(total))
            for start in range(0, size * count, size):
                order[start : start + 12] = [start + place for place in pieces]
            reorders[f"piece planes {name}"] = {planes: Reorder(flat, across, tuple(order))}
        for name, blocks in _HISTORIES.items() if count == 8 else ():
            order = [size * block + place for block in blocks for place in range(size)]
            order += range(size * count, total)
            reorders[f"history planes {name}"] = {planes: Reorder(flat, across, tuple(order))}
    slots = len(words)
    swapped = _slots(words, lambda source, target: (target, source))
    reorders["slots with from and to exchanged"] = {logits: swapped}
    by_name = np.argsort(np.argsort(words.names()))
    reorders["slots in alphabetical order"] = {logits: Reorder.of_outputs(by_name)}
    promotions = np.flatnonzero(words.columns[2])
    for shift in (1, -1):
        whole, rolled = np.roll(np.arange(slots), -shift), np.arange(slots)
        rolled[promotions] = np.roll(promotions, -shift)
        reorders[f"slots off by {shift}"] = {logits: Reorder.of_outputs(whole)}
        if len(promotions):
            reorders[f"promotion slots off by {shift}"] = {logits: Reorder.of_outputs(rolled)}
    value = contract.outputs.value
    if value is not None and value.order != "score":
        declared = value.order.split("_")
        for actual in permutations(declared):
            name = "_".join(actual)
            if name not in ("win_draw_loss", "loss_draw_win"):
                places = [actual.index(outcome) for outcome in declared]
                reorders[f"value order {name}"] = {value.name: Reorder.of_outputs(np.array(places))}
    return reorders


def _changes(
    contract: Contract, scale: float, *, probabilities: bool
) -> Iterator[tuple[str, str, dict[str, Change]]]:
    """Mistakes in the network itself that no order undoes: their names, cures, and the changes that undo them."""
    logits = contract.outputs.logits
    yield "logits negated", "negate its output", {logits: np.negative}
    if probabilities:
        yield (
            "logits probabilities",
            "export it without the softmax, or let `movemask models add` put a Log into it",
            {logits: lambda p: np.log(np.maximum(p, np.finfo(np.float32).tiny))},
        )
    elif not 1 / _USUAL < scale < _USUAL:
        yield (
            f"logits multiplied by {1 / scale:.2g}",
            f"divide its output by {1 / scale:.2g}",
            {logits: lambda z: z * scale},
        )
    ratings = [
        name
        for name in (contract.inputs.elo_self, contract.inputs.elo_opponent)
        if name is not None
    ]
    for name, change in _RATINGS.items() if ratings and not contract.elo.edges else ():
        cure = "change its rating inputs so that it takes the ratings themselves"
        yield f"ratings {name}", cure, dict.fromkeys(ratings, change)


def _both(square: Callable[[int], int]) -> Callable[[int, int], tuple[int, int]]:
    return lambda source, target: (square(source), square(target))


def _slots(words: Vocabulary, moved: Callable[[int, int], tuple[int, int]]) -> Reorder:
    """Reads each slot's logit from its moved move's slot, or from itself if there is none."""
    order: Index = np.arange(len(words))
    for slot, entry in enumerate(words.entries):
        if entry is not None:
            source, target = moved(*entry[:2])
            moved_slot = words.lookup[(entry[2] or 0) << 12 | source << 6 | target]
            order[slot] = moved_slot if moved_slot >= 0 else slot
    return Reorder.of_outputs(order)
