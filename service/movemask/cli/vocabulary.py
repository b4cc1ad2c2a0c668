"""`movemask vocabulary`: prints and checks a vocabulary, or compares two."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import chess
import click

from movemask.cli.options import models_dir_option
from movemask.encoding import vocabularies
from movemask.encoding.moves_file import Perspective
from movemask.encoding.vocabulary import Vocabulary, described, slot_name
from movemask.errors import UnknownModel
from movemask.network.contract import is_moves_file, read_contract, read_moves_file
from movemask.settings import NetworkSettings

_NAMED = 5  # moves that are named as examples


@click.command("vocabulary", short_help="Print, check or compare vocabularies.")
@click.argument("name", metavar="NAME|FILE")
@click.argument("other", metavar="[NAME|FILE]", required=False)
@click.option(
    "--perspective",
    type=click.Choice(["side_to_move", "white"]),
    default="side_to_move",
    show_default=True,
    help="Of a FILE: whether Black's moves are flipped, or have slots of their own.",
)
@click.option(
    "--moves", "as_moves", is_flag=True, help="Print the moves alone, as a FILE has them."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with how castling is written.")
@models_dir_option
def vocabulary(
    name: str,
    other: str | None,
    perspective: Perspective,
    as_moves: bool,
    as_json: bool,
    settings: NetworkSettings,
) -> None:
    """Print the slots of a vocabulary, a model, or a FILE of moves (.txt): a line for each logit.

    The line has the slot's number and its move in UCI, as the side to move sees it: with Black to move, ranks are
    flipped. It has no move for an unused slot. A model's slots are those of its vocabulary with its contract's
    variations. What the vocabulary lacks is told on standard error. With a second name, the two are compared, and the
    exit status is 1 if they differ.
    """
    words = _vocabulary_of(name, perspective, settings)
    if other is not None:
        differences = list(
            _differences(words, _vocabulary_of(other, perspective, settings), name, other)
        )
        click.echo("\n".join(differences) or f"{name} and {other} have the same slots")
        sys.exit(1 if differences else 0)
    if as_json:
        click.echo(json.dumps(described(words, name), indent=1))
    elif as_moves:
        click.echo("\n".join(words.names()))
    else:
        click.echo("\n".join(f"{slot}\t{move}" for slot, move in enumerate(words.names())))
    click.echo(_summary(words, name), err=True)


def _vocabulary_of(name: str, perspective: Perspective, settings: NetworkSettings) -> Vocabulary:
    """Returns the vocabulary of a name, a file or a model. Raises UnknownModel, or ContractError that names a line."""
    if name in vocabularies.vocabulary_names():
        return vocabularies.vocabulary(name)
    if is_moves_file(name):
        return read_moves_file(Path(name)).vocabulary(perspective)
    models = settings.model_folders.found()
    if name not in models:
        raise UnknownModel(
            f"no vocabulary and no model {name!r}; vocabularies: {', '.join(vocabularies.vocabulary_names())}; "
            f"models: {', '.join(models)}; a file of moves has a name that ends in .txt"
        )
    return read_contract(models[name]).terms.slots


def _summary(words: Vocabulary, name: str) -> str:
    unused = sum(entry is None for entry in words.entries)
    missing = [
        slot_name(*move) for move in vocabularies.playable(words) if words.find(move) is None
    ]
    bare = words.bare_promotion
    parts = [
        f"{len(words)} slots, {unused} of them unused",
        f"castling is {'e1h1' if words.chess960 else 'e1g1'}",
        f"a promotion without a letter is a {chess.piece_name(bare)}" if bare else "",
        f"{len(missing)} moves have no slot: {_some(missing)}"
        if missing
        else "every move has a slot",
    ]
    return f"{name}: {'; '.join(filter(None, parts))}"


def _differences(a: Vocabulary, b: Vocabulary, first: str, second: str) -> Iterator[str]:
    """Yields the differences of two vocabularies, a line each."""
    for what in ("castling", "bare_promotion", "flip"):
        one, other = getattr(a, what), getattr(b, what)
        if one != other:
            words = [_value(value) for value in (one, other)]
            yield f"{what}: {words[0]} in {first}, {words[1]} in {second}"
    if len(a) != len(b):
        yield f"slots: {len(a)} in {first}, {len(b)} in {second}"
    moves, others = a.names(), b.names()
    for where, only in (
        (first, [move for move in moves if move not in {*others}]),
        (second, [move for move in others if move not in {*moves}]),
    ):
        if only:
            yield f"only in {where}: {len(only)} moves: {_some(only)}"
    places = [
        slot for slot, (one, other) in enumerate(zip(moves, others, strict=False)) if one != other
    ]
    if places:
        slot = places[0]
        yield (
            f"{len(places)} slots have another move, the first is slot {slot}: {moves[slot] or 'unused'} in {first}, "
            f"{others[slot] or 'unused'} in {second}"
        )


def _value(value: object) -> str:
    if isinstance(value, int):
        return chess.piece_name(value)
    return "none" if value is None else str(getattr(value, "name", value)).lower()


def _some(moves: list[str]) -> str:
    return ", ".join(moves[:_NAMED]) + (" …" if len(moves) > _NAMED else "")
