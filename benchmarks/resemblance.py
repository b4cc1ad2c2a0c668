"""How well the rating that a player's moves resemble is guessed: `python -m benchmarks.resemblance GAMES.csv.zst`.

Writes results/resemblance.md; `--write` puts the correction into the shipped network's card. Sides of held-out games
(validation and test split, by many players) are drawn together by five, ten and twenty, as if one player had played
them. The correction is fitted on one half of the sides and tried on the other, and the other way round. The guess is
that of the page (`profile.js`): the vertex of the parabola through the likeliest of nine ratings and its neighbours.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import tomlkit
from numpy.typing import NDArray

from movemask.board.boards import PHASES, Boards, phases_of
from movemask.board.position import Elo, Position
from movemask.games.resemblance import PLIES, RATINGS
from movemask.network.files import shipped_models
from movemask.network.model import Model
from movemask.network.registry import open_model
from training.config import MANY_PLAYERS, Data
from training.data import split_of
from training.games import Game, Unwanted, parse, records
from training.strength import policies

RESULTS = Path(__file__).parent / "results" / "resemblance.md"
GAMES = Path("../shared/data/games_online.csv.zst")
BAND = 200  # Elo points
TOGETHER = (5, 10, 20)  # sides that count as one player
NEAR = 100  # Elo points by which their ratings may lie apart from the middle
WITHIN = 1.645  # standard errors on both sides: 9 of 10 times
LEFT = {"whole": 60, "opening": 80, "middlegame": 60, "endgame": 90}  # error of the correction, as in the card

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Side:
    """One player's moves in one game: their surprises at RATINGS `[moves, 9]`, and their phases `[moves]`."""

    elo: int
    surprises: Values
    phases: NDArray[np.intp]

    def summed(self, phase: int | None) -> Values | None:
        """The surprises of a phase, or of all, summed `[9]`; None for no moves."""
        chosen = self.surprises if phase is None else self.surprises[self.phases == phase]
        return chosen.sum(axis=0) if len(chosen) else None


