"""Guesses a contract from an ONNX file: from its tensors' names, and from its policy and value in a run.

Each guess is described in a line of text, so that the user can check it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from movemask.board.position import Position, boards_of
from movemask.encoding.encoders import PlaneEncoder
from movemask.encoding.vocabularies import FROM_TO, playable
from movemask.encoding.vocabulary import slot_name
from movemask.errors import ContractError, ModelError
from movemask.network.check import CHECK_FENS, check_value
from movemask.network.contract import OutputNames
from movemask.network.model import Array, Model, Session, TensorInfo
from movemask.network_tools.families import MIXED, Family
from movemask.network_tools.family_match import Change, Fit

Table = dict[str, Any]

#: Names of outputs that count moves or time: not a score.
_COUNTS = re.compile(r"mlh|moves?_?left|plies|ply|ponder|time")
#: If several outputs could be the score, those with an absolute value above this are dropped, unless all have one.
_SCORE = 2.0


@dataclass(frozen=True, slots=True)
class Guess:
    """A contract's tables, without `network` and `card`. `notes` describes the guesses, one per line.

    `changes` lists further changes to the graph, beyond the fit's: the logarithm of probabilities, or another scale for
    a score.
    """

    table: Table
    notes: tuple[str, ...]
    changes: tuple[Change, ...] = ()


def guess(session: Session, fit: Fit, trained_with_mask: bool | None = None) -> Guess:
    """Returns the contract of the network in `session`. Its graph already has the changes of its fit.

    Raises ContractError if outputs or ratings can be read in several ways.
    """
    family, encoder, planes = fit.family, fit.encoder, fit.planes
    notes: list[str] = []
    if family.name == MIXED:
        notes.append(f"a network {MIXED}: {fit.shapes}")
    elif not fit.named:
        notes.append(f"a network of the family {family.name}, by its shapes: {fit.shapes}")
    size = len(family.slots)
    others = [info for info in session.inputs if info.name != planes]
    masks = [info for info in others if info.shape[1:] == (size,)]
    ratings = [info for info in others if info not in masks]
    inputs: Table = {"planes": planes}
    rating_notes: list[str] = []
    elo = dict(family.elo or {})
    if ratings:
        inputs |= _elos(ratings, size, rating_notes)
        if ratings[0].dtype != "int64":
            elo.pop("edges", None)
        elif "edges" not in elo:
            if not family.whole_ratings:
                raise ContractError(
                    f"input {ratings[0].name!r} is int64: write elo.edges or elo.whole in a TOML"
                )
            elo["whole"] = True
            rating_notes.append("ratings are whole numbers: the ratings themselves, not buckets")
    if len(masks) > 1:
        raise ContractError(
            f"inputs {', '.join(info.name for info in masks)} could each be the legal mask"
        )
    if masks:
        inputs["legal_mask"] = masks[0].name
    trial = _Trial(session, encoder, planes, ratings, masks, "edges" in elo)
    logits, log = _logits(session, fit, trial, notes)
    read_as = "the logarithms of its probabilities are" if log else "holds"
    notes.append(
        f"input {planes!r} takes {encoder.name}; output {logits!r} {read_as} the logits of {family.vocabulary}"
    )
    table: Table = {
        "contract": {
            "planes": encoder.name,
            "vocabulary": family.vocabulary,
            **_without_slots(family, notes),
        },
        "inputs": inputs,
    }
    notes += rating_notes
    if elo and ratings:
        table["elo"] = elo
    outputs: Table = {"logits": logits}
    value, change = _value(session, family, fit.policies, trial, notes)
    if value is not None:
        outputs["value"] = value
    table["outputs"] = outputs
    unused = [
        info.name
        for info in session.outputs
        if info.name not in (logits, (value or {}).get("name"))
    ]
    if unused:
        notes.append(f"not used: {', '.join(unused)}")
    masked = family.trained_with_mask if trained_with_mask is None else trained_with_mask
    if masks:
        masked = True
        notes.append(
            f"input {masks[0].name!r} is the legal mask, 1 for legal moves, so trained_with_mask = true"
        )
    elif trained_with_mask is None and masked:
        notes.append(f"trained_with_mask = true: {family.name} was trained over legal moves alone")
    elif trained_with_mask is None:
        notes.append(
            "trained_with_mask = false: a network trained over legal moves alone needs --trained-with-mask"
        )
    table["contract"]["trained_with_mask"] = masked
    return Guess(table, tuple(notes), tuple(extra for extra in (log, change) if extra is not None))


def _without_slots(family: Family, notes: list[str]) -> Table:
    """Returns the contract's keys for the moves that have no slot, with those that the user gave."""
    terms, words = dict(family.terms), family.slots
    if family.vocabulary in FROM_TO:
        notes.append("promotions = queen-only: 64 x 64 has one slot for all promotions of a move")
        return {"promotions": "queen-only", **terms}
    missing = [slot_name(*move) for move in playable(words) if words.find(move) is None]
    if missing:
        notes.append(
            f"incomplete = true: {len(missing)} moves have no slot, such as {', '.join(missing[:3])}"
        )
        terms = {"incomplete": True, **terms}
    return terms


