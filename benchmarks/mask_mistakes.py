"""What each mistake of masking or reading costs a network: `python -m benchmarks.mask_mistakes MODELS_FOLDER NAME…`.

Over probes of the diagnosis from the bare FEN, against the right policy: in how many positions another move comes
first, and how much of the probability lies elsewhere (total variation), on average and at most. A mistake that shows
in some positions alone, such as those where castling is legal, is measured there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.planted_mistakes import BATCH, planted_contracts
from movemask.errors import MovemaskError
from movemask.evaluate import Evaluated, evaluate_positions
from movemask.network.model import Model
from movemask.network.registry import open_model
from movemask.network_tools.diagnosis import Probe, probes
from movemask.policy.ragged import Float

#: The positions in which a mistake can show; all for the others.
SHOWS: dict[str, Callable[[Probe], bool]] = {
    "castling_slot": lambda probe: any(map(probe.position.board.is_castling, probe.position.board.legal_moves)),
    "promotion_order": lambda probe: any(move.promotion for move in probe.position.board.legal_moves),
    "bare_promotion": lambda probe: any(move.promotion for move in probe.position.board.legal_moves),
    "slots_rotated": lambda probe: probe.position.black,
    "planes_unmirrored": lambda probe: probe.position.black,
    "planes_rotated": lambda probe: probe.position.black,
}


def policies_of(model: Model, some: Sequence[Probe]) -> Iterator[tuple[Evaluated, int]]:
    """Each position's row."""
    for start in range(0, len(some), BATCH):
        part = some[start : start + BATCH]
        evaluated = evaluate_positions(model, [probe.position for probe in part], [probe.elo for probe in part])
        yield from ((evaluated, row) for row in range(len(part)))


def by_slot(evaluated: Evaluated, row: int) -> Float:
    """The probabilities of a position's legal moves, in the order of their codes, which name moves and not slots."""
    moves = evaluated.batch.legal(row)
    legal = evaluated.unmasked.legal_logits[moves][np.argsort(evaluated.batch.codes[moves])]
    weights: Float = np.exp(legal - legal.max())
    return weights / weights.sum()


def told(name: str, right: Sequence[Float], wrong: Sequence[Float]) -> None:
    """A row of the table."""
    flips = np.mean([one.argmax() != other.argmax() for one, other in zip(right, wrong, strict=True)])
    apart = [np.abs(one - other).sum() / 2 for one, other in zip(right, wrong, strict=True)]
    figures = f"{100 * flips:.1f} % | {100 * np.mean(apart):.1f} % | {100 * np.max(apart):.0f} %"
    print(f"| {name} | {len(right):,} | {figures} |", flush=True)


def main() -> None:
    """A table for each network."""
    some = [p.bare for p in probes() if p.group in ("general", "castling", "promotion", "clock", "en_passant")]
    for name in sys.argv[2:]:
        right = open_model(Path(sys.argv[1]) / f"{name}.toml", threads=1)
        rows = list(policies_of(right, some))
        correct = [by_slot(*row) for row in rows]
        print(f"\n**{name}**\n\n| mistake | positions | another move first | probability elsewhere, mean | most |")
        print("|---|--:|--:|--:|--:|")
        raw = [np.append(policy, 0) * (1 - one.raw[row]) for policy, (one, row) in zip(correct, rows, strict=True)]
        padded = [np.append(policy, 0) for policy in correct]
        for words, policies in (
            ("no mask at all", raw),
            (
                "softmax(logits * mask)",
                [np.append(p, 0) * (1 - one.multiplied[r]) for p, (one, r) in zip(correct, rows, strict=True)],
            ),
        ):
            told(words, padded, [np.append(p[:-1], 1 - p[:-1].sum()) for p in policies])
        for words, contract in planted_contracts(right.contract):
            shows = SHOWS.get(words.split(":")[0].strip("`"), lambda _: True)
            places = [place for place, probe in enumerate(some) if shows(probe)]
            if "value" in words or not places:
                continue
            wrong = Model(right.name, right.digest, contract, right.session)
            try:
                misread = [by_slot(*row) for row in policies_of(wrong, [some[place] for place in places])]
            except MovemaskError:
                print(f"| {words} | {len(places):,} | cannot be read | | |")
                continue
            told(words, [correct[place] for place in places], misread)


if __name__ == "__main__":
    main()