def sides(file: Path, model: Model, quota: int) -> Iterator[Side]:
    """Sides of held-out games, at most `quota` in each band of ratings."""
    data, counts = Data(), Counter[int]()
    for record in records(file):
        if isinstance(record, str) or record["source"] not in MANY_PLAYERS or split_of(record["moves"]) == "train":
            continue
        try:
            game = parse(record, data)
        except Unwanted:
            continue
        for black, elo in enumerate((game.white_elo, game.black_elo)):
            if counts[elo // BAND] < quota and len(game.moves) > PLIES.start + black:
                counts[elo // BAND] += 1
                yield _side(game, model, elo, black)


def _side(game: Game, model: Model, elo: int, black: int) -> Side:
    position, positions, played = Position.read(), list[Position](), []
    for ply, move in enumerate(game.moves[: PLIES.stop]):
        if ply in PLIES and ply % 2 == black:
            positions.append(position)
            played.append(move)
        position = position.after(move)
    points = [(one, Elo(rating, rating)) for one in positions for rating in RATINGS]
    distributions = policies(model, [one for one, _ in points], [ratings for _, ratings in points])
    moves = [move for move in played for _ in RATINGS]
    surprises = [
        -np.log(max(shares[legal.index(move)], 1e-9))
        for move, (legal, shares) in zip(moves, distributions, strict=True)
    ]
    boards = Boards.of([one.board for one in positions])
    return Side(elo, np.array(surprises).reshape(-1, len(RATINGS)), phases_of(boards))


def guess(surprises: Values) -> float:
    """The likeliest rating."""
    place = int(surprises.argmin())
    if place in (0, len(RATINGS) - 1):
        return RATINGS[place]
    before, here, after = surprises[place - 1 : place + 2]
    curve = before - 2 * here + after
    return RATINGS[place] + (RATINGS[1] - RATINGS[0]) * (before - after) / (2 * curve) if curve else RATINGS[place]


@dataclass(frozen=True)
class Player:
    """Sides that count as one player: how many, their mean rating, the guess, and its standard error.

    The error is found by leaving out each side in turn.
    """

    games: int
    elo: float
    guess: float
    error: float


def players(pool: Sequence[Side], phase: int | None, random: np.random.Generator) -> Iterator[Player]:
    """Players drawn from sides whose ratings are near each other. Guesses at the ends of RATINGS are left out."""
    summed = [one.summed(phase) for one in pool]
    known = [(side.elo, values) for side, values in zip(pool, summed, strict=True) if values is not None]
    elos = np.array([elo for elo, _ in known])
    for games in TOGETHER:
        for middle in range(850, 2401, 50):
            near = np.flatnonzero(abs(elos - middle) <= NEAR)
            for _ in range(20 if len(near) >= max(12, games) else 0):
                drawn = random.choice(near, games, replace=False)
                total = np.sum([known[one][1] for one in drawn], axis=0)
                rating = guess(total)
                if RATINGS[0] < rating < RATINGS[-1]:
                    others = np.array([guess(total - known[one][1]) for one in drawn])
                    error = float(np.sqrt((games - 1) * others.var()))
                    yield Player(games, float(elos[drawn].mean()), rating, error)


@dataclass(frozen=True)
class Correction:
    """The correction of a guess, slope * guess + intercept, tried on held-out players.

    lines : of the report, one for each number of games
    off : of each player with most games, the rating and the error that is left
    """

    slope: float
    intercept: float
    lines: str
    off: Sequence[tuple[float, float]]


def correction(name: str, halves: Sequence[Sequence[Player]]) -> Correction:
    """Fits on each half of the players, and tries it on the other."""
    fits = [np.polyfit([one.guess for one in half], [one.elo for one in half], 1) for half in halves]
    slope, intercept = np.mean(fits, axis=0)
    lines, off = "", []
    for games in TOGETHER:
        errors, widths = [], []
        for fit, half in zip(fits, reversed(halves), strict=True):
            for one in (player for player in half if player.games == games):
                errors.append(float(np.polyval(fit, one.guess)) - one.elo)
                widths.append(WITHIN * float(np.hypot(fit[0] * one.error, LEFT[name])))
                if games == TOGETHER[-1]:
                    off.append((one.elo, errors[-1]))
        coverage = np.mean(np.abs(errors) < np.array(widths))
        lines += (
            f"| {name} | {games} | {slope:.3f} | {intercept:+.0f} | {np.sqrt(np.mean(np.square(errors))):.0f} "
            f"| ± {np.median(widths):.0f} | {coverage:.0%} |\n"
        )
    return Correction(float(slope), float(intercept), lines, off)


def corrections_of(pool: Sequence[Side]) -> dict[str, Correction]:
    """The correction of all moves, and of each phase's."""
    random = np.random.default_rng(3)
    order = random.permutation(len(pool))
    halves = [[pool[one] for one in order[half::2]] for half in (0, 1)]
    phases = {"whole": None} | {phase.value: number for number, phase in enumerate(PHASES)}
    return {
        name: correction(name, [list(players(half, phase, random)) for half in halves])
        for name, phase in phases.items()
    }


def report(corrections: Mapping[str, Correction], pool: int) -> str:
    """The figures as Markdown. `pool` is the number of sides."""
    table = "".join(one.lines for one in corrections.values())
    off = corrections["whole"].off
    bands = "".join(
        f"| {low} to {low + BAND} | {np.mean(part):+.0f} |\n"
        for low in range(800, 2400, BAND)
        if (part := [error for elo, error in off if low <= elo < low + BAND])
    )
    return f"""# The rating that moves resemble

`python -m benchmarks.resemblance` wrote this on {date.today()}, from {pool} sides of held-out games by many
players, moves {PLIES.start // 2 + 1} to {PLIES.stop // 2}.
Sides whose ratings lie within {NEAR} points of a middle count as one player.
The correction (slope, intercept) is fitted on one half of the sides and tried on the other.

| moves of | games | slope | intercept | error (root mean square) | half of the interval | holds the rating |
|---|--:|--:|--:|--:|--:|--:|
{table}
What is left with {TOGETHER[-1]} games, by rating:

| rating | mean error |
|---|--:|
{bands}"""


def with_correction(contract: str, corrections: Mapping[str, Correction], pool: int) -> str:
    """The text of a contract, with the correction in its card."""
    document = tomlkit.parse(contract)
    table = tomlkit.table()
    table.add(tomlkit.comment("The rating that moves resemble is corrected to slope * rating + intercept, ± error."))
    table["command"] = "python -m benchmarks.resemblance --write"
    moves = f"moves {PLIES.start // 2 + 1} to {PLIES.stop // 2}"
    together = "five to twenty sides together"
    table["what"] = f"{moves} of {pool:,} sides of held-out games by many players, {together}"
    for name, one in corrections.items():
        row = tomlkit.inline_table()
        row.update({"slope": round(one.slope, 3), "intercept": round(one.intercept), "error": LEFT[name]})
        table[name] = row
    document["card"]["resemblance"] = table  # type: ignore[index]
    return tomlkit.dumps(document)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", type=Path, nargs="?", default=GAMES)
    parser.add_argument("--sides", type=int, default=120, help="of each band of 200 Elo points")
    parser.add_argument("--write", action="store_true", help="the correction into the shipped network's card")
    arguments = parser.parse_args()
    (contract,) = shipped_models().glob("*.toml")
    pool = list(sides(arguments.games, open_model(contract, 1), arguments.sides))
    corrections = corrections_of(pool)
    RESULTS.write_text(report(corrections, len(pool)))
    if arguments.write:
        contract.write_text(with_correction(contract.read_text(), corrections, len(pool)))
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
