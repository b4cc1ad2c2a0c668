"""What a user would lose: the network that was trained, in the file that is shipped. Torch's own answers are stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from movemask.encoding import movemask_planes
from movemask.network.onnx import OnnxSession
from movemask.network.registry import load_entry
from tests.conftest import ROOT
from tests.ground_truth import DATA

NAME = "movemask-3"
#: Largest difference of a logit, or of a value's probability, between torch and onnxruntime, both float32.
FLOAT_TOLERANCE = 1e-3
#: Mean total variation between the policies over all slots of torch's floats and of 8-bit integers.
INTEGER_TOLERANCE = 0.08

VARIANTS = sorted(file.stem for file in (ROOT / "models").glob(f"{NAME}*.toml"))


@pytest.fixture(scope="module")
def stored() -> dict[str, NDArray[Any]]:
    with np.load(DATA / f"{NAME}.sample.npz") as arrays:
        return dict(arrays)


def answers(name: str, stored: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    planes = movemask_planes.expand(
        stored["bitboards"], stored["halfmove"], stored["black"], movemask_planes.LAST_MOVES
    )
    session = OnnxSession(ROOT / "models" / f"{name}.onnx", threads=1)
    ratings = {key: stored[key] for key in ("elo_self", "elo_opponent")}
    return session.run({"planes": planes, **ratings}, ["logits", "value"])


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def test_both_variants_are_shipped_and_one_says_that_it_is_the_other() -> None:
    assert len(VARIANTS) == 2
    weights = set()
    for name in VARIANTS:
        entry = load_entry(ROOT / "models" / f"{name}.toml", threads=1)
        assert entry.model is not None, entry.failure
        assert entry.contract is not None
        weights.add(entry.contract.card["variant"]["weights"])
    assert weights == {"fp32", "int8"}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_file_answers_as_torch_did(name: str, stored: dict[str, NDArray[Any]]) -> None:
    entry = load_entry(ROOT / "models" / f"{name}.toml", threads=1)
    assert entry.contract is not None
    logits, value = answers(name, stored)
    if entry.contract.card["variant"]["weights"] == "fp32":
        np.testing.assert_allclose(logits, stored["logits"], atol=FLOAT_TOLERANCE, rtol=0)
        np.testing.assert_allclose(value, stored["value"], atol=FLOAT_TOLERANCE, rtol=0)
    else:
        apart = np.abs(softmax(logits) - softmax(stored["logits"])).sum(axis=1) / 2
        assert apart.mean() < INTEGER_TOLERANCE
        assert np.abs(value - stored["value"]).mean() < INTEGER_TOLERANCE


def test_the_card_names_data_licence_training_and_figures() -> None:
    entry = load_entry(ROOT / "models" / f"{NAME}.toml", threads=1)
    assert entry.contract is not None
    card = entry.contract.card
    for key in ("purpose", "source", "licence", "data", "games", "steps", "hardware", "date", "limits", "measured"):
        assert card[key]
    assert entry.contract.calibration is not None
    assert (ROOT / "models" / f"{NAME}.report.md").exists()
