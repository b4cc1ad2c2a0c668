"""The contract check: each step's pass and failures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from movemask.evaluate import Answer, Query, run_queries
from movemask.network.check import check
from movemask.network.registry import Entry, load_entry, open_model
from tests.networks import ONNX_TOML, Tensor, fake_model, fixed_model, write_judge, write_named


def judged(folder: Path, toml: str = ONNX_TOML, **arguments: object) -> Entry:
    write_judge(folder / "net.onnx", **arguments)  # type: ignore[arg-type]
    (folder / "net.toml").write_text(toml)
    return load_entry(folder / "net.toml", threads=1)


def test_right_network_passes_every_step(tmp_path: Path) -> None:
    entry = judged(tmp_path)
    assert entry.model is not None
    assert [step.name for step in entry.steps] == ["tensors", "outputs", "batches", "value"]
    assert all(step.passed for step in entry.steps)
    assert entry.steps[-1].found.startswith("won positions score 1.00, lost 0.00; with Black to move 1.00 and 0.00")


def test_value_in_another_order_fails(tmp_path: Path) -> None:
    entry = judged(tmp_path, inverted=True)
    assert entry.model is None
    assert entry.failure is not None
    assert "won positions score 0.00 and lost ones 1.00" in entry.failure
    assert "outputs.value.order" in entry.failure
    assert judged(tmp_path, ONNX_TOML + 'order = "loss_draw_win"\n', inverted=True).model is not None


def test_value_of_white_fails_with_black_to_move(tmp_path: Path) -> None:
    toml = ONNX_TOML.replace("maia2-18", "lc0-112")
    entry = judged(tmp_path, toml, for_white=True)
    assert entry.failure is not None
    assert "with Black to move, won positions score 0.00 and lost ones 1.00" in entry.failure
    assert entry.failure.endswith("is outputs.value.point_of_view 'white'?")
    right = judged(tmp_path, toml + 'point_of_view = "white"\n', for_white=True)
    assert right.model is not None
    wrong = judged(tmp_path, ONNX_TOML + 'point_of_view = "white"\n')
    assert (wrong.failure or "").endswith("is outputs.value.point_of_view 'side_to_move'?")


def test_probabilities_called_logits_fail(tmp_path: Path) -> None:
    """A second softmax would make every forecast nearly even."""
    outputs = [Tensor("logits", (1880,)), Tensor("value", (3,))]
    write_named(tmp_path / "net.onnx", [Tensor("planes", (18, 8, 8))], outputs, softmaxed="value")
    (tmp_path / "net.toml").write_text(ONNX_TOML)
    failure = load_entry(tmp_path / "net.toml", threads=1).failure
    assert failure is not None
    assert failure.endswith("'value' are probabilities already, not logits: write softmaxed = true")
    (tmp_path / "net.toml").write_text(ONNX_TOML.replace("softmaxed = false", "softmaxed = true"))
    failure = load_entry(tmp_path / "net.toml", threads=1).failure or ""
    assert "softmaxed" not in failure


@pytest.mark.parametrize(
    ("fault", "step", "words"),
    [
        ("blind", "outputs", "every position gets the same logits: the network ignores its input"),
        ("moody", "batches", "the same batch gets different logits the second time"),
        ("crowded", "batches", "different logits alone than in a batch of 8"),
        ("nan", "outputs", "output 'logits' holds nan for the legal move e1e2 in '4k3/8/8/8/8/8/4q3/4K3 w - - 0 60'"),
        ("nan value", "outputs", "output 'value', the value, holds NaN or infinity in '4k3/8/8/8/8/8/4q3/4K3 w"),
    ],
)
def test_faulty_networks_fail_a_step(fault: str, step: str, words: str, tmp_path: Path) -> None:
    entry = judged(tmp_path, faults=(fault,))
    assert entry.model is None
    assert entry.failure is not None
    assert words in entry.failure
    assert entry.steps[-1].name == step
    assert not entry.steps[-1].passed


def test_nonfinite_logits_fail() -> None:
    step = check(fixed_model(np.full(1880, np.nan)))[-1]
    assert step.found.startswith("output 'logits' holds nan for the legal move b1a3 in 'rnbqkbnr/")


@pytest.mark.parametrize("words", ["lc0-1858", "maia2-1880", "maia3-4352", "alphazero-4672", "uci-1968"])
def test_vocabularies_pass(words: str) -> None:
    assert all(step.passed for step in check(fake_model(words=words)))


def test_value_that_is_nan_fails_its_position_alone(tmp_path: Path) -> None:
    """A NaN in the value of one position once failed the whole batch."""
    write_judge(tmp_path / "net.onnx", faults=("nan value",))
    (tmp_path / "net.toml").write_text(ONNX_TOML)
    behind = "4k3/8/8/8/8/8/4q3/4K3 w - - 0 60"
    outcomes, _ = run_queries(open_model(tmp_path / "net.toml", 1), [Query(), Query(fen=behind)], [0.0, 0.0])
    assert isinstance(outcomes[0], Answer)
    assert str(outcomes[1]) == f"model net: output 'value', the value, is NaN or infinite in {behind!r}"
