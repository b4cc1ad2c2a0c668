"""Networks on held-out games, asked through the service: `python -m benchmarks.networks RUN.toml --models-dir DIR`.

For each model the share of played moves that it puts first and the mean of -ln of their probability, from the FEN alone
and with the moves before it, at the players' ratings. The games are a run's test split (`python -m training.data`).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.servers import movemask
from movemask.network.files import ModelFolders
from training.config import load_run
from training.samples import Sample, samples

A_CALL = 256


def positions(chosen: Sequence[Sample], *, moves: bool) -> list[dict[str, Any]]:
    """The requests' positions: with the last moves before each, or without."""
    found = []
    for sample in chosen:
        board = sample.position.board.copy()
        line = [move.uci() for move in board.move_stack] if moves else []
        for _ in line:
            board.pop()
        elo = {"self": sample.elo.self, "opponent": sample.elo.opponent}
        found.append({"fen": board.fen(en_passant="fen"), "moves": line, "elo": elo})
    return found


def answers(port: int, model: str, asked: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    """The policy of each position, by move."""
    found: list[dict[str, float]] = []
    for start in range(0, len(asked), A_CALL):
        body = json.dumps({"model": model, "positions": asked[start : start + A_CALL]}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/policy/batch", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            results = json.load(answer)["results"]
        found += [{move["uci"]: move["probability"] for move in result["moves"]} for result in results]
    return found


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-5.toml")
    parser.add_argument("--models-dir", type=Path, required=True)
    parser.add_argument("--games", type=int, default=2_000)
    parser.add_argument("--per-game", type=int, default=2, help="positions of each game")
    arguments = parser.parse_args()
    run = load_run(arguments.run)
    everything = samples(run.data, "test", arguments.per_game, run.seed)
    chosen = random.Random(run.seed).sample(everything, min(arguments.games * arguments.per_game, len(everything)))
    names = ModelFolders.of(arguments.models_dir).files(None)
    print(f"{len(chosen):,} positions\n\n| model | from | top-1 | cross-entropy |\n|---|---|--:|--:|")
    with movemask(arguments.models_dir, next(iter(names)), client_rate=0) as server:
        for name in names:
            for moves in (False, True):
                policies = answers(server.port, name, positions(chosen, moves=moves))
                first = sum(
                    next(iter(policy)) == one.played.uci() for policy, one in zip(policies, chosen, strict=True)
                )
                surprise = sum(
                    -math.log(policy[one.played.uci()]) for policy, one in zip(policies, chosen, strict=True)
                )
                known = "the moves" if moves else "the FEN"
                print(f"| {name} | {known} | {first / len(chosen):.1%} | {surprise / len(chosen):.3f} |", flush=True)


if __name__ == "__main__":
    main()
