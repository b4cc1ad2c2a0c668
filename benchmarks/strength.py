"""How strongly a network plays at which rating and temperature: `python -m benchmarks.strength --model NAME`.

The network plays itself and, where there is one, Stockfish at fixed nodes, from benchmarks/openings.tsv with both
colours. Each of its players is told its own rating as both players', as `movemask uci` does. An Elo for each is fitted
to all games, draws as halves. Writes strength.json and strength.md.

Time grows with the games: with movemask-7, `--games 40 --jobs 2` (1,720 in all) took 200 s on two cores.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from itertools import combinations, cycle, groupby, pairwise, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import chess
import numpy as np
import tomlkit
from chess.engine import Limit, SimpleEngine

from movemask.board.moves import moves_of
from movemask.board.position import Elo, Position
from movemask.errors import MovemaskError
from movemask.evaluate import evaluate_positions
from movemask.network.contract import read_contract
from movemask.network.files import shipped_models
from movemask.network.model import Model
from movemask.network.registry import open_model
from movemask.policy.normalisation import Normalisation
from training.strength import AT_ONCE, Policy, play

RATINGS = (800, 1150, 1500, 2000, 2500)
TEMPERATURES = (1.0, 0.5, 0.25)
NODES = (1, 100, 1000)
STEPS = ((1, 0), (0, 1), (2, 1))  # in ratings and temperatures, to whom each player plays: neighbours, and one far away
STOCKFISH_EVERY = 3  # Nth rating of each temperature plays Stockfish, another one at each temperature
PRIOR = 1000  # standard deviation in Elo, so that a player that lost all its games has a number
OPENINGS = Path(__file__).with_name("openings.tsv")
RESULTS = Path(__file__).parent / "results"
SEED = 20261124
_NAT = 400 / math.log(10)  # Elo


@dataclass(frozen=True, order=True)
class Player:
    """The network at a rating and a temperature, or Stockfish at so many nodes a move."""

    rating: int = 0
    temperature: float = 0.0
    nodes: int = 0

    def __str__(self) -> str:
        return f"Stockfish, {self.nodes} nodes" if self.nodes else f"{self.rating} at {self.temperature:g}"


Pair = tuple[Player, Player]
Scores = dict[Pair, list[float]]  # of the first player of each pair, a game each

#: The player with a known strength, from which all others are counted.
ANCHOR = Player(1500, 1.0)


def schedule(ratings: Sequence[int], nodes: Sequence[int]) -> list[Pair]:
    """Who plays whom: neighbours in rating and in temperature, some far pairs, and a part of them Stockfish."""
    places = product(range(len(ratings)), range(len(TEMPERATURES)))
    grid = {(row, column): Player(ratings[row], TEMPERATURES[column]) for row, column in places}
    pairs = []
    for (row, column), player in grid.items():
        others = [(row + down, column + across) for down, across in STEPS]
        pairs += [(player, grid[other]) for other in others if other in grid]
        if (row + column) % STOCKFISH_EVERY == 0:
            pairs += [(player, Player(nodes=count)) for count in nodes]
    return pairs


def with_openings(pairs: Sequence[Pair], games: int) -> list[tuple[Pair, list[str]]]:
    """Each pair with games / 2 openings; the next pair goes on where it stopped in the list."""
    rows = [line.split("\t") for line in OPENINGS.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    lines = [[word for word in moves.split() if not word.endswith(".")] for _, _, moves in rows]
    return list(zip((pair for pair in pairs for _ in range(-(-games // 2))), cycle(lines)))


def played(contract: Path, stockfish: str | None, starts: Sequence[tuple[Pair, list[str]]], worker: int) -> Scores:
    """Two games from each start, with the colours exchanged; one thread, all games at once."""
    model = open_model(contract, 1)
    boards = [chess.Board() for _ in range(2 * len(starts))]
    for number, board in enumerate(boards):
        for san in starts[number // 2][1]:
            board.push_san(san)
    players = [side for pair, _ in starts for side in (pair, pair[::-1])]
    with ExitStack() as stack:
        engine = None
        if stockfish:
            engine = stack.enter_context(SimpleEngine.popen_uci(stockfish))
            engine.configure({"Hash": 1})
        draw = np.random.default_rng((SEED, worker))
        play(boards, players, partial(policies, model, engine), draw, "" if worker else model.name)
    scores: Scores = {pair: [] for pair, _ in starts}
    for number, board in enumerate(boards):
        white = {"1-0": 1.0, "0-1": 0.0}.get(board.result(claim_draw=True), 0.5)
        scores[starts[number // 2][0]].append(1 - white if number % 2 else white)
    return scores


def policies(
    model: Model, engine: SimpleEngine | None, positions: Sequence[Position], sides: Sequence[Pair]
) -> Iterator[Policy]:
    """What the player to move may play: the network's policy, or Stockfish's move, for which it forgets all others."""
    by_row: dict[int, Policy] = {}
    rows = sorted(range(len(sides)), key=lambda row: sides[row][0].temperature)
    for temperature, group in groupby(rows, lambda row: sides[row][0].temperature):
        same = list(group)
        if not temperature:
            assert engine is not None
            for row in same:
                move = engine.play(positions[row].board, Limit(nodes=sides[row][0].nodes), game=object()).move
                assert move is not None
                by_row[row] = [move], np.ones(1)
            continue
        for start in range(0, len(same), AT_ONCE):
            part = same[start : start + AT_ONCE]
            elos = [Elo(sides[row][0].rating, sides[row][0].rating) for row in part]
            rule = Normalisation(temperature=temperature)
            evaluated = evaluate_positions(model, [positions[row] for row in part], elos, rule).policies
            for row, (begin, end) in zip(part, pairwise(evaluated.indptr.tolist()), strict=True):
                by_row[row] = list(moves_of(evaluated.codes[begin:end])), evaluated.probabilities[begin:end]
    yield from (by_row[row] for row in range(len(sides)))


def fitted(scores: Scores, anchor: Player) -> dict[Player, tuple[float, float]]:
    """Elo of each player above the anchor, and its standard error.

    The Bradley-Terry model by Newton's method, with draws as halves. It takes a draw for as uncertain as a win, so that
    the errors are rather too large. The prior pulls each player towards the anchor by little.
    """
    players = sorted({player for pair in scores for player in pair} - {anchor})
    games = np.array([len(results) for results in scores.values()])
    points = np.array([sum(results) for results in scores.values()])
    design = np.array([[(one == a) - (one == b) for one in players] for a, b in scores], dtype=float)
    prior = (_NAT / PRIOR) ** 2
    strength, step = np.zeros(len(players)), np.ones(len(players))
    while abs(step).max() > 1e-9:
        expected = 1 / (1 + np.exp(-design @ strength))
        information = (design.T * (games * expected * (1 - expected))) @ design + prior * np.eye(len(players))
        step = np.linalg.solve(information, design.T @ (points - games * expected) - prior * strength).clip(-1, 1)
        strength += step
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    return {anchor: (0.0, 0.0)} | {
        player: (_NAT * float(strength[place]), _NAT * float(errors[place])) for place, player in enumerate(players)
    }


def rows_of(elo: dict[Player, float], errors: dict[Player, float]) -> list[dict[str, float]]:
    """The most human players that reach each strength, rising by it: at the highest temperature as many ratings as rise
    in strength, and beyond them the strongest player of each lower temperature."""
    first, *lower = sorted({player.temperature for player in elo if not player.nodes}, reverse=True)
    players = sorted(player for player in elo if player.temperature == first)
    subsets = (part for size in range(len(players), 0, -1) for part in combinations(players, size))
    chosen = list(next(part for part in subsets if all(round(elo[a]) < round(elo[b]) for a, b in pairwise(part))))
    for temperature in lower:
        strongest = max((player for player in elo if player.temperature == temperature), key=elo.__getitem__)
        if round(elo[strongest]) > round(elo[chosen[-1]]):
            chosen.append(strongest)
    return [
        {"elo": round(elo[one]), "error": round(errors[one]), "rating": one.rating, "temperature": one.temperature}
        for one in chosen
    ]


def measured(contract: Path, pairs: Sequence[Pair], games: int, jobs: int) -> dict[str, Any]:
    """All that strength.json holds, from games played in so many processes."""
    stockfish = shutil.which("stockfish", path=os.environ.get("PATH", "") + os.pathsep + "/usr/games")
    version = None
    if stockfish and any(second.nodes for _, second in pairs):
        with SimpleEngine.popen_uci(stockfish) as engine:
            version = engine.id["name"]
    else:
        pairs = [pair for pair in pairs if not pair[1].nodes]
    starts = with_openings(pairs, games)
    shares = [starts[worker::jobs] for worker in range(jobs)]
    scores: Scores = {pair: [] for pair in pairs}
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for part in pool.map(partial(played, contract, stockfish if version else None), shares, range(jobs)):
            for pair, results in part.items():
                scores[pair] += results
    strengths = fitted(scores, ANCHOR)
    elo = {player: ANCHOR.rating + above for player, (above, _) in strengths.items()}
    return {
        "model": contract.stem,
        "digest": read_contract(contract).network.digest,
        "date": date.today().isoformat(),
        "games": sum(map(len, scores.values())),
        "stockfish": version,
        "players": [
            asdict(player) | {"elo": round(elo[player], 1), "error": round(strengths[player][1], 1)}
            for player in sorted(strengths)
        ],
        "pairs": [
            {
                "players": [str(first), str(second)],
                "games": len(results),
                "score": round(float(np.mean(results)), 4),
                "expected": round(1 / (1 + math.exp((elo[second] - elo[first]) / _NAT)), 4),
            }
            for (first, second), results in scores.items()
        ],
        "rows": rows_of(elo, {player: error for player, (_, error) in strengths.items()}),
    }


def table(figures: dict[str, Any], command: str) -> str:
    """The figures as Markdown."""
    strengths = {
        (one["rating"], one["temperature"]): f"{one['elo']:.0f} ± {one['error']:.0f}" for one in figures["players"]
    }
    ratings, temperatures = (sorted({key[at] for key in strengths if key[0]}) for at in (0, 1))
    temperatures.reverse()
    lines = [
        f"# Strength of {figures['model']}",
        "",
        f"`{command}` wrote this on {figures['date']}, from {figures['games']:,} games against itself and "
        f"{figures['stockfish'] or 'no other engine (Stockfish is not installed)'}; ± is one standard error.",
        f"Elo here is tied to lichess's at one point: rating {ANCHOR.rating} at temperature {ANCHOR.temperature:g} is "
        f"{ANCHOR.rating}, and 400 points more are ten points for each one of the opponent's.",
        "",
        "| rating told | " + " | ".join(f"temperature {one:g}" for one in temperatures) + " |",
        "|--:|" + "--:|" * len(temperatures),
    ]
    lines += [
        f"| {rating} | " + " | ".join(strengths[rating, temperature] for temperature in temperatures) + " |"
        for rating in ratings
    ]
    if figures["stockfish"]:
        lines += ["", f"| {figures['stockfish']}, nodes a move | Elo |", "|--:|--:|"]
        lines += [
            f"| {one['nodes']:,} | {one['elo']:.0f} ± {one['error']:.0f} |"
            for one in figures["players"]
            if one["nodes"]
        ]
    lines += ["", "`UCI_Elo` plays as these, the most human for each strength, and is interpolated between them:", ""]
    lines += ["| Elo | rating | temperature |", "|--:|--:|--:|"]
    lines += [f"| {row['elo']} | {row['rating']} | {row['temperature']:g} |" for row in figures["rows"]]
    return "\n".join(lines) + "\n"


def write_card(contract: Path, rows: Sequence[dict[str, float]]) -> None:
    """Puts the rows into a card, in the place of older ones, and leaves the rest of the file as it is."""
    document = tomlkit.parse(contract.read_text(encoding="utf-8"))
    document.get("card", {}).pop("strength", None)
    keys = ("elo", "error", "rating", "temperature")
    tables = ["\n".join(["[[card.strength]]", *(f"{key} = {row[key]}" for key in keys if key in row)]) for row in rows]
    contract.write_text("\n\n".join([tomlkit.dumps(document).rstrip(), *tables]) + "\n", encoding="utf-8")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="its name")
    parser.add_argument("--models-dir", type=Path, default=shipped_models())
    parser.add_argument(
        "--games",
        type=int,
        default=60,
        help=f"of each of {len(schedule(RATINGS, NODES))} pairs, half with each colour; default 60",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; as many as cores if left out")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of strength.json and strength.md")
    parser.add_argument("--write", action="store_true", help="put the rows into the model's card as [[card.strength]]")
    arguments = parser.parse_args()
    if min(arguments.games, arguments.jobs) < 1:
        parser.error("--games and --jobs: at least 1")
    arguments.out.mkdir(parents=True, exist_ok=True)  # before the games, not after them
    contract = arguments.models_dir / f"{arguments.model}.toml"
    try:
        read = read_contract(contract)
        ratings = [rating for rating in RATINGS if read.elo.minimum <= rating <= read.elo.maximum]
        if not read.takes_elo or ANCHOR.rating not in ratings:
            parser.error(f"{arguments.model} takes no rating of {ANCHOR.rating}, from which strengths are counted")
        figures = measured(contract, schedule(ratings, NODES), arguments.games, arguments.jobs)
    except MovemaskError as error:
        raise SystemExit(str(error)) from None
    command = (
        f"python -m benchmarks.strength --model {arguments.model} --games {arguments.games} --jobs {arguments.jobs}"
    )
    (arguments.out / "strength.json").write_text(json.dumps(figures | {"command": command}, indent=1) + "\n")
    (arguments.out / "strength.md").write_text(table(figures, command))
    if arguments.write:
        write_card(contract, figures["rows"])
    print(table(figures, command))


if __name__ == "__main__":
    main()
