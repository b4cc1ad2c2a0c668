"""The positions that a network is quantised with: two sets that share no position, and no game where they are known."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

import chess

from movemask.board.position import Elo, Position
from movemask.bulk.read import check, read
from movemask.bulk.samples import Choice, Skipped, samples
from movemask.errors import SourceError
from movemask.models.diagnosis import FILE, probes
from movemask.network.model import Model

#: Positions wanted of each set. No more are judged than it takes to decide.
CALIBRATION, JUDGED = 512, 65536
#: Fewest positions that are calibrated and judged with.
LEAST_CALIBRATION, LEAST_JUDGED = 64, 256

_GAMES = 4000  # read at most
_PER_GAME = 32  # plies kept of a game while the files are read
_EVERY = 5  # of so many games or lines, one is calibrated on
_AT_ONCE = 256  # positions that are tried with the network's vocabulary
_SEED = 15


@dataclass(frozen=True, slots=True)
class Played:
    """A position, and how often each move was played there, if that is known."""

    position: Position
    elo: Elo | None
    played: Mapping[chess.Move, int]

    @property
    def bare(self) -> Played:
        """The same without the game that led to it."""
        return replace(self, position=Position(self.position.board.copy(stack=False)))

    @property
    def key(self) -> str:
        """The same for positions that differ in their counters alone."""
        return " ".join(self.position.fen.split()[:4])


@dataclass(frozen=True, slots=True)
class Sets:
    """The two sets, what they come from (so many `games` or lines), and what was left out."""

    calibration: Sequence[Played]
    judged: Sequence[Played]
    source: str
    games: int
    skipped: Skipped = field(default_factory=Skipped)


def sets(model: Model, files: Sequence[str]) -> Sets:
    """The sets from files of games or positions (as `movemask audit` reads them), or from the shipped probes.

    Raises SourceError for a file that cannot be read, or if there are too few positions that the network can read.
    """
    skipped = Skipped()
    if files:
        groups, source = _of_files(files, skipped), ", ".join(Path(name).name for name in files)
    else:
        groups, source = [[Played(p.position, p.elo, p.played)] for p in probes()], f"the shipped probes ({FILE})"
    random.Random(_SEED).shuffle(groups)
    seen: set[str] = set()
    calibration = _distinct(model, _drawn(groups[::_EVERY]), CALIBRATION, seen)
    judged = _distinct(model, _drawn([group for i, group in enumerate(groups) if i % _EVERY]), JUDGED, seen)
    for aim, found, least in (("calibrate on", calibration, LEAST_CALIBRATION), ("judge by", judged, LEAST_JUDGED)):
        if len(found) < least:
            few = f"{source}: {len(found)} positions to {aim} are too few, at least {least} are needed"
            raise SourceError(f"{few}; give more games or positions")
    return Sets(calibration, judged, source, len(groups), skipped)


def _of_files(files: Sequence[str], skipped: Skipped) -> list[list[Played]]:
    """The positions of each game, or of each line."""
    check(list(files), None)
    rng = random.Random(_SEED)
    games: dict[tuple[str, int], list[Played]] = {}
    for chunk in chain.from_iterable(read(index, name, None) for index, name in enumerate(files)):
        found: dict[tuple[str, int], list[Played]] = {}
        for sample in samples(chunk, Choice(), skipped):
            played = {} if sample.played is None else {sample.played: 1}
            known = Played(sample.position, sample.elo, played)
            found.setdefault((sample.source, sample.item), []).append(known)
        for game, plies in found.items():
            games[game] = rng.sample(plies, min(_PER_GAME, len(plies)))
        if sum(map(len, games.values())) >= _PER_GAME * _GAMES:
            break
    return list(games.values())


def _drawn(games: Sequence[Sequence[Played]]) -> Iterable[Played]:
    """The first ply of every game, then the second and so on: few of many games before many of a few."""
    for number in range(_PER_GAME):
        for game in games:
            if number < len(game):
                yield game[number]


def _distinct(model: Model, found: Iterable[Played], wanted: int, seen: set[str]) -> list[Played]:
    """Up to `wanted` positions that the network can read and that were not `seen`; these are added to it."""
    kept: list[Played] = []
    fresh = iter(found)
    while len(kept) < wanted and (part := list(islice(fresh, _AT_ONCE))):
        part = list({known.key: known for known in reversed(part) if known.key not in seen}.values())[::-1]
        batch, refused = model.batch([known.position for known in part], [known.elo for known in part])
        readable = [known for row, known in enumerate(part) if row not in refused and batch.counts[row]]
        kept += readable[: wanted - len(kept)]
        seen.update(known.key for known in kept[-len(readable) :])
    return kept