def settled(model: Model, table: Table) -> str | None:
    """Corrects the value's order and point of view in the contract's table, if won positions then score higher.

    Returns a note about the correction; None without one. A win, draw, loss of the side to move in the family's order
    is preferred.
    """
    value = table["outputs"].get("value")
    if value is None:
        return None
    orders = (
        [value["order"]]
        if value["order"] == "score"
        else [value["order"], *_ORDERS - {value["order"]}]
    )
    for point_of_view, order in product(("side_to_move", "white"), orders):
        changed = {**value, "order": order, "point_of_view": point_of_view}
        outputs = {**table["outputs"], "value": changed}
        contract = model.contract.model_copy(
            update={"outputs": OutputNames.model_validate(outputs)}
        )
        try:
            scores = check_value(Model(model.name, model.digest, contract, model.session))
        except ContractError:
            continue
        except ModelError:
            return None  # the check reports the error
        if (order, point_of_view) == (value["order"], "side_to_move"):
            return None
        table["outputs"]["value"] = changed
        whose = "White" if point_of_view == "white" else "the side to move"
        return f"output {value['name']!r} is {order.replace('_', ', ')} for {whose}: {scores}"
    return None


@dataclass(frozen=True, slots=True)
class _Trial:
    """Runs the network on the positions of the check, to see the form of its outputs."""

    session: Session
    encoder: PlaneEncoder
    planes: str
    ratings: Sequence[TensorInfo]
    masks: Sequence[TensorInfo]
    buckets: bool

    def outputs(self, names: Sequence[str]) -> list[NDArray[np.float64]]:
        """Returns the named outputs `[B, …]` for the positions of the check."""
        positions = [Position.read(fen) for fen in CHECK_FENS]
        feeds: dict[str, Array] = {
            self.planes: self.encoder.encode_all(positions, boards_of(positions))
        }
        for info in self.ratings:
            feeds[info.name] = np.full(
                len(positions), 0 if self.buckets else 1500, dtype=info.dtype
            )
        for (
            info
        ) in self.masks:  # every move as if it were legal: the form of the outputs is the same
            feeds[info.name] = np.ones(
                (len(positions), *(size or 1 for size in info.shape[1:])), dtype=info.dtype
            )
        return [np.asarray(array, dtype=np.float64) for array in self.session.run(feeds, names)]


_ORDERS = {"win_draw_loss", "loss_draw_win"}


