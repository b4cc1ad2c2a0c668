"""Turns arguments into requests: boards, moves, sets, and numbers and arrays of numpy become JSON or a query."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from decimal import Decimal
from itertools import islice
from numbers import Integral, Real
from reprlib import Repr
from typing import Any

import chess

from movemask.board.variants import check_variant
from movemask.client.options import Given, Parameter, PositionLike, Ratings
from movemask.errors import InvalidParameter

#: Positions in one request: the service's default limit. If the service refuses a batch, the client halves it.
_MAX_POSITIONS = 1024

#: Options whose order matters, so that they cannot be sets.
_ORDERED = ("moves", "logits", "probabilities")

#: Shows values of any size and depth in a few words.
_REPR = Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 60
_REPR.maxlevel = 3


def fields_of(
    position: Given, options: Mapping[str, Any], name: str = "position"
) -> dict[str, Any]:
    """Returns the fields of a request about a position.

    None is sent as null, and `...` is not sent. In both cases no position is named, and the service
    refuses the request, so that a program that lost its FEN gets no answer for the start position.
    Raises InvalidParameter and UnsupportedVariant; `name` is the position's name in their messages.
    """
    fields = {
        option: value for option, value in options.items() if value is not None or option == "fen"
    }
    for option in _ORDERED:
        if option in fields:
            fields[option] = _listed(option, fields[option])
    if isinstance(position, chess.Board):
        check_variant(position, name)
        moves = [*(move.uci() for move in position.move_stack), *fields.get("moves", ())]
        fields = (
            {"fen": position.root().fen(en_passant="fen")}
            | fields
            | ({"moves": moves} if moves else {})
        )
        fields |= {"chess960": True} if position.chess960 else {}
    elif position is None or isinstance(position, str):
        fields = {"fen": position} | fields
    elif position is not ...:
        raise InvalidParameter(f"{name}: {quoted(position)} is neither a chess.Board nor a FEN")
    if "elo" in fields and not isinstance(fields["elo"], Mapping):
        fields["elo"] = dict(zip(("self", "opponent"), ratings_of(fields["elo"]), strict=True))
    if isinstance(policy := fields.get("policy"), Mapping):
        fields["policy"] = {_move(move): share for move, share in policy.items()}
    return fields


def batches(positions: Iterable[PositionLike]) -> Iterator[list[dict[str, Any]]]:
    """Yields the fields of many positions, 1,024 at a time; raises as `fields_of`."""
    if isinstance(positions, str | bytes | Mapping) or not isinstance(positions, Iterable):
        raise InvalidParameter(f"positions: {quoted(positions)} is not a list of boards and FENs")
    left = enumerate(positions)
    while batch := [
        fields_of(position, {}, f"positions[{number}]")
        for number, position in islice(left, _MAX_POSITIONS)
    ]:
        yield batch


def ratings_of(elo: Ratings) -> tuple[float, float]:
    """Returns the ratings of the side to move and of its opponent.

    Raises InvalidParameter unless `elo` is 1 or 2 numbers.
    """
    plain: Any = elo.tolist() if hasattr(elo, "tolist") else elo
    pair = isinstance(plain, Sequence) and not isinstance(plain, str) and len(plain) == 2
    ratings = tuple(plain) if pair else (plain, plain)
    if any(isinstance(rating, bool) or not isinstance(rating, Real) for rating in ratings):
        hint = "; give a number, such as 1500" if isinstance(elo, str) else ""
        raise InvalidParameter(
            f"elo: {quoted(elo)} is neither a rating nor those of the side to move and its opponent{hint}"
        )
    return float(ratings[0]), float(ratings[1])


def body_of(fields: Mapping[str, Any]) -> bytes:
    """Returns the JSON of a request.

    Raises InvalidParameter. NaN and infinity are sent, because the service names them.
    """
    return b"{%s}" % b",".join(_field(name, value) for name, value in fields.items())


def query_of(parameters: Mapping[str, Parameter]) -> dict[str, str]:
    """Returns the parameters of a query as texts; None is left out. Raises InvalidParameter."""
    query = {}
    for name, value in parameters.items():
        if isinstance(value, str):
            query[name] = value
        elif isinstance(value, datetime):
            query[name] = value.isoformat()
        elif isinstance(value, Real) and not isinstance(value, bool):
            query[name] = str(int(value) if isinstance(value, Integral) else float(value))
        elif value is not None:
            raise InvalidParameter(
                f"{name}: {quoted(value)} is neither a text nor a number nor a time"
            )
    return query


def _field(name: str, value: Any) -> bytes:
    try:
        return f"{json.dumps(name)}: {json.dumps(value, default=_plain)}".encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameter(f"{name}: {quoted(value)} cannot be sent as JSON: {error}") from None


def _plain(value: Any) -> Any:
    """Returns a value that `json` can write, in place of a value that it cannot.

    Raises TypeError.
    """
    if hasattr(value, "tolist"):  # a number or an array of numpy, torch, pandas, …
        return value.tolist()
    if isinstance(value, chess.Move):
        return value.uci()
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real | Decimal):
        return float(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet):
        return sorted(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise TypeError(f"a {type(value).__name__} is neither a number nor a text, list, set or dict")


def _listed(name: str, values: Any) -> list[Any]:
    """Returns the items of an option whose order matters, with moves in UCI.

    Raises InvalidParameter.
    """
    plain = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(plain, str | bytes | Mapping | AbstractSet) or not isinstance(plain, Iterable):
        example = ", such as ['e4', 'e5']" if name == "moves" else ""
        raise InvalidParameter(f"{name}: {quoted(values)} is not a list{example}")
    return [_move(value) for value in plain]


def _move(value: Any) -> Any:
    return value.uci() if isinstance(value, chess.Move) else value


def quoted(value: object) -> str:
    """Returns a value in a message, cut."""
    try:
        return " ".join(_REPR.repr(value).split())
    except ValueError:  # a number of more than 4,300 digits
        return f"a long {type(value).__name__}"
