"""Plants mistakes in a right contract and in a right network; says what the diagnosis finds and what each costs.

A mistake in the network is planted where its inputs and outputs pass, as if its graph began or ended with it.

python -m benchmarks.planted_mistakes MODELS_FOLDER NAME [WORD…] > benchmarks/results/planted-mistakes-NAME.md

With WORDs, only mistakes that hold one of them. A mistake takes half a minute of a core.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from movemask.encoding.lc0 import HistoryFill
from movemask.encoding.variations import variation, variation_names
from movemask.errors import MovemaskError
from movemask.evaluate import evaluate_positions
from movemask.network.check import check
from movemask.network.contract import Contract
from movemask.network.model import Array, Model
from movemask.network.registry import open_model
from movemask.network_tools.alternatives import Altered, Change
from movemask.network_tools.diagnosis import Diagnosis, Finding, Probe, diagnose, probes

BATCH = 64


#: By encoder: blocks of history and planes of a block, the castling planes and the en-passant plane.
_PLANES: dict[str, tuple[int, int, list[int], list[int]]] = {
    "lc0-112": (8, 13, [104, 105, 106, 107], []),
    "maia2-18": (1, 12, [13, 14, 15, 16], [17]),
    "movemask-tokens-99": (8, 12, [96, 97], [98]),
}


def planted_contracts(contract: Contract) -> Iterator[tuple[str, Contract]]:
    """Each mistake in words, and the contract with it."""
    terms = contract.terms
    for name in variation_names():
        if variation(name).applies(terms.planes, terms.unvaried_vocabulary):
            changed = terms.model_copy(update={"variations": (name,)})
            yield f"`{name}`: {variation(name).words}", contract.model_copy(update={"terms": changed})
    if terms.planes == "lc0-112":
        changed = terms.model_copy(update={"history_fill": HistoryFill.NO})
        yield '`history_fill = "no"`: history planes left empty', contract.model_copy(update={"terms": changed})
    value = contract.outputs.value
    if value is not None:
        for words, update in (
            ("the value's order inverted", {"order": "loss_draw_win"}),
            ("the value softmaxed twice", {"softmaxed": not value.softmaxed}),
            ("the value taken as White's", {"point_of_view": "white"}),
        ):
            outputs = contract.outputs.model_copy(update={"value": value.model_copy(update=update)})
            yield words, contract.model_copy(update={"outputs": outputs})


def planted_changes(contract: Contract) -> Iterator[tuple[str, dict[str, Change]]]:
    """Each mistake of a network in words, and how it changes the inputs or outputs.

    Planes are changed as `[B, C, 8, 8]`, tokens too.
    """
    planes = contract.inputs.planes
    for words, changes in _changes(contract):
        if contract.terms.planes.endswith("tokens-99") and planes in changes:
            changes = changes | {planes: _of_tokens(changes[planes])}
        yield words, changes


def _of_tokens(change: Change) -> Change:
    """A change of planes `[B, C, 8, 8]`, of tokens `[B, 64, C]`."""

    def changed(x: Array) -> Array:
        moved = change(x.transpose(0, 2, 1).reshape(len(x), -1, 8, 8))
        return moved.reshape(len(x), -1, 64).transpose(0, 2, 1)

    return changed


def _changes(contract: Contract) -> Iterator[tuple[str, dict[str, Change]]]:
    planes, logits, value = contract.inputs.planes, contract.outputs.logits, contract.outputs.value
    words = contract.terms.slots
    blocks, size, castling, en_passant = _PLANES[contract.terms.planes]

    def pieces(order: str) -> Change:
        """The piece planes of each block in this order, six of each side."""
        ours = ["PNBRQK".index(letter) for letter in order]
        places = [*ours, *(6 + place for place in ours)]

        def change(x: Array) -> Array:
            x = x.copy()
            for start in range(0, blocks * size, size):
                x[:, start : start + 12] = x[:, [start + place for place in places]]
            return x

        return change

    def emptied(indices: list[int]) -> Change:
        def change(x: Array) -> Array:
            x = x.copy()
            x[:, indices] = 0
            return x

        return change

    def history(sources: list[int | None]) -> Change:
        """Each block of history, newest first, from the block of this number, or empty."""
        if contract.terms.planes == "movemask-tokens-99":  # oldest first
            sources = [None if b is None else 7 - b for b in reversed(sources)]

        def change(x: Array) -> Array:
            known = x[:, : 8 * size].reshape(len(x), 8, size, 8, 8)
            moved = [known[:, b] if b is not None else np.zeros_like(known[:, 0]) for b in sources]
            return np.concatenate([*moved, x[:, 8 * size :]], axis=1)

        return change

    def slots(order: list[int] | np.ndarray) -> Change:
        return lambda z: z[:, order]

    mirrored: Change = lambda x: x[..., ::-1]  # noqa: E731
    by_squares = {entry: slot for slot, entry in enumerate(words.entries) if entry}
    files = slots([by_squares.get((s ^ 7, t ^ 7, p), k) for (s, t, p), k in by_squares.items()])
    exchanged = slots([by_squares.get((t, s, p), k) for (s, t, p), k in by_squares.items()])
    promotions = [slot for entry, slot in by_squares.items() if entry[2]]
    rolled = np.arange(len(words))
    rolled[promotions] = np.roll(promotions, 1)
    yield "board transposed", {planes: lambda x: np.swapaxes(x, 2, 3)}
    yield "files mirrored, planes alone", {planes: mirrored}
    yield "files mirrored, planes and slots", {planes: mirrored, logits: files}
    yield "N and B planes exchanged", {planes: pieces("PBNRQK")}
    yield "Q and K planes exchanged", {planes: pieces("PNBRKQ")}
    yield "pieces reversed (K Q R B N P)", {planes: pieces("KQRBNP")}
    yield "B, R and Q planes moved round", {planes: pieces("PNRQBK")}
    yield "castling planes empty", {planes: emptied(castling)}
    if en_passant:
        yield "en-passant plane empty", {planes: emptied(en_passant)}
    if blocks == 8:
        yield "history reversed", {planes: history([7, 6, 5, 4, 3, 2, 1, 0])}
        yield "history without the newest position", {planes: history([1, 2, 3, 4, 5, 6, 7, None])}
        yield "history one late", {planes: history([None, 0, 1, 2, 3, 4, 5, 6])}
        yield "history of every second position", {planes: history([0, 2, 4, 6, None, None, None, None])}
    yield "slots in alphabetical order", {logits: slots(np.argsort(words.names()))}
    yield "from and to exchanged", {logits: exchanged}
    yield "slots off by one", {logits: lambda z: np.roll(z, 1, axis=1)}
    yield "promotion slots off by one", {logits: slots(rolled)}
    yield "probabilities as logits", {logits: lambda z: np.exp(z - np.logaddexp.reduce(z, axis=1, keepdims=True))}
    for factor in (2, 0.5, 0.1):
        yield f"logits x {factor}", {logits: lambda z, factor=factor: z * factor}
    yield "logits negated", {logits: np.negative}
    if value is not None:
        yield "value draw first", {value.name: lambda v: v[:, [1, 0, 2]]}
        yield "value in the order draw, loss, win", {value.name: lambda v: v[:, [1, 2, 0]]}
    ratings = [name for name in (contract.inputs.elo_self, contract.inputs.elo_opponent) if name]
    for what, change in {
        "inverted": lambda r: 3000 - r,
        "400 too high": lambda r: r + 400,
        "200 too low": lambda r: r - 200,
        "in thousands": lambda r: r * 1000,
        "clamped to 1400-1600": lambda r: np.clip(r, 1400, 1600),
        "all 1500": lambda r: np.full_like(r, 1500),
    }.items():
        if ratings:
            yield f"ratings {what}", dict.fromkeys(ratings, change)


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
    """The policy of each position by move (`board.moves`)."""
    evaluated = evaluate_positions(model, [probe.position for probe in part], [probe.elo for probe in part])
    codes, probabilities, indptr, _ = evaluated.policies.lists
    return [dict(zip(codes[a:b], probabilities[a:b], strict=True)) for a, b in pairwise(indptr)]


def _row(words: str, changed: tuple[float, float] | None, caught: str, finding: Finding | None) -> str:
    policy = "cannot be read" if changed is None else f"{100 * changed[0]:.1f} % / {changed[1]:.4f}"
    figures = ["", "", "", ""]
    if finding is not None:
        numbers = (finding.leakage, finding.moves, finding.result)
        figures = [f"{finding.z:.1f}", *("" if number is None else f"{number:+.4f}" for number in numbers)]
    return f"| {words} | {policy} | {caught} | {' | '.join(figures)} |"


def _found(diagnosis: Diagnosis) -> tuple[list[str], Finding | None]:
    """What the diagnosis says, and its first advice."""
    named = diagnosis.better[0] if diagnosis.better else None
    ways = [f"diagnosis: {named.name}"] if named else []
    if diagnosis.misread and not named:
        ways += ["diagnosis: read wrongly" + (f" ({diagnosis.chance[0].split(':')[0]})" if diagnosis.chance else "")]
    return ways, named


def main() -> None:
    """The command."""
    folder, name, *chosen = Path(sys.argv[1]), *sys.argv[2:]
    right = open_model(folder / f"{name}.toml", threads=1)
    diagnosis = diagnose(right)
    general = [p.bare for p in probes() if p.group in ("general", "castling", "promotion", "clock", "en_passant")][::4]
    print(f"# Planted mistakes: {name}\n")
    command = " ".join(("python -m benchmarks.planted_mistakes MODELS_FOLDER", name, *chosen))
    print(f"Made by `{command}`, each mistake alone.\n")
    print("On the right contract and network: " + ("**misread**" if diagnosis.misread else "quiet.") + "\n")
    print(
        "Policy: share of positions whose top move changes / mean total variation between the two policies, over "
        f"{len(general):,} probes from the bare FEN. z and the means are those of the finding that comes first: how "
        "much better it is to read like that (ln raw leakage below 0, ln probabilities above 0). *Read wrongly*: no "
        "better than chance in the kind of position named, and no known mistake explains it. Exit status 1 for all but "
        "**nothing**.\n"
    )
    contracts = [
        (words, Model(right.name, right.digest, contract, right.session))
        for words, contract in planted_contracts(right.contract)
    ]
    changes = [
        (words, Model(right.name, right.digest, right.contract, Altered(right.session, changed)))
        for words, changed in planted_changes(right.contract)
    ]
    for title, mistakes in (("In the contract", contracts), ("In the network", changes)):
        print(f"## {title}\n")
        print("| mistake | policy changes | caught by | z | ln leakage | ln moves | ln result |")
        print("|---|---|---|---|---|---|---|")
        for words, wrong in (row for row in mistakes if not chosen or any(word in row[0] for word in chosen)):
            steps = check(wrong)
            ways, named = _found(diagnose(wrong))
            ways = ([] if steps[-1].passed else [f"check, step `{steps[-1].name}`"]) + ways
            print(_row(words, cost(right, wrong, general), "; ".join(ways) or "**nothing**", named), flush=True)
        print()


if __name__ == "__main__":
    main()
