"""Installs a network into a models folder, and exports a network as an ONNX file that carries its contract.

A network is written and checked in a temporary folder, then renamed into place: a failure leaves the models folder
unchanged. `models add` of an exported file needs no guess.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import onnx
import tomlkit
from google.protobuf.message import DecodeError
from onnx import TensorProto
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from movemask.atomic_writes import atomic_write
from movemask.board.position import Elo, Position
from movemask.errors import ContractError, InferenceFailed, ModelError, MovemaskError
from movemask.network.check import CHECK_FENS
from movemask.network.contract import Contract
from movemask.network.files import MAX_NETWORK_BYTES, read_onnx, read_regular, refuse_external
from movemask.network.model import Model
from movemask.network.onnx import OnnxSession
from movemask.network.registry import Entry, load_entry, network_file
from movemask.network.trial import confine, finish, tried
from movemask.network_tools.family_match import Change, fitted
from movemask.network_tools.guess import guess, settled
from movemask.network_tools.lc0 import PLANES, POLICY, VALUE, WDL, graph, read_network
from movemask.network_tools.rewriting import rewrite
from movemask.signatures import GZIP, ONNX, described

#: Largest difference of a number between a batch and a run of one position, for a network whose batch is freed.
_SAME = 1e-4


@dataclass(frozen=True, slots=True)
class Installed:
    """The checked model, and notes for the user: assumptions and omissions."""

    entry: Entry
    notes: tuple[str, ...]


class Judge(Protocol):
    """Looks at a checked model, and at the notes on how it is read, before it is moved into its folder."""

    def __call__(self, model: Model, notes: Sequence[str]) -> None:
        """Raises ContractError to refuse the model."""
        ...


def _with_notes(judge: Judge | None, notes: Sequence[str]) -> Callable[[Model], None] | None:
    return None if judge is None else partial(judge, notes=notes)


#: Names of the nine files of CSSLab/maia-chess.
_MAIA_1 = re.compile(r"maia-1[1-9]00\.pb(\.gz)?")
_MAIA_1_SHAPE = (6, 64)


def import_lc0(
    file: Path,
    folder: Path,
    name: str,
    card: Mapping[str, str] = MappingProxyType({}),
    judge: Judge | None = None,
) -> Installed:
    """Converts and installs an lc0 weight file. `card` is added to the contract's card.

    Raises WeightsError, or ContractError if the result fails its check or the `judge` refuses it.
    """
    network = read_network(file)
    policy = "flat" if network.policy_hidden is None else "convolution"
    notes = [f"{len(network.blocks)} blocks of {network.filters} filters, policy {policy}"]
    value: dict[str, Any] = {"name": VALUE, "order": "score"}
    if network.wdl:
        value = {"name": WDL, "order": "win_draw_loss", "softmaxed": True}
    table: dict[str, Any] = {
        "contract": {"planes": "lc0-112", "vocabulary": "lc0-1858", "trained_with_mask": False},
        "inputs": {"planes": PLANES},
        "outputs": {"logits": POLICY, "value": value},
        "card": {"source": f"{file.name}, converted by movemask models import"},
    }
    if network.licence:
        table["card"]["licence"] = network.licence
    elif _MAIA_1.fullmatch(file.name) and (len(network.blocks), network.filters) == _MAIA_1_SHAPE:
        table["card"]["licence"] = "GPL-3.0"
        table["card"]["source"] = f"github.com/CSSLab/maia-chess, {table['card']['source']}"
        notes.append(
            "licence GPL-3.0, that of CSSLab/maia-chess: the file has the name and the shape of its networks"
        )
    table["card"] |= card
    entry = install(
        folder, name, graph(network).SerializeToString(), table, _with_notes(judge, notes)
    )
    return Installed(entry, tuple(notes))


def add_onnx(
    file: Path,
    folder: Path,
    name: str,
    family: str | None = None,
    trained_with_mask: bool | None = None,
    card: Mapping[str, str] = MappingProxyType({}),
    trial_seconds: float = 0,
    judge: Judge | None = None,
) -> Installed:
    """Installs an ONNX file with the contract that it carries, or with a contract of `family`, or with a guess.

    External weights are copied into the file. A batch fixed at 1 is freed if the numbers stay the same. `card` is added
    to the contract's card. Raises ContractError, also if the `judge` refuses the model.

    trial_seconds : if not 0, a process of its own does all this first, within this time: the file may crash it, loop
        without end or ask for all memory
    """
    if trial_seconds:
        return _added_after_trial(
            file, folder, name, (family, trained_with_mask, dict(card)), trial_seconds, judge
        )
    notes: list[str] = []
    raw, model = _parsed(file)
    if weights := _taken_in(file, model):
        raw = model.SerializeToString()
        notes.append(f"weights copied: {weights / 2**20:.1f} MiB from the file next to {file.name}")
    refuse_external(raw, file.name)
    table = carried_contract(model)
    if table is not None and family is None and trained_with_mask is None:
        notes.append("its contract is the one that the file carries")
    else:
        session = _opened(file, model, raw)
        fit = fitted(session, family)
        if fit.changes:
            raw, session = _rewritten(file, model, fit.changes)
        try:
            guessed = guess(session, fit, trained_with_mask)
        except InferenceFailed:  # of a batch: a size of 1 may be baked in behind the inputs
            raw, session = _declared_alone(file, model)
            guessed = guess(session, fit, trained_with_mask)
        if guessed.changes:
            raw, session = _rewritten(file, model, guessed.changes)
        table = guessed.table
        changes = (*fit.changes, *guessed.changes)
        notes += [*guessed.notes, *(change.note for change in changes if change.note)]
        read = Model(file.stem, "", Contract.model_validate(table), session)
        if turned := settled(read, table):
            guess_of_value = f"output {table['outputs']['value']['name']!r} is "
            notes = [*(note for note in notes if not note.startswith(guess_of_value)), turned]
        if session.one_by_one:
            raw, note = _freed(file, model, raw, table)
            notes.append(note)
    table["card"] = {
        "source": f"{file.name}, added by movemask models add",
        **table.get("card", {}),
        **card,
    }
    return Installed(install(folder, name, raw, table, _with_notes(judge, notes)), tuple(notes))


def _added_after_trial(
    file: Path,
    folder: Path,
    name: str,
    options: tuple[Any, ...],
    seconds: float,
    judge: Judge | None,
) -> Installed:
    with tempfile.TemporaryDirectory(prefix="movemask-") as staging:
        arguments = json.dumps(
            [os.path.abspath(file), staging, name, *options]
        )  # keeps a link's own folder
        size = len(read_onnx(file, external=True))
        try:
            result = tried(__name__, arguments, size=size, seconds=seconds)
        except ModelError as error:
            raise ContractError(f"{name} is not added: {error}") from None
        if result["failure"] is not None:
            raise ContractError(result["failure"])
        network = (Path(staging) / f"{name}.onnx").read_bytes()
        table = tomlkit.parse((Path(staging) / f"{name}.toml").read_text(encoding="utf-8")).unwrap()
    table = {key: table[key] for key in table if key != "network"}
    notes = result["notes"]
    return Installed(install(folder, name, network, table, _with_notes(judge, notes)), tuple(notes))


def main(arguments: str, memory: str) -> None:
    """Adds a network in this process, limited to `memory` bytes. Writes the notes, or the error, as JSON."""
    confine(memory)
    file, folder, *others = json.loads(arguments)
    try:
        finish({"failure": None, "notes": add_onnx(Path(file), Path(folder), *others).notes})
    except MovemaskError as error:
        finish({"failure": str(error)})


def _unpacked(file: Path, raw: bytes) -> bytes:
    """The content of a gzipped ONNX file; other content unchanged. Raises ContractError."""
    if not raw.startswith(GZIP):
        return raw
    try:
        reader = zlib.decompressobj(31)
        network = reader.decompress(raw, MAX_NETWORK_BYTES + 1)
    except zlib.error as error:
        raise ContractError(f"{file.name}: damaged gzip: {error}; download it again") from None
    if len(network) > MAX_NETWORK_BYTES:
        raise ContractError(f"{file.name}: unpacks to more than {MAX_NETWORK_BYTES} bytes")
    if not reader.eof:
        raise ContractError(f"{file.name}: cut off: the gzip stream has no end; download it again")
    return network


def _parsed(file: Path) -> tuple[bytes, onnx.ModelProto]:
    """The content of an ONNX file, gzipped or not, and its model. Raises ContractError, which says what else it is."""
    raw = read_onnx(file, external=True)
    if description := described(raw, ONNX):
        raise ContractError(f"{file.name}: {description}")
    if not raw:
        raise ContractError(
            f"{file.name}: not an ONNX file: it is empty; download or export it again"
        )
    raw = _unpacked(file, raw)
    try:
        model = onnx.load_model_from_string(raw)
    except DecodeError:
        raise ContractError(
            f"{file.name}: not an ONNX file, or one that is cut off or damaged"
        ) from None
    if not model.graph.node:
        raise ContractError(f"{file.name}: not an ONNX file, or an empty one")
    return raw, model


def _opened(file: Path, model: onnx.ModelProto, raw: bytes) -> OnnxSession:
    """A session on the network. Raises ContractError, which names weight types that onnxruntime may lack."""
    try:
        return OnnxSession(file, threads=1, network=raw)
    except ContractError as error:
        shapeless = [
            value.name
            for value in model.graph.input
            if not value.type.tensor_type.HasField("shape")
        ]
        if shapeless:
            raise ContractError(
                f"{error}; input {shapeless[0]!r} has no shape: export it with one"
            ) from None
        types = {
            TensorProto.DOUBLE: "float64",
            TensorProto.BFLOAT16: "bfloat16",
            TensorProto.FLOAT16: "float16",
        }
        rare = sorted(
            {
                types[tensor.data_type]
                for tensor in model.graph.initializer
                if tensor.data_type in types
            }
        )
        if "Could not find an implementation" not in str(error) or not rare:
            raise
        raise ContractError(
            f"{error}; its weights are {' and '.join(rare)}: export them as float32 (in PyTorch, `model.float()`)"
        ) from None


def _rewritten(
    file: Path, model: onnx.ModelProto, changes: Iterable[Change]
) -> tuple[bytes, OnnxSession]:
    """The network with these changes in its graph, and a session on it."""
    rewrite(model, changes)
    raw = model.SerializeToString()
    return raw, _opened(file, model, raw)


def _declared_alone(file: Path, model: onnx.ModelProto) -> tuple[bytes, OnnxSession]:
    """The network with a batch of 1 declared, and a session on it, which runs position by position."""
    for value in (*model.graph.input, *model.graph.output):
        if dimensions := value.type.tensor_type.shape.dim:
            dimensions[0].dim_value = 1
    raw = model.SerializeToString()
    return raw, _opened(file, model, raw)


def _taken_in(file: Path, model: onnx.ModelProto) -> int:
    """Copies external weights into the model. Returns their number of bytes.

    They may be in the network's folder or below it. If both files are links, the weights may also be beside the network
    that its link leads to: Hugging Face's cache has links into `blobs/`. Raises ContractError for any other place, and
    if the place is not a file.
    """
    tensors = [tensor for tensor in model.graph.initializer if uses_external_data(tensor)]
    contents: dict[Path, bytes] = {}
    total = 0
    try:
        for tensor in tensors:
            at = ExternalDataInfo(tensor)
            place = _beside(file, at.location)
            offset, length = (
                int(at.offset or 0),
                int(at.length or place.stat().st_size - int(at.offset or 0)),
            )
            total += length
            if total > MAX_NETWORK_BYTES:
                raise ContractError(
                    f"{file.name}: its weights have {total} bytes; at most {MAX_NETWORK_BYTES} are allowed"
                )
            if place not in contents:
                contents[place] = read_regular(place, MAX_NETWORK_BYTES)
            values = contents[place][offset : offset + length]
            if offset < 0 or len(values) < length:
                raise ValueError(
                    f"{at.location!r} has {len(contents[place]):,} bytes, and {tensor.name!r} needs {length:,} from "
                    f"byte {offset:,}: it is cut off, or belongs to another export"
                )
            tensor.raw_data = values
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]
    except OSError as error:
        missing = f"{at.location!r}: {(error.strerror or str(error)).lower()}; put it into the folder of {file.name}"
        raise ContractError(f"{file.name}: weights in another file: {missing}") from None
    except ValueError as error:
        raise ContractError(f"{file.name}: weights in another file: {error}") from None
    return total


def _beside(file: Path, location: str) -> Path:
    """The file of external weights. Raises ValueError for a place where a network may not have them."""
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


def _freed(
    file: Path, model: onnx.ModelProto, raw: bytes, table: dict[str, Any]
) -> tuple[bytes, str]:
    """The network with a free batch, and a note for the user.

    If a batch then gets other numbers than its positions one by one, the network stays unchanged.
    """
    graph = model.graph
    for value in (*graph.input, *graph.output):
        dimensions = value.type.tensor_type.shape.dim
        if len(dimensions) and dimensions[0].dim_value == 1:
            dimensions[0].dim_param = "B"
    del graph.value_info[:]
    shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    constants = [
        node.attribute[0].t
        for node in graph.node
        if node.op_type == "Constant" and node.output[0] in shapes
    ]
    for tensor in (*constants, *(tensor for tensor in graph.initializer if tensor.name in shapes)):
        shape = onnx.numpy_helper.to_array(tensor).tolist()
        if len(shape) > 1 and shape[0] == 1 and -1 not in shape:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array([-1, *shape[1:]]), tensor.name))
    free = model.SerializeToString()
    contract = Contract.model_validate(table)
    positions = [Position.read(fen) for fen in CHECK_FENS]
    elos = [Elo(800 + 200 * row, 2200 - 200 * row) for row in range(len(positions))]
    numbers = []
    try:
        for network in (raw, free):
            variant = Model(file.stem, "", contract, OnnxSession(file, threads=1, network=network))
            outputs = variant.run(variant.whole_batch(positions, elos))
            numbers.append(
                outputs.logits
                if outputs.value is None
                else np.hstack([outputs.logits, outputs.value])
            )
        difference = float(np.abs(numbers[1] - numbers[0]).max())
        fault = (
            ""
            if difference <= _SAME
            else f"{len(positions)} positions together get other numbers ({difference:.1e})"
        )
    except ModelError as error:
        fault = str(error)
    if fault:
        return raw, f"its batch stays 1, so positions are run one by one: {fault}"
    return (
        free,
        f"its batch of 1 is freed: {len(positions)} positions together get the numbers of each ({difference:.1e})",
    )


def install(
    folder: Path,
    name: str,
    network: bytes,
    table: dict[str, Any],
    judge: Callable[[Model], None] | None = None,
) -> Entry:
    """Writes both files into a temporary folder, checks the model there, and renames them into place, the TOML last.

    `table` is the contract without `[network]`. An existing model of this name is replaced. Raises ContractError if the
    model fails its check, if the `judge` refuses it, or if the folder cannot be written.
    """
    digest = "sha256:" + hashlib.sha256(network).hexdigest()
    contract = {"network": {"file": f"{name}.onnx", "digest": digest}, **table}
    temporary: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
        (temporary / f"{name}.onnx").write_bytes(network)
        (temporary / f"{name}.toml").write_text(tomlkit.dumps(contract), encoding="utf-8")
        entry = load_entry(temporary / f"{name}.toml", threads=1)
        if entry.model is None:
            raise ContractError(f"{name} is not added: {entry.failure}")
        if judge is not None:
            judge(entry.model)
        for ending in (".onnx", ".toml"):
            os.replace(temporary / f"{name}{ending}", folder / f"{name}{ending}")
    except OSError as error:
        reason = (
            "it is not a folder"
            if isinstance(error, (FileExistsError, NotADirectoryError))
            else error.strerror
        )
        raise ContractError(
            f"{folder}: cannot be written: {reason}; --models-dir names another folder"
        ) from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return entry


#: Key in ONNX's metadata for the contract as TOML.
CONTRACT = "movemask.contract"


def export_onnx(entry: Entry, contract: Path, target: Path, *, replace: bool) -> None:
    """Writes the network of a served model to `target`, with its contract. Raises ContractError."""
    if entry.contract is None or not entry.served:
        raise ContractError(f"{entry.name}: failed its check and is not exported: {entry.failure}")
    network = network_file(contract, entry.contract)
    if target.exists() and not replace:
        raise ContractError(f"{target} already exists; --replace overwrites it")
    model = onnx.load(network)
    table = tomlkit.parse(contract.read_text(encoding="utf-8"))
    table.pop("network", None)
    known = {entry.key: entry.value for entry in model.metadata_props}
    onnx.helper.set_model_props(model, {**known, CONTRACT: tomlkit.dumps(table)})
    with atomic_write(target) as stream:
        stream.write(model.SerializeToString())


def carried_contract(model: onnx.ModelProto) -> dict[str, Any] | None:
    """The contract that an exported file carries, without `[network]`; None if it carries none."""
    text = next((entry.value for entry in model.metadata_props if entry.key == CONTRACT), None)
    if text is None:
        return None
    try:
        table: dict[str, Any] = tomlkit.parse(text).unwrap()
    except tomlkit.exceptions.ParseError as error:
        raise ContractError(f"the contract in the file's metadata is not TOML: {error}") from None
    return table


if __name__ == "__main__":
    main(*sys.argv[1:])
