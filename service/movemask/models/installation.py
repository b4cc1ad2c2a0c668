"""Installs a network into a models folder, and writes one out as an ONNX file that carries its contract.

Installing writes and checks it in a temporary folder, then renames it into place: a failure leaves the models folder
unchanged. `models add` of an exported file needs no guess.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import tomlkit
from google.protobuf.message import DecodeError
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor, uses_external_data

from movemask.board.position import Elo, Position
from movemask.errors import ContractError, ModelError, MovemaskError
from movemask.models.lc0 import PLANES, POLICY, VALUE, WDL, graph, read_network
from movemask.network.check import CHECK_FENS
from movemask.network.contract import Contract
from movemask.network.files import LARGEST, read_onnx, refuse_external
from movemask.network.guess import guess
from movemask.network.model import Model
from movemask.network.onnx import OnnxSession
from movemask.network.registry import Entry, load_entry, network_file
from movemask.network.trial import Trial, confine, finish

#: Largest difference of a number between a batch and a lone run of a network whose batch is freed.
_SAME = 1e-4


@dataclass(frozen=True, slots=True)
class Installed:
    """The checked model, and notes for the user: what was assumed and what was left out."""

    entry: Entry
    notes: tuple[str, ...]


def import_lc0(file: Path, folder: Path, name: str) -> Installed:
    """Converts and installs an lc0 weight file. Raises WeightsError, or ContractError if the result fails its check."""
    network = read_network(file)
    policy = "flat" if network.policy_hidden is None else "convolution"
    note = f"{len(network.blocks)} blocks of {network.filters} filters, policy {policy}"
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
    return Installed(install(folder, name, graph(network).SerializeToString(), table), (note,))


def add_onnx(
    file: Path,
    folder: Path,
    name: str,
    kind: str | None = None,
    trained_with_mask: bool | None = None,
    card: Mapping[str, str] = MappingProxyType({}),
    trial_seconds: float = 0,
) -> Installed:
    """Installs an ONNX file with the contract that it carries, or one of the `kind` of network, or a guess.

    Weights in files beside it are taken in, and a batch fixed at 1 is freed if that changes nothing. `card` goes into
    the contract's. With `trial_seconds`, a process of its own does all this first, for at most so long: the file may
    crash it, loop without end or ask for all memory. Raises ContractError.
    """
    if trial_seconds:
        return _added_after_trial(file, folder, name, (kind, trained_with_mask, dict(card)), trial_seconds)
    raw, notes = read_onnx(file, external=True), []
    try:
        model = onnx.load_model_from_string(raw)
    except DecodeError:
        model = onnx.ModelProto()
    if not model.graph.node:
        raise ContractError(f"{file.name}: not an ONNX file, or an empty one")
    if weights := _taken_in(file, model):
        raw = model.SerializeToString()
        notes.append(f"weights copied: {weights / 2**20:.1f} MiB from the file next to {file.name}")
    refuse_external(raw, file.name)
    table = carried_contract(model)
    if table is not None and kind is None and trained_with_mask is None:
        notes.append("its contract is the one that the file carries")
    else:
        session = OnnxSession(file, threads=1, network=raw)
        guessed = guess(session, kind, trained_with_mask)
        table = guessed.table
        notes += guessed.notes
        if session.one_by_one:
            raw, note = _freed(file, model, raw, table)
            notes.append(note)
    table["card"] = {"source": f"{file.name}, added by movemask models add", **table.get("card", {}), **card}
    return Installed(install(folder, name, raw, table), tuple(notes))


def _added_after_trial(file: Path, folder: Path, name: str, options: tuple[Any, ...], seconds: float) -> Installed:
    with tempfile.TemporaryDirectory(prefix="movemask-") as staging:
        arguments = json.dumps([str(file.resolve()), staging, name, *options])
        size = len(read_onnx(file, external=True))
        try:
            told = Trial(seconds).result_of(__name__, arguments, size=size)
        except ModelError as error:
            raise ContractError(f"{name} is not added: {error}") from None
        if told["failure"] is not None:
            raise ContractError(told["failure"])
        network = (Path(staging) / f"{name}.onnx").read_bytes()
        table = tomlkit.parse((Path(staging) / f"{name}.toml").read_text(encoding="utf-8")).unwrap()
    return Installed(
        install(folder, name, network, {key: table[key] for key in table if key != "network"}), tuple(told["notes"])
    )


def main(arguments: str, memory: str) -> None:
    """Adds a network in this process, within so many bytes; writes the notes, or what is wrong, as JSON."""
    confine(memory)
    file, folder, *others = json.loads(arguments)
    try:
        finish({"failure": None, "notes": add_onnx(Path(file), Path(folder), *others).notes})
    except MovemaskError as error:
        finish({"failure": str(error)})


def _taken_in(file: Path, model: onnx.ModelProto) -> int:
    """Reads weights that lie in other files of the folder into the model; how many bytes. onnx refuses paths outside
    the folder, links and what is no file. Raises ContractError."""
    tensors = [tensor for tensor in model.graph.initializer if uses_external_data(tensor)]
    try:
        located = [ExternalDataInfo(tensor) for tensor in tensors]
        size = sum(int(at.length or (file.parent / at.location).stat().st_size) for at in located)
        if size > LARGEST:
            raise ContractError(f"{file.name}: its weights have {size} bytes; at most {LARGEST} are allowed")
        for tensor in tensors:
            load_external_data_for_tensor(tensor, str(file.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ContractError(f"{file.name}: weights in another file: {str(error).splitlines()[0]}") from None
    return size


def _freed(file: Path, model: onnx.ModelProto, raw: bytes, table: dict[str, Any]) -> tuple[bytes, str]:
    """The network with a free batch in place of one fixed at 1, if it then answers a batch as it answers each position
    alone; otherwise as it was. And a note for the user."""
    graph = model.graph
    for value in (*graph.input, *graph.output):
        dimensions = value.type.tensor_type.shape.dim
        if len(dimensions) and dimensions[0].dim_value == 1:
            dimensions[0].dim_param = "B"
    del graph.value_info[:]
    shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    constants = [node.attribute[0].t for node in graph.node if node.op_type == "Constant" and node.output[0] in shapes]
    for tensor in (*constants, *(tensor for tensor in graph.initializer if tensor.name in shapes)):
        shape = onnx.numpy_helper.to_array(tensor).tolist()
        if len(shape) > 1 and shape[0] == 1 and -1 not in shape:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array([-1, *shape[1:]]), tensor.name))
    free = model.SerializeToString()
    contract = Contract.model_validate(table)
    positions = [Position.read(fen) for fen in CHECK_FENS]
    elos = [Elo(800 + 200 * row, 2200 - 200 * row) for row in range(len(positions))]
    found = []
    try:
        for network in (raw, free):
            one = Model(file.stem, "", contract, OnnxSession(file, threads=1, network=network))
            outputs = one.run(one.whole_batch(positions, elos))
            found.append(outputs.logits if outputs.value is None else np.hstack([outputs.logits, outputs.value]))
        difference = float(np.abs(found[1] - found[0]).max())
        fault = (
            "" if difference <= _SAME else f"{len(positions)} positions together get other numbers ({difference:.1e})"
        )
    except ModelError as error:
        fault = str(error)
    if fault:
        return raw, f"its batch stays 1, so positions are run one by one: {fault}"
    return (
        free,
        f"its batch of 1 is freed: {len(positions)} positions together get the numbers of each ({difference:.1e})",
    )


def install(folder: Path, name: str, network: bytes, table: dict[str, Any]) -> Entry:
    """Writes both files into a temporary folder, checks the model there, and renames them into place, the TOML last.

    `table` is the contract without `[network]`. A model of that name is replaced. Raises ContractError if the model
    fails its check, or if the folder cannot be written.
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
        for ending in (".onnx", ".toml"):
            os.replace(temporary / f"{name}{ending}", folder / f"{name}{ending}")
    except OSError as error:
        reason = "it is not a folder" if isinstance(error, (FileExistsError, NotADirectoryError)) else error.strerror
        raise ContractError(f"{folder}: cannot be written: {reason}; --models-dir names another folder") from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return entry


