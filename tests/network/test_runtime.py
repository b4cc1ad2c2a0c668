"""The shipped network in onnxruntime: against torch, threads, providers, its card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from scipy.special import softmax

from movemask.errors import SettingsError
from movemask.network.files import shipped_models
from movemask.network.onnx import OnnxSession, Provider, provider_named
from movemask.network.registry import load_entry
from tests.conftest import ROOT
from tests.ground_truth import DATA

NAME = "movemask-8"
#: Largest differences from torch. The file has its large products in 8-bit integers, and torch answered without that
#: rounding: these are about twice what it was measured to change (0.27 of a logit, 0.009 of a probability, 0.044 of the
#: probability of a win).
LOGIT, PROBABILITY, VALUE = 0.5, 0.02, 0.09


@pytest.fixture(scope="module")
def stored() -> dict[str, NDArray[Any]]:
    with np.load(DATA / f"{NAME}.sample.npz") as arrays:
        return dict(arrays)


def test_shipped_network_matches_torch(stored: dict[str, NDArray[Any]]) -> None:
    session = OnnxSession(ROOT / "models" / f"{NAME}.onnx", threads=1)
    ratings = {key: stored[key] for key in ("elo_self", "elo_opponent")}
    logits, value = session.run({"planes": stored["planes"].astype(np.float32), **ratings}, ["logits", "value"])
    np.testing.assert_allclose(logits, stored["logits"], atol=LOGIT, rtol=0)
    np.testing.assert_allclose(softmax(logits, axis=1), softmax(stored["logits"], axis=1), atol=PROBABILITY, rtol=0)
    np.testing.assert_allclose(value, stored["value"], atol=VALUE, rtol=0)


def test_card_names_data_licence_and_figures() -> None:
    entry = load_entry(ROOT / "models" / f"{NAME}.toml", threads=1)
    assert entry.contract is not None
    card = entry.contract.card
    for key in ("purpose", "source", "licence", "data", "games", "steps", "hardware", "date", "limits", "measured"):
        assert card[key]
    assert entry.contract.calibration is not None
    assert (ROOT / "models" / f"{NAME}.report.md").exists()


CUDA = "CUDAExecutionProvider"


def test_missing_provider_is_named() -> None:
    assert provider_named("cpu") is Provider.CPU
    if CUDA in ort.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    with pytest.raises(SettingsError, match=f"MOVEMASK_PROVIDER: 'cuda' needs {CUDA}.*install onnxruntime-gpu"):
        provider_named("cuda")


def test_parallel_runs_match_one_run() -> None:
    file = shipped_models() / f"{NAME}.onnx"
    session, pair = OnnxSession(file, threads=2), OnnxSession(file, threads=1, runs=2)
    assert (session.runs, pair.runs) == (1, 2)
    rng = np.random.default_rng(0)
    feeds = {
        info.name: rng.random((3, *(size or 1 for size in info.shape[1:]))).astype(info.dtype)
        for info in session.inputs
    }
    names = [info.name for info in session.outputs]
    for alone, beside in zip(session.run(feeds, names), pair.run(feeds, names), strict=True):
        np.testing.assert_allclose(alone, beside, rtol=1e-4, atol=1e-4)


def test_gpu_matches_cpu(tmp_path: Path) -> None:
    if CUDA not in ort.get_available_providers():
        pytest.skip(f"onnxruntime has no {CUDA}: a machine with a GPU and onnxruntime-gpu is needed")
    entry = load_entry(shipped_models() / f"{NAME}.toml", 1, Provider.CUDA)
    assert entry.model is not None, entry.failure
    assert entry.model.session.runs == 2
