"""Guesses a contract from an ONNX file: the names and shapes of its tensors, and the form of its value in a run.

Each guess is described in a line of text, so that the user can check it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from movemask.board.position import Position
from movemask.encoding.encoders import PlaneEncoder, plane_encoder, plane_encoder_names
from movemask.encoding.vocabularies import vocabulary, vocabulary_names
from movemask.errors import ContractError
from movemask.network.model import Session, TensorInfo

Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """A family of networks: its encoders (`planes` lists the alternatives), vocabulary, value and ratings."""

    name: str
    planes: tuple[str, ...]
    vocabulary: str
    value_order: str = "win_draw_loss"
    elo: Mapping[str, Any] | None = None
    whole_ratings: bool = False  # whether there are exports that take ratings as int64
    trained_with_mask: bool = False


_MAIA2_ELO = {"default": 1500, "minimum": 0, "maximum": 5000, "scale": "lichess", "edges": list(range(1100, 2001, 100))}
_MAIA3_ELO = {"default": 1500, "minimum": 600, "maximum": 2600, "scale": "lichess"}

FAMILIES: dict[str, Family] = {
    kind.name: kind
    for kind in (
        Family("lc0", ("lc0-112",), "lc0-1858"),
        Family("maia1", ("lc0-112",), "lc0-1858"),
        Family("maia2", ("maia2-18",), "maia2-1880", elo=_MAIA2_ELO),
        Family("maia3", ("maia3-tokens-12", "maia3-tokens-96"), "maia3-4352", "loss_draw_win", _MAIA3_ELO, True, True),
        Family("alphazero", ("pgx-119",), "alphazero-4672"),
        Family("searchless", ("fen-77",), "uci-1968"),
        Family("movemask", ("movemask-tokens-99",), "movemask-1880", elo={"scale": "lichess"}),
    )
}


@dataclass(frozen=True, slots=True)
class Guess:
    """A contract's tables, without `network` and `card`; `notes` describe the guesses, a line each."""

    table: Table
    notes: tuple[str, ...]


def guess(session: Session, kind_name: str | None = None, trained_with_mask: bool | None = None) -> Guess:
    """The contract of the network in `session`, of the named kind or else of the only kind that fits.

    Raises ContractError that lists the network's tensors if no kind, or more than one, fits.
    """
    notes: list[str] = []
    if kind_name is not None and kind_name not in FAMILIES:
        raise ContractError(f"no kind of contract {kind_name!r}; available: {', '.join(FAMILIES)}")
    for info in session.inputs:
        if info.shape and info.shape[0] is not None:
            raise ContractError(
                f"input {info.name!r} has a fixed batch of {info.shape[0]}; export it with a variable batch"
            )
    kind, encoder, planes = _kind(session, kind_name)
    if kind_name is None:
        notes.append(f"a network of the kind {kind.name}, by its shapes: {_shapes(session)}")
    logits = _logits(session, kind)
    notes.append(f"input {planes!r} takes {encoder.name}; output {logits!r} holds the logits of {kind.vocabulary}")
    inputs: Table = {"planes": planes}
    table: Table = {"contract": {"planes": encoder.name, "vocabulary": kind.vocabulary}, "inputs": inputs}
    ratings = [info for info in session.inputs if info.name != planes]
    if ratings:
        inputs |= _elos(ratings, notes)
        table["elo"] = elo = dict(kind.elo or {})
        if ratings[0].dtype != "int64":
            elo.pop("edges", None)
        elif "edges" not in elo:
            if not kind.whole_ratings:
                raise ContractError(f"input {ratings[0].name!r} is int64: write elo.edges or elo.whole in a TOML")
            elo["whole"] = True
            notes.append("ratings are whole numbers: the ratings themselves, not buckets")
    outputs: Table = {"logits": logits}
    value = _value(session, kind, logits, planes, encoder, ratings, notes)
    if value is not None:
        outputs["value"] = value
    table["outputs"] = outputs
    unused = [info.name for info in session.outputs if info.name not in (logits, (value or {}).get("name"))]
    if unused:
        notes.append(f"not used: {', '.join(unused)}")
    masked = kind.trained_with_mask if trained_with_mask is None else trained_with_mask
    if trained_with_mask is None and masked:
        notes.append(f"trained_with_mask = true: {kind.name} was trained over legal moves alone")
    elif trained_with_mask is None:
        notes.append("trained_with_mask = false: a network trained over legal moves alone needs --trained-with-mask")
    table["contract"]["trained_with_mask"] = masked
    return Guess(table, tuple(notes))