def _logits(
    session: Session, fit: Fit, trial: _Trial, notes: list[str]
) -> tuple[str, Change | None]:
    """Returns the output with the policy, and its change if it holds probabilities."""
    arrays = trial.outputs(fit.policies)
    softmaxed = {
        name for name, array in zip(fit.policies, arrays, strict=True) if _are_probabilities(array)
    }
    plain = [name for name in fit.policies if name not in softmaxed]
    if len(plain) == 1:
        if softmaxed:
            notes.append(
                f"output {', '.join(sorted(softmaxed))} holds probabilities, {plain[0]!r} their logits"
            )
        return plain[0], None
    if len(fit.policies) > 1:
        size = len(fit.family.slots)
        raise ContractError(
            f"outputs {', '.join(fit.policies)} all have {size} numbers: write a TOML that says which"
        )
    info = next(info for info in session.outputs if info.name == fit.policies[0])
    return info.name, Change("output", info, replace(info, dtype="float32"), log=True)


def _are_probabilities(array: NDArray[np.float64]) -> bool:
    return bool(
        (array >= 0).all() and np.allclose(array.reshape(len(array), -1).sum(1), 1, atol=1e-2)
    )


def _elos(ratings: Sequence[TensorInfo], size: int, notes: list[str]) -> Table:
    """Returns the contract's keys for the rating inputs. Names tell the mover's rating from the opponent's.

    size : slots of the vocabulary
    """
    opponent = [info.name for info in ratings if "opp" in info.name.lower()]
    mover = [info.name for info in ratings if info.name not in opponent]
    if any(len(info.shape) != 1 for info in ratings) or len(opponent) > 1 or len(mover) > 1:
        names = ", ".join(info.name for info in ratings)
        raise ContractError(
            f"inputs {names}: a contract can feed a rating of shape [B] or two, the opponent's with 'opp' in its name, "
            f"and the legal mask of shape [B, {size}]; export the network without other inputs"
        )
    keys = {"elo_self": mover[0]} if mover else {}
    if opponent:
        keys["elo_opponent"] = opponent[0]
    notes.append("; ".join(f"input {name!r} is {key}" for key, name in keys.items()))
    return keys


def _value(
    session: Session, family: Family, policies: Sequence[str], trial: _Trial, notes: list[str]
) -> tuple[Table | None, Change | None]:
    """Returns the contract's table of the value, and the change that the graph needs for it.

    The value is an output of three numbers or of one number. A run shows its form.
    """
    rest = [info for info in session.outputs if info.name not in policies]
    threes = [info.name for info in rest if info.shape[1:] == (3,)]
    ones = [
        info
        for info in rest
        if info.shape[1:] in ((), (1,)) and not _COUNTS.search(info.name.lower())
    ]
    if len(threes) == 1:
        (value,) = trial.outputs(threes)
        softmaxed = bool((value >= 0).all() and np.allclose(value.sum(1), 1, atol=1e-3))
        form = "probabilities" if softmaxed else "logits"
        notes.append(
            f"output {threes[0]!r} is {family.value_order.replace('_', ', ')} as {form}, for the side to move"
        )
        return {"name": threes[0], "order": family.value_order, "softmaxed": softmaxed}, None
    if len(ones) > 1 and not threes:
        values = trial.outputs([info.name for info in ones])
        ones = [
            info for info, value in zip(ones, values, strict=True) if np.abs(value).max() <= _SCORE
        ] or ones
    if len(ones) == 1 and not threes:
        (info,) = ones
        (value,) = trial.outputs([info.name])
        if value.min() >= 0 and value.max() <= 1 and value.min() < value.max():
            notes.append(
                f"output {info.name!r} is the expected score from 0 to 1, for the side to move"
            )
            return {"name": info.name, "order": "score"}, Change(
                "output", info, info, scaled=(2.0, -1.0)
            )
        notes.append(
            f"output {info.name!r} is the expected score from -1 to 1, for the side to move"
        )
        return {"name": info.name, "order": "score"}, None
    if threes or ones:
        names = ", ".join([*threes, *(info.name for info in ones)])
        notes.append(f"no value: {names} could each be one; write it into the TOML")
    return None, None
