"""A chunk's positions through a network, as rows of a table. docs/audit.md lists the columns."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import chess
import numpy as np
import pyarrow as pa

from movemask.board.encoded import Elo, EncodedPosition
from movemask.board.move_codes import names_of
from movemask.board.pgn import Game, read_games
from movemask.board.phase import Phase, phases_of
from movemask.board.position import Position, boards_of
from movemask.errors import InvalidLogits, ModelError, MovemaskError
from movemask.inference.model import Model
from movemask.leakage.causes import Cause
from movemask.leakage.kinds import KINDS, SERVED
from movemask.leakage.leakage import Batch, measure
from movemask.leakage.reasons import explained
from movemask.leakage.served import Told, served
from movemask.policy import Policy, Rule, legal_of, policies
from movemask.tasks.bulk.sources import Chunk, Form

#: Positions in one run of a network.
_BATCH = 128

#: Moves of a position that are kept, legal and illegal ones each.
_MOVES_KEPT = 5

_EXAMPLE = 300  # characters of what was left out

_MOVE = pa.struct([("uci", pa.string()), ("probability", pa.float64())])
_ILLEGAL = pa.struct([("uci", pa.string()), ("probability", pa.float64()), ("cause", pa.string())])


@dataclass(frozen=True, slots=True)
class Choice:
    """Which positions are audited, and how.

    `every` takes each so-manieth ply of a game from `first_ply` on; `elo` is for positions that have no ratings.
    """

    kinds: tuple[str, ...] = KINDS
    least: float = 1e-4
    first_ply: int = 0
    every: int = 1
    chess960: bool = False
    elo: Elo | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A position, where it was found, and what was played there."""

    position: Position
    source: str
    item: int
    ply: int
    elo: Elo | None
    played: chess.Move | None


@dataclass(slots=True)
class LeftOut:
    """What was not audited: how many by reason, and the first few by name."""

    reasons: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, reason: str, example: str) -> None:
        """Counts one; its example is cut to what a line of a terminal can show."""
        self.reasons[reason] += 1
        if len(self.examples) < 20:
            shown = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in example[:_EXAMPLE])
            self.examples.append(shown + ("…" if len(example) > _EXAMPLE else ""))

    def merge(self, other: LeftOut) -> None:
        self.reasons.update(other.reasons)
        self.examples = (self.examples + other.examples)[:20]


def schema(kinds: Sequence[str]) -> pa.Schema:
    """The columns of the table."""
    fields: list[tuple[str, pa.DataType]] = [
        ("source", pa.string()),
        ("item", pa.int64()),
        ("ply", pa.int32()),
        ("fen", pa.string()),
        ("chess960", pa.bool_()),
        ("turn", pa.string()),
        ("phase", pa.string()),
        ("in_check", pa.bool_()),
        ("legal_moves", pa.int32()),
        ("elo", pa.float64()),
        ("opponent_elo", pa.float64()),
        ("played", pa.string()),
        ("model", pa.string()),
        ("digest", pa.string()),
        ("trained_with_mask", pa.bool_()),
        ("top", pa.string()),
        ("top_probability", pa.float64()),
    ]
    for kind in kinds:
        fields += [(kind, pa.float64()), (f"{kind}_flipped", pa.bool_()), (f"{kind}_kl", pa.float64())]
    fields += [(f"cause_{cause.value}", pa.float64()) for cause in Cause]
    return pa.schema([*fields, ("legal", pa.list_(_MOVE)), ("illegal", pa.list_(_ILLEGAL))])


def samples(chunk: Chunk, choice: Choice, left_out: LeftOut) -> Iterator[Sample]:
    """The positions of a chunk; finished ones and what cannot be read are left out, and counted."""
    read = _game_samples if chunk.form is Form.PGN else _line_samples
    for number, text in enumerate(chunk.items, chunk.first):
        yield from read(text, chunk.source, number, choice, left_out)


def _game_samples(text: str, source: str, number: int, choice: Choice, left_out: LeftOut) -> Iterator[Sample]:
    for game in read_games(io.StringIO(text)):  # one, or several without headers
        if not isinstance(game, Game):
            why = re.sub(r"game \d+", f"game {number}", str(game), count=1)
            left_out.add("game that cannot be played through", f"{source}: {why}")
            continue
        for ply, found in enumerate(game.plies):
            if ply >= choice.first_ply and (ply - choice.first_ply) % choice.every == 0:
                yield Sample(found.position, source, number, ply, found.elo or choice.elo, found.played)


def _line_samples(text: str, source: str, number: int, choice: Choice, left_out: LeftOut) -> Iterator[Sample]:
    if not text:
        return
    try:
        position = Position.read(_fen_of(text), chess960=choice.chess960)
    except MovemaskError as error:
        left_out.add("line that is no position", f"{source}: line {number}: {error}")
        return
    if not any(position.board.legal_moves):
        left_out.add("finished game", f"{source}: line {number}: {position.fen} has no legal move")
        return
    yield Sample(position, source, number, position.board.ply(), choice.elo, None)