def _kind(session: Session, name: str | None) -> tuple[Family, PlaneEncoder, str]:
    """The only kind, encoder and input that fit; raises ContractError."""
    fits = []
    for kind in FAMILIES.values():
        if name not in (None, kind.name) or (name is None and kind.name == "maia1"):
            continue
        size = len(vocabulary(kind.vocabulary))
        if not any(info.shape[1:] == (size,) for info in session.outputs):
            continue
        for encoder in map(plane_encoder, kind.planes):
            named = [i.name for i in session.inputs if i.shape[1:] == encoder.shape and i.dtype == encoder.dtype]
            whole, edges = any(info.dtype == "int64" for info in session.inputs), "edges" in (kind.elo or {})
            if len(named) == 1 and (name is not None or whole == edges or kind.whole_ratings):
                fits.append((kind, encoder, named[0]))
    if len(fits) == 1:
        return fits[0]
    none_fits = "no known kind of network" if name is None else f"not a network of the kind {name!r}"
    known = ", ".join(f"{plane_encoder(n).name} {list(plane_encoder(n).shape)}" for n in plane_encoder_names())
    sizes = ", ".join(vocabulary_names())
    several = f"fits {', '.join(kind.name for kind, _, _ in fits)}: say which with --contract; " if fits else ""
    raise ContractError(
        f"{several or none_fits + ': '}it has {_shapes(session)}. Inputs known: {known}; outputs: {sizes}"
    )


def _logits(session: Session, kind: Family) -> str:
    size = len(vocabulary(kind.vocabulary))
    named = [info.name for info in session.outputs if info.shape[1:] == (size,)]
    if len(named) > 1:
        raise ContractError(f"outputs {', '.join(named)} all have {size} numbers: write a TOML that says which")
    return named[0]


def _elos(ratings: Sequence[TensorInfo], notes: list[str]) -> Table:
    """The contract's keys for the rating inputs: the mover's and the opponent's, told apart by name."""
    opponent = [info.name for info in ratings if "opp" in info.name.lower()]
    mover = [info.name for info in ratings if info.name not in opponent]
    if any(len(info.shape) != 1 for info in ratings) or len(opponent) > 1 or len(mover) > 1:
        names = ", ".join(info.name for info in ratings)
        raise ContractError(
            f"inputs {names}: not one rating of shape [B] or two, the opponent's with 'opp' in its name; "
            "write a TOML, or export without them"
        )
    keys = {"elo_self": mover[0]} if mover else {}
    if opponent:
        keys["elo_opponent"] = opponent[0]
    notes.append("; ".join(f"input {name!r} is {key}" for key, name in keys.items()))
    return keys


def _value(
    session: Session,
    kind: Family,
    logits: str,
    planes: str,
    encoder: PlaneEncoder,
    ratings: Sequence[TensorInfo],
    notes: list[str],
) -> Table | None:
    """The contract's table of the value: an output of three numbers, or one; its form is seen in a run."""
    rest = [info for info in session.outputs if info.name != logits]
    threes = [info.name for info in rest if info.shape[1:] == (3,)]
    ones = [info.name for info in rest if info.shape[1:] in ((), (1,)) and "mlh" not in info.name.lower()]
    if len(threes) == 1:
        feeds = {planes: np.stack([encoder.encode(Position.read(moves=moves)) for moves in ((), ("e2e4",))])}
        buckets = "edges" in (kind.elo or {})
        for info in ratings:
            feeds[info.name] = np.full(2, 0 if buckets else 1500, dtype=info.dtype)
        value = np.asarray(session.run(feeds, threes)[0], dtype=np.float64)
        softmaxed = bool((value >= 0).all() and np.allclose(value.sum(1), 1, atol=1e-3))
        form = "probabilities" if softmaxed else "logits"
        notes.append(f"output {threes[0]!r} is {kind.value_order.replace('_', ', ')} as {form}, for the side to move")
        return {"name": threes[0], "order": kind.value_order, "softmaxed": softmaxed}
    if len(ones) == 1 and not threes:
        notes.append(f"output {ones[0]!r} is the expected score from -1 to 1, for the side to move")
        return {"name": ones[0], "order": "score"}
    if threes or ones:
        notes.append(f"no value: {', '.join(threes + ones)} could each be one; write it into the TOML")
    return None


def _shapes(session: Session) -> str:
    def described(infos: Sequence[TensorInfo]) -> str:
        return ", ".join(
            f"{info.name} {info.dtype} [{', '.join('B' if size is None else str(size) for size in info.shape)}]"
            for info in infos
        )

    return f"inputs {described(session.inputs)}; outputs {described(session.outputs)}"
