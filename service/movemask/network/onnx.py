"""`OnnxSession`: networks in onnxruntime. Only this module runs onnxruntime.

Official builds from 1.29 send telemetry about each session (model file name, graph hashes and so on), unless an
environment variable turns it off before the import.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime as ort

from movemask.errors import ContractError, InferenceFailed, SettingsError
from movemask.network.files import read_onnx
from movemask.network.model import Array, TensorInfo

_DTYPES = {"float": "float32", "double": "float64"}  # onnxruntime's names where numpy's differ


class Provider(Enum):
    """The hardware that runs a network, by onnxruntime's name."""

    CPU = "CPUExecutionProvider"
    CUDA = "CUDAExecutionProvider"


#: Simultaneous runs on a GPU: one computes while the other copies its inputs.
_GPU_RUNS = 2


def provider_named(name: str) -> Provider:
    """Returns the provider of this name.

    Raises SettingsError if it is not one, or the installed onnxruntime lacks it.
    """
    if name not in ("cpu", "cuda"):
        raise SettingsError(f"provider: {name!r} is neither 'cpu' nor 'cuda'")
    provider, available = Provider[name.upper()], ort.get_available_providers()
    if provider.value not in available:
        raise SettingsError(
            f"MOVEMASK_PROVIDER: {name!r} needs {provider.value}, and this onnxruntime has "
            f"{', '.join(available)}; install onnxruntime-gpu instead of onnxruntime"
        )
    return provider


class OnnxSession:
    """One network in onnxruntime. Raises ContractError if it cannot be loaded.

    runs, threads : on the CPU, simultaneous runs and the threads of each. A GPU always has two runs.
    network : the file's content, if it has been read already (`read_onnx`). Weights in other files are read from the
        file's folder

    A network with a batch fixed at 1 runs position by position. Its callers see a free batch. Where only the outputs
    declare a size, onnxruntime pays no heed to it.

    quantizes_dynamically : whether the numbers of a batch depend on each other, as those of `quantize_dynamic` do
    """

    def __init__(
        self,
        file: Path,
        threads: int,
        provider: Provider = Provider.CPU,
        runs: int = 1,
        *,
        network: bytes | None = None,
    ) -> None:
        self.file, self.provider = file, provider
        self.runs = runs if provider is Provider.CPU else _GPU_RUNS
        content = read_onnx(file) if network is None else network
        self.quantizes_dynamically = b"DynamicQuantizeLinear" in content
        self._session = _opened(file, content, threads, provider)
        self.inputs = tuple(map(_info, self._session.get_inputs()))
        self.outputs = tuple(map(_info, self._session.get_outputs()))
        self.one_by_one = all(info.shape[:1] == (1,) for info in self.inputs)
        if self.one_by_one:
            self.inputs = tuple(map(_free, self.inputs))
        if all(info.shape[:1] == (None,) for info in self.inputs):
            self.outputs = tuple(map(_free, self.outputs))

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        if not self.one_by_one:
            return self._run(feeds, outputs)
        size = len(next(iter(feeds.values())))
        rows = [
            self._run({name: values[row : row + 1] for name, values in feeds.items()}, outputs)
            for row in range(size)
        ]
        return [np.concatenate(parts) for parts in zip(*rows, strict=True)]

    def _run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        try:
            return list(self._session.run(list(outputs), dict(feeds)))
        except Exception as error:
            raise InferenceFailed(f"onnxruntime: {reason_of(error)}") from error


def _opened(file: Path, network: bytes, threads: int, provider: Provider) -> ort.InferenceSession:
    name = file.name
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, so onnxruntime need not print them too
    # onnxruntime plans memory for each batch size, and sizes vary: 75 MB more for the shipped network, and no faster.
    options.enable_mem_pattern = False
    # Spinning threads halve the time of a run. Stop them after it, or they occupy a core for milliseconds.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(file.parent.resolve())
    )
    try:
        session = ort.InferenceSession(network, options, providers=[provider.value])
    except Exception as error:  # onnxruntime's exceptions share no base of their own
        raise ContractError(f"{name}: onnxruntime cannot load it: {reason_of(error)}") from None
    if (
        provider.value not in session.get_providers()
    ):  # onnxruntime falls back to the CPU and only logs it
        raise ContractError(
            f"{name}: onnxruntime cannot run it on {provider.name.lower()} (MOVEMASK_PROVIDER): the driver, CUDA or "
            "cuDNN is missing or of another version"
        )
    if hasattr(session, "_model_bytes"):
        session._model_bytes = None  # the file's content, which only set_providers would use
    return session


def _info(node: ort.NodeArg) -> TensorInfo:
    shape = tuple(size if isinstance(size, int) else None for size in node.shape)
    element = node.type.removeprefix("tensor(").removesuffix(")")
    return TensorInfo(node.name, _DTYPES.get(element, element), shape)


def _free(info: TensorInfo) -> TensorInfo:
    """Returns the tensor with a free batch. One with a single axis has no batch, unless its size is 1."""
    return (
        replace(info, shape=(None, *info.shape[1:]))
        if len(info.shape) > 1 or info.shape == (1,)
        else info
    )


#: onnxruntime's messages begin with its status and a place in its source. A C++ signature follows the place.
_STATUS = re.compile(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_PLACE = re.compile(r"[^\s:]+\.(?:cc|cpp|cu|h):\d+ ")
_AFTER = re.compile(r"[>\s]*(?:const\b)?")  # the rest of a signature after its last parenthesis
_LONGEST = 300


def reason_of(error: Exception) -> str:
    """Returns the reason in an onnxruntime error, on one line, without status, source places and C++ signatures."""
    text = _STATUS.sub("", " ".join(str(error).split()))
    parts = _PLACE.split(text)
    reason = " ".join(" ".join([parts[0], *map(_without_signature, parts[1:])]).split())
    if "NOT_IMPLEMENTED" in str(error):
        reason += " (in this onnxruntime, for the types of its inputs)"
    return reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}…"


def _without_signature(text: str) -> str:
    """Returns the text after the C++ signature at its beginning."""
    depth, end = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter in ")]" and depth == 0:
            after = text[place + 1 :]
            end = place + 1
            if not after.startswith(("::", "(", "<", " const::", " [with ", " const [with ")):
                break
    reason = _AFTER.sub("", text[end:], count=1).strip()
    return reason if reason and "::" in text[:end] else text.strip()