def _fen_of(text: str) -> str:
    """The FEN of a line: EPD's operations and what stands after a separator are dropped."""
    fields = re.split(r"[;|,\t]", text.strip('"'), maxsplit=1)[0].split()
    counters = [text for text in fields[4:6] if text.isdigit()]
    return " ".join([*fields[:4], *counters] if len(counters) == 2 else fields[:4])


def rows(model: Model, found: Sequence[Sample], choice: Choice, left_out: LeftOut) -> pa.Table:
    """The table of positions by one network; those that it cannot answer are left out, and counted."""
    columns: dict[str, list[Any]] = {name: [] for name in schema(choice.kinds).names}
    for start in range(0, len(found), _BATCH):
        part = found[start : start + _BATCH]
        ready = []
        encoded = model.encode_all([sample.position for sample in part], [sample.elo for sample in part])
        for sample, one in zip(part, encoded, strict=True):
            if isinstance(one, MovemaskError):
                left_out.add(f"position that {model.name} cannot read", f"{sample.source}: {sample.item}: {one}")
            else:
                ready.append((sample, one))
        if ready:
            _evaluate(model, ready, choice, columns, left_out)
    return pa.table(columns, schema=schema(choice.kinds))


_Ready = tuple[Sample, EncodedPosition]


def _evaluate(
    model: Model, ready: Sequence[_Ready], choice: Choice, columns: dict[str, list[Any]], left_out: LeftOut
) -> None:
    batch = [encoded for _, encoded in ready]
    logits = model.evaluate(batch).logits
    try:
        _add(model, ready, logits, choice, columns)
    except InvalidLogits:
        for row, one in enumerate(ready):
            try:
                _add(model, [one], logits[row : row + 1], choice, columns)
            except ModelError as error:
                sample = one[0]
                left_out.add(f"position whose logits by {model.name} are unusable", f"{sample.position.fen}: {error}")


def _add(model: Model, ready: Sequence[_Ready], logits: Any, choice: Choice, columns: dict[str, list[Any]]) -> None:
    encoded = [one for _, one in ready]
    legal = legal_of(encoded, logits)
    made = policies(encoded, legal, [Rule()] * len(ready))
    batch = Batch(logits, legal.slots, legal.indptr)
    black = np.array([one.position.black for one in encoded])
    measured = measure(choice.kinds, batch, model.vocabulary, black)
    positions = [one.position for one in encoded]
    codes = [one.codes for one in encoded]
    reasons = explained(batch.heavy(choice.least), positions, model.vocabulary, codes, _MOVES_KEPT)
    for kind in choice.kinds:
        if kind == SERVED:
            columns[kind] += [_served(one, policy) for one, policy in zip(encoded, made, strict=True)]
            columns[f"{kind}_flipped"] += [False] * len(ready)
            columns[f"{kind}_kl"] += [0.0] * len(ready)
        else:
            of = measured[kind]
            columns[kind] += [None if np.isnan(value) else value for value in of.leaked.tolist()]
            columns[f"{kind}_flipped"] += of.flipped.tolist()
            columns[f"{kind}_kl"] += [None if np.isnan(value) else value for value in of.kl.tolist()]
    phases = phases_of(boards_of(positions))
    for row, (sample, one) in enumerate(ready):
        illegal, causes = reasons[row]
        for cause in Cause:
            columns[f"cause_{cause.value}"].append(causes.get(cause, 0.0))
        columns["illegal"].append(
            [{"uci": move.uci, "probability": move.probability, "cause": move.cause.value} for move in illegal]
        )
        policy = made[row]
        best = zip(names_of(policy.codes[:_MOVES_KEPT]), policy.probabilities[:_MOVES_KEPT].tolist(), strict=True)
        columns["legal"].append([{"uci": uci, "probability": p} for uci, p in best])
        for name, value in _plain(sample, one, policy, model, phases[row]).items():
            columns[name].append(value)


def _served(encoded: EncodedPosition, policy: Policy) -> float:
    """What an answer leaks, judged by python-chess."""
    told = Told(encoded.position, policy.codes, policy.probabilities, policy.abstention, encoded.codes)
    return served(told, judged=True)


def _plain(sample: Sample, encoded: EncodedPosition, policy: Policy, model: Model, phase: Phase) -> dict[str, Any]:
    return {
        "source": sample.source,
        "item": sample.item,
        "ply": sample.ply,
        "fen": sample.position.fen,
        "chess960": sample.position.chess960,
        "turn": sample.position.turn,
        "phase": phase.value,
        "in_check": encoded.in_check,
        "legal_moves": len(encoded.codes),
        "elo": None if sample.elo is None else sample.elo.self,
        "opponent_elo": None if sample.elo is None else sample.elo.opponent,
        "played": None if sample.played is None else sample.played.uci(),
        "model": model.name,
        "digest": model.digest,
        "trained_with_mask": model.trained_with_mask,
        "top": names_of(policy.codes[:1])[0],
        "top_probability": float(policy.probabilities[0]),
    }
