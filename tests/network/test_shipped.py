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

NAME = "movemask-4"
#: Largest difference of a logit, or of a value's probability, between torch and onnxruntime, both float32.
FLOAT_TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def stored() -> dict[str, NDArray[Any]]:
    with np.load(DATA / f"{NAME}.sample.npz") as arrays:
        return dict(arrays)


def test_the_file_answers_as_torch_did(stored: dict[str, NDArray[Any]]) -> None:
    planes = movemask_planes.expand(stored["bitboards"], stored["halfmove"], stored["black"], movemask_planes.PLANES)
    session = OnnxSession(ROOT / "models" / f"{NAME}.onnx", threads=1)
    ratings = {key: stored[key] for key in ("elo_self", "elo_opponent")}
    logits, value = session.run({"planes": planes, **ratings}, ["logits", "value"])
    np.testing.assert_allclose(logits, stored["logits"], atol=FLOAT_TOLERANCE, rtol=0)
    np.testing.assert_allclose(value, stored["value"], atol=FLOAT_TOLERANCE, rtol=0)


def test_the_card_names_data_licence_training_and_figures() -> None:
    entry = load_entry(ROOT / "models" / f"{NAME}.toml", threads=1)
    assert entry.contract is not None
    card = entry.contract.card
    for key in ("purpose", "source", "licence", "data", "games", "steps", "hardware", "date", "limits", "measured"):
        assert card[key]
    assert entry.contract.calibration is not None
    assert (ROOT / "models" / f"{NAME}.report.md").exists()
