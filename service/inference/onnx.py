"""onnxruntime, the only module that imports it.

From 1.29 its official builds tell their maker about each session (model file name, graph hashes and the like) unless an
environment variable says no before it is imported. This service sends nothing anywhere, so it says no.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort

from service.errors import ContractError, InferenceFailed
from service.inference.session import Array, TensorInfo

_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
}


class OnnxSession:
    """One network in onnxruntime on the CPU: `threads` runs at once on a thread each, or one run on all of them.

    That takes two sessions, which hold the weights twice: a session's number of threads is fixed when it is made.
    """

    def __init__(self, file: Path, threads: int) -> None:
        self.at_once = threads
        self._session = _opened(file, 1)
        self._alone = self._session if threads == 1 else _opened(file, threads)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        return tuple(_info(node) for node in self._session.get_inputs())

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return tuple(_info(node) for node in self._session.get_outputs())

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str], *, alone: bool = True) -> list[Array]:
        session = self._alone if alone else self._session
        try:
            return list(session.run(list(outputs), dict(feeds)))
        except Exception as error:
            raise InferenceFailed(f"onnxruntime: {_first_line(error)}") from error


def _opened(file: Path, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is raised; the runtime need not print it too
    # Threads that have finished their part spin for the next: within a run that halves its time, after it they would
    # take a core from everything else for milliseconds.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions share no base of their own
        raise ContractError(f"{file.name}: onnxruntime cannot load it: {_first_line(error)}") from None


def _info(node: ort.NodeArg) -> TensorInfo:
    shape = tuple(size if isinstance(size, int) else None for size in node.shape)
    return TensorInfo(node.name, _DTYPES.get(node.type, node.type), shape)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300]
