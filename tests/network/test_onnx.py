"""What an operator would lose: a GPU that is asked for and not there is said, never silently the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from movemask.errors import SettingsError
from movemask.network.onnx import OnnxSession, Provider, provider_named
from movemask.network.registry import load_entry
from movemask.settings import shipped_models

CUDA = "CUDAExecutionProvider"


def test_a_provider_that_is_not_there_is_named() -> None:
    assert provider_named("cpu") is Provider.CPU
    if CUDA in ort.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    with pytest.raises(SettingsError, match=f"MOVEMASK_PROVIDER: 'cuda' needs {CUDA}.*install onnxruntime-gpu"):
        provider_named("cuda")


def test_one_run_on_all_threads_and_runs_side_by_side_say_the_same() -> None:
    file = shipped_models() / "movemask-4.onnx"
    session, pair = OnnxSession(file, threads=2), OnnxSession(file, threads=1, runs=2)
    assert (session.at_once, pair.at_once) == (1, 2)
    rng = np.random.default_rng(0)
    feeds = {
        info.name: rng.random((3, *(size or 1 for size in info.shape[1:]))).astype(info.dtype)
        for info in session.inputs
    }
    names = [info.name for info in session.outputs]
    for alone, beside in zip(session.run(feeds, names), pair.run(feeds, names), strict=True):
        np.testing.assert_allclose(alone, beside, rtol=1e-4, atol=1e-4)


def test_a_network_on_a_gpu_answers_as_on_the_cpu(tmp_path: Path) -> None:
    if CUDA not in ort.get_available_providers():
        pytest.skip(f"onnxruntime has no {CUDA}: a machine with a GPU and onnxruntime-gpu is needed")
    entry = load_entry(shipped_models() / "movemask-4.toml", 1, Provider.CUDA)
    assert entry.model is not None, entry.failure
    assert entry.model.session.at_once == 2