#: Key of ONNX's metadata that holds the contract as TOML.
CONTRACT = "movemask.contract"


def export_onnx(entry: Entry, contract: Path, target: Path, *, replace: bool) -> None:
    """Writes the network of a model that is served to `target`. Raises ContractError."""
    if entry.contract is None or not entry.served:
        raise ContractError(f"{entry.name}: failed its check and is not exported: {entry.failure}")
    network = network_file(contract, entry.contract)
    if target.exists() and not replace:
        raise ContractError(f"{target} already exists; --replace overwrites it")
    model = onnx.load(network)
    table = tomlkit.parse(contract.read_text(encoding="utf-8"))
    table.pop("network", None)
    known = {one.key: one.value for one in model.metadata_props}
    onnx.helper.set_model_props(model, {**known, CONTRACT: tomlkit.dumps(table)})
    partial = target.with_name(target.name + ".part")
    partial.write_bytes(model.SerializeToString())
    os.replace(partial, target)


def carried_contract(model: onnx.ModelProto) -> dict[str, Any] | None:
    """The contract that an exported file carries, without `[network]`; None if it carries none."""
    text = next((one.value for one in model.metadata_props if one.key == CONTRACT), None)
    if text is None:
        return None
    try:
        table: dict[str, Any] = tomlkit.parse(text).unwrap()
    except tomlkit.exceptions.ParseError as error:
        raise ContractError(f"the contract in the file's metadata is not TOML: {error}") from None
    return table


if __name__ == "__main__":
    main(*sys.argv[1:])
