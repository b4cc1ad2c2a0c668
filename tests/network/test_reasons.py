"""Reasons taken from onnxruntime's messages."""

from __future__ import annotations

import pytest

from movemask.network.onnx import reason_of


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (
            "[ONNXRuntimeError] : 1 : FAIL : Load model from m.onnx failed:/onnxruntime_src/onnxruntime/core/graph/"
            "model.cc:256 onnxruntime::Model::Model(onnx::ModelProto&&, const PathString&, const ModelOptions&) "
            "Unsupported model IR version: 99, max supported IR version: 13\n",
            "Load model from m.onnx failed: Unsupported model IR version: 99, max supported IR version: 13",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : /src/x/reshape_helper.h:84 onnxruntime::ReshapeHelper::ReshapeHelper("
            "const onnxruntime::TensorShape&, bool) size != 0 && (input_shape_size % size) == 0 was false. The input "
            "tensor cannot be reshaped",
            "size != 0 && (input_shape_size % size) == 0 was false. The input tensor cannot be reshaped",
        ),
        (
            "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Exception: /src/a.cc:12 void onnxruntime::f(int) [with T = "
            "std::vector<int>] No space left",
            "Exception: No space left",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : /src/a.cpp:7 onnxruntime::g(const X&)::<lambda(const auto&)> const Bad "
            "axis (3)",
            "Bad axis (3)",
        ),
        (
            "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: x for the following "
            "indices\n index: 1 Got: 17 Expected: 18\n Please fix either the inputs/outputs or the model.",
            "Got invalid dimensions for input: x for the following indices index: 1 Got: 17 Expected: 18 Please fix "
            "either the inputs/outputs or the model.",
        ),
        ("[ONNXRuntimeError] : 1 : FAIL : model.cc:5 Bad file (truncated) here", "Bad file (truncated) here"),
        ("plain words", "plain words"),
    ],
)
def test_reason_without_signatures(raised: str, reason: str) -> None:
    assert reason_of(RuntimeError(raised)) == reason


def test_long_reason_keeps_its_beginning() -> None:
    assert reason_of(RuntimeError("word " * 200)) == ("word " * 60)[:300] + "…"
