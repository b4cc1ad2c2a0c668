"""The mistakes that the diagnosis knows: ways to read a network that differ from the declared one in one thing.

Most are contracts, and the advice names the key to change. The others are in the network itself, where no key undoes
them, and small enough to pass for a right reading: its numbers are changed on their way (`Altered`), and the advice
says what its export mistook. Exchanged planes, squares or slots need no entry: they are no better than chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from movemask.encoding.lc0 import HistoryFill
from movemask.encoding.variations import variation, variation_names
from movemask.encoding.vocabularies import vocabulary, vocabulary_names
from movemask.network.contract import Contract
from movemask.network.model import Array, Model, Session, TensorInfo

Change = Callable[[Array], Array]

#: For each variation the tag of the probes that reveal it; few are enough for gross mistakes.
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
_RATINGS: dict[str, Change] = {
    "inverted": lambda ratings: 3000 - ratings,
    "in hundreds": lambda ratings: ratings / 100,
    "in thousands": lambda ratings: ratings / 1000,
}
#: Networks that learned from people are within this factor of the temperature that fits them best.
_USUAL = 1.3


@dataclass(frozen=True)
class Altered:
    """A session whose inputs and outputs are changed on their way, by name."""

    session: Session
    changes: Mapping[str, Change]

    @property
    def at_once(self) -> int:
        return self.session.at_once

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        return self.session.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return self.session.outputs

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        changed = {name: self._changed(name, array) for name, array in feeds.items()}
        found = self.session.run(changed, outputs)
        return [self._changed(name, array) for name, array in zip(outputs, found, strict=True)]

    def _changed(self, name: str, array: Array) -> Array:
        return np.ascontiguousarray(self.changes[name](array), array.dtype) if name in self.changes else array


@dataclass(frozen=True, slots=True)
class Alternative:
    """A way to read a network; `advice` says what to do if it fits better.

    shows_in : the tag of the probes that reveal it; None for all
    bare : evaluated on positions without their history
    judged_by : the evidence that tells; leakage falls with every factor above 1, so it does not tell a scale
    """

    name: str
    contract: Contract
    advice: str
    shows_in: str | None = "general"
    changes: Mapping[str, Change] = field(default_factory=dict)
    bare: bool = False
    judged_by: tuple[str, ...] = ("leakage", "moves", "result")

    def reading(self, model: Model) -> Model:
        """The network, read like this."""
        session = Altered(model.session, self.changes) if self.changes else model.session
        return Model(model.name, model.digest, self.contract, session)


def alternatives(contract: Contract, scale: float = 1.0) -> Iterator[Alternative]:
    """Every way to read the network of this contract that differs from it in one thing.

    scale : what its logits are best multiplied by, fitted to moves that people played
    """
    yield from _contracts(contract)
    yield from _values(contract)
    yield from _changes(contract, scale)


def _contracts(contract: Contract) -> Iterator[Alternative]:
    terms, words = contract.contract, vocabulary(contract.contract.vocabulary)
    for name in variation_names():
        if variation(name).applies(terms.planes, words):
            declared = name in terms.variations
            names = tuple(n for n in terms.variations if n != name) if declared else (*terms.variations, name)
            changed = _changed(contract, "contract", variations=names)
            verb = "take it out of" if declared else "add it to"
            advice = f"{'not ' if declared else ''}trained with {variation(name).words}: {verb} contract.variations"
            yield Alternative(f"without {name}" if declared else name, changed, advice, _SHOWS_IN[name])
    for other in vocabulary_names():
        if other != words.name and len(vocabulary(other)) == len(words):
            changed = _changed(contract, "contract", vocabulary=other, variations=())
            yield Alternative(f"vocabulary = {other}", changed, f'write contract.vocabulary = "{other}"')
    if terms.planes == "lc0-112":
        for fill in HistoryFill:
            if fill is not terms.history_fill:
                changed = _changed(contract, "contract", history_fill=fill)
                advice = f'write contract.history_fill = "{fill.value}"'
                yield Alternative(f"history_fill = {fill.value}", changed, advice, bare=True)
    inputs = contract.inputs
    if inputs.elo_self is not None and inputs.elo_opponent is not None:
        changed = _changed(contract, "inputs", elo_self=inputs.elo_opponent, elo_opponent=inputs.elo_self)
        yield Alternative("ratings swapped", changed, "swap inputs.elo_self and inputs.elo_opponent", "ratings")


def _values(contract: Contract) -> Iterator[Alternative]:
    value = contract.outputs.value
    if value is None:
        return

    def changed(**update: object) -> Contract:
        return _changed(contract, "outputs", value=value.model_copy(update=update))

    if value.order != "score":
        order = "loss_draw_win" if value.order == "win_draw_loss" else "win_draw_loss"
        advice = f'write outputs.value.order = "{order}"'
        yield Alternative(f"value order {order}", changed(order=order), advice, None, judged_by=("result",))
        softmaxed = not value.softmaxed
        advice = f"write outputs.value.softmaxed = {str(softmaxed).lower()}"
        name = "value as probabilities" if softmaxed else "value as logits"
        yield Alternative(name, changed(softmaxed=softmaxed), advice, None, judged_by=("result",))
    view = "white" if value.point_of_view == "side_to_move" else "side_to_move"
    advice = f'write outputs.value.point_of_view = "{view}"'
    yield Alternative(f"value for {view}", changed(point_of_view=view), advice, "general_black", judged_by=("result",))


def _changed(contract: Contract, section: str, **update: object) -> Contract:
    return contract.model_copy(update={section: getattr(contract, section).model_copy(update=update)})


def _changes(contract: Contract, scale: float) -> Iterator[Alternative]:
    """What may be wrong with the numbers of the network itself."""

    def alternative(name: str, shows_in: str, changes: Mapping[str, Change], judged_by: tuple[str, ...]) -> Alternative:
        advice = f"the network's {name}: mend its export, no key of the contract says so"
        return Alternative(name.replace("seem to be ", ""), contract, advice, shows_in, changes, judged_by=judged_by)

    if not 1 / _USUAL < scale < _USUAL:
        name = f"logits seem to be multiplied by {1 / scale:.2g}"
        yield alternative(name, "general", {contract.outputs.logits: lambda z: z * scale}, ("moves",))
    ratings = [name for name in (contract.inputs.elo_self, contract.inputs.elo_opponent) if name is not None]
    for name, change in _RATINGS.items() if ratings and not contract.elo.edges else ():
        changes = dict.fromkeys(ratings, change)
        yield alternative(f"ratings seem to be {name}", "ratings", changes, ("leakage", "moves", "result"))
