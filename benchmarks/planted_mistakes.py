"""Plants each known mistake in a right contract and says what the diagnosis finds and what the mistake costs.

python -m benchmarks.planted_mistakes MODELS_FOLDER NAME > benchmarks/results/planted-mistakes.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from movemask.board.position import Position
from movemask.encoding.lc0 import HistoryFill
from movemask.encoding.variations import variation, variation_names
from movemask.encoding.vocabularies import vocabulary
from movemask.errors import MovemaskError
from movemask.network.check import check
from movemask.network.contract import Contract
from movemask.network.model import Model
from movemask.network.registry import open_model
from movemask.pipeline import evaluate_positions
from movemask.tasks.diagnosis import Finding, diagnose
from movemask.tasks.probes import Probe, probes

BATCH = 64


def planted(contract: Contract) -> Iterator[tuple[str, Contract]]:
    """Each mistake in words, and the contract with it."""
    terms = contract.contract
    for name in variation_names():
        if variation(name).applies(terms.planes, vocabulary(terms.vocabulary)):
            changed = terms.model_copy(update={"variations": (name,)})
            yield f"`{name}`: {variation(name).words}", contract.model_copy(update={"contract": changed})
    if terms.planes == "lc0-112":
        changed = terms.model_copy(update={"history_fill": HistoryFill.NO})
        yield '`history_fill = "no"`: history planes left empty', contract.model_copy(update={"contract": changed})
    value = contract.outputs.value
    if value is not None:
        for words, update in (
            ("the value's order inverted", {"order": "loss_draw_win"}),
            ("the value softmaxed twice", {"softmaxed": not value.softmaxed}),
            ("the value taken as White's", {"point_of_view": "white"}),
        ):
            outputs = contract.outputs.model_copy(update={"value": value.model_copy(update=update)})
            yield words, contract.model_copy(update={"outputs": outputs})


def cost(right: Model, wrong: Model, part: list[Probe]) -> tuple[float, float] | None:
    """Share of positions whose top move changes, and the mean total variation between the policies."""
    flips, variations = [], []
    try:
        for start in range(0, len(part), BATCH):
            some = part[start : start + BATCH]
            both = [_by_move(model, some) for model in (right, wrong)]
            for one, other in zip(*both, strict=True):
                flips.append(max(one, key=one.__getitem__) != max(other, key=other.__getitem__))
                variations.append(sum(abs(one[move] - other[move]) for move in one) / 2)
    except MovemaskError:  # a contract that cannot be read at all has no policy to compare
        return None
    return float(np.mean(flips)), float(np.mean(variations))


def _by_move(model: Model, part: list[Probe]) -> list[dict[int, float]]:
    """The policy of each position by move (`move_codes`)."""
    evaluated = evaluate_positions(model, [probe.position for probe in part], [probe.elo for probe in part])
    codes, probabilities, indptr, _ = evaluated.policies.lists
    return [dict(zip(codes[a:b], probabilities[a:b], strict=True)) for a, b in pairwise(indptr)]


def _row(words: str, changed: tuple[float, float] | None, caught: str, found: Finding | None) -> str:
    policy = "cannot be read" if changed is None else f"{100 * changed[0]:.1f} % / {changed[1]:.4f}"
    figures = ["", "", "", ""]
    if found is not None:
        numbers = (found.leakage, found.moves, found.result)
        figures = [f"{found.z:.1f}", *("" if number is None else f"{number:+.4f}" for number in numbers)]
    return f"| {words} | {policy} | {caught} | {' | '.join(figures)} |"


def main() -> None:
    """The command."""
    folder, name = Path(sys.argv[1]), sys.argv[2]
    right = open_model(folder / f"{name}.toml", threads=int(sys.argv[3]) if len(sys.argv) > 3 else 2)
    found = diagnose(right)
    general = [
        Probe(p.group, Position(p.position.board.copy(stack=False)), p.played, p.elo, p.result)
        for p in probes()
        if p.group in ("general", "castling", "promotion", "clock", "en_passant")
    ]
    print(f"# Planted mistakes: {name}\n")
    command = f"python -m benchmarks.planted_mistakes MODELS_FOLDER {name}"
    print(f"Made by `{command}`, each mistake alone in a right contract.\n")
    print("On the right contract: " + ("quiet." if not found.better else f"**{found.better[0].advice}**") + "\n")
    print(
        "Policy: share of positions whose top move changes / mean total variation between the two policies, over "
        f"{len(general):,} probes from the bare FEN. z and the means are those of the finding that names the mistake: "
        "how much better it is to read without it (ln raw leakage below 0, ln probabilities above 0).\n"
    )
    print("| mistake | policy changes | caught by | z | ln leakage | ln moves | ln result |")
    print("|---|---|---|---|---|---|---|")
    for words, contract in planted(right.contract):
        wrong = Model(right.name, right.digest, contract, right.session)
        steps = check(wrong)
        diagnosis = diagnose(wrong)
        named = diagnosis.better[0] if diagnosis.better else None
        ways = [] if steps[-1].passed else [f"check, step `{steps[-1].name}`"]
        ways += [f"diagnosis: {named.name}"] if named else []
        print(_row(words, cost(right, wrong, general), "; ".join(ways) or "**nothing**", named), flush=True)


if __name__ == "__main__":
    main()
