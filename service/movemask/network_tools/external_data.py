"""Weights of a network that are in other files: taken into the ONNX file, or copied into one file beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from movemask.errors import ContractError
from movemask.network.files import (
    MAX_NETWORK_BYTES,
    external_files,
    read_onnx,
    regular_size,
)

#: Weights in a file begin at multiples of this many bytes, as onnxruntime can map them.
_ALIGNED = 4096
_CHUNK = 1 << 24


@dataclass(frozen=True, slots=True)
class _Part:
    """A tensor's place in a file of weights."""

    tensor: TensorProto
    file: Path
    offset: int
    length: int

    def copy(self, target: Path) -> None:
        """Appends the tensor's bytes to a file, and has the tensor point there."""
        with open(self.file, "rb") as source, open(target, "ab") as stream:
            stream.write(bytes(-stream.tell() % _ALIGNED))
            offset = stream.tell()
            source.seek(self.offset)
            left = self.length
            while left and (chunk := source.read(min(left, _CHUNK))):
                left -= stream.write(chunk)
        del self.tensor.external_data[:]
        for key, value in (("location", target.name), ("offset", offset), ("length", self.length)):
            self.tensor.external_data.add(key=key, value=str(value))

    def take_in(self) -> None:
        """Puts the tensor's bytes into the model."""
        with open(self.file, "rb") as source:
            source.seek(self.offset)
            self.tensor.raw_data = source.read(self.length)
        self.tensor.data_location = TensorProto.DEFAULT
        del self.tensor.external_data[:]


def taken_in(file: Path, model: onnx.ModelProto, target: Path) -> tuple[int, Path | None]:
    """Takes external weights into the model; if they are too large for that, copies them into the file `target`.

    Returns their number of bytes, and `target` if it was written. They may be in the network's folder or below it. If
    both files are links, the weights may also be beside the network that its link leads to: Hugging Face's cache has
    links into `blobs/`. Raises ContractError for any other place, and if the place is not a file.
    """
    tensors = [tensor for tensor in model.graph.initializer if uses_external_data(tensor)]
    try:
        parts = [_part(file, tensor) for tensor in tensors]
        total = sum(part.length for part in parts)
        large = total + model.ByteSize() > MAX_NETWORK_BYTES
        for part in parts:
            if large:
                part.copy(target)
            else:
                part.take_in()
    except ValueError as error:
        raise ContractError(f"{file.name}: weights in another file: {error}") from None
    return total, target if large else None


def size_of(file: Path) -> int:
    """Returns the bytes of a network and of its weights in other files. Raises ContractError."""
    network = read_onnx(file, external=True)
    others = (file.parent / name for name in external_files(network))
    return len(network) + sum(other.stat().st_size for other in others if other.is_file())


def _part(file: Path, tensor: TensorProto) -> _Part:
    at = ExternalDataInfo(tensor)
    try:
        place = _beside(file, at.location)
        size = regular_size(place)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ValueError(
            f"{at.location!r}: {reason}; put it into the folder of {file.name}"
        ) from None
    offset = int(at.offset or 0)
    length = int(at.length or size - offset)
    if offset < 0 or length < 0 or offset + length > size:
        raise ValueError(
            f"{at.location!r} has {size:,} bytes, and {tensor.name!r} needs {length:,} from byte {offset:,}: it is cut "
            "off, or belongs to another export"
        )
    return _Part(tensor, place, offset, length)


def _beside(file: Path, location: str) -> Path:
    """Returns the file of external weights. Raises ValueError for a place where a network may not have them."""
    place = file.parent / location
    if Path(location).is_absolute() or ".." in Path(location).parts:
        raise ValueError(
            f"{location!r} is not in the network's folder; put it beside {file.name} and export again"
        )
    resolved = place.resolve()
    folders = [file.parent.resolve(), *([file.resolve().parent] if file.is_symlink() else [])]
    if not any(resolved.is_relative_to(folder) for folder in folders):
        raise ValueError(
            f"{location!r} is a link to another folder; put the file itself beside {file.name}"
        )
    return resolved
