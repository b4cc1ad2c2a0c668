"""Installs a network into a models folder, and writes one out as an ONNX file that carries its contract.

Installing writes and checks it in a temporary folder, then renames it into place: a failure leaves the models folder
unchanged. `models add` of an exported file needs no guess.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import tomlkit
from google.protobuf.message import DecodeError

from movemask.errors import ContractError
from movemask.network.files import read_onnx
from movemask.network.guess import guess
from movemask.network.onnx import OnnxSession
from movemask.network.registry import Entry, load_entry, network_file
from movemask.tasks.conversion.lc0_graph import PLANES, POLICY, VALUE, WDL, graph
from movemask.tasks.conversion.lc0_weights import Lc0Network, Outcome, read_network

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Installed:
    """The checked model, and notes for the user: what was assumed and what was left out."""

    entry: Entry
    notes: tuple[str, ...]


def import_lc0(
    file: Path, folder: Path, name: str | None = None, *, replace: bool = False, taken: Collection[str] = ()
) -> Installed:
    """Converts and installs an lc0 weight file. Raises WeightsError, or ContractError if the result fails its check."""
    name = checked_name(name or file.name.removesuffix(".gz").removesuffix(".pb"))
    refuse_existing(folder, name, replace, taken)
    network = read_network(file)
    model = graph(network)
    notes = [f"{len(network.blocks)} blocks of {network.filters} filters, policy {network.policy.name.lower()}"]
    notes += [f"left out: {part}" for part in network.left_out]
    table = _lc0_table(network)
    table["card"] = {"source": f"{file.name}, converted by movemask models import", "lc0": network.facts}
    entry = install(folder, name, model.SerializeToString(), table, replace)
    return Installed(entry, tuple(notes))


def add_onnx(
    file: Path,
    folder: Path,
    name: str | None = None,
    *,
    kind: str | None = None,
    trained_with_mask: bool | None = None,
    replace: bool = False,
    taken: Collection[str] = (),
) -> Installed:
    """Installs an ONNX file with the contract that it carries, or one of the `kind` of network, or a guess.

    `taken` are names that need `replace` too. Raises ContractError.
    """
    name = checked_name(name or file.stem)
    refuse_existing(folder, name, replace, taken)
    raw = read_onnx(file)
    carried = carried_contract(_parsed(file, raw))
    if carried is not None and kind is None and trained_with_mask is None:
        carried.setdefault("card", {}).setdefault("source", f"{file.name}, added by movemask models add")
        return Installed(
            install(folder, name, raw, carried, replace), ("its contract is the one that the file carries",)
        )
    guessed = guess(OnnxSession(file, threads=1, network=raw), kind, trained_with_mask)
    table = dict(guessed.table)
    table["card"] = {"source": f"{file.name}, added by movemask models add"}
    return Installed(install(folder, name, raw, table, replace), guessed.notes)


def install(
    folder: Path, name: str, network: bytes, table: dict[str, Any], replace: bool, option: str = "--name"
) -> Entry:
    """Writes both files into a temporary folder, checks the model there, and renames them into place, the TOML last.

    `table` is the contract without `[network]`. Raises ContractError if the model fails its check, if the name is taken
    and may not be replaced, or if the folder cannot be written.
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
        refuse_existing(folder, name, replace, option=option)
        for ending in (".onnx", ".toml"):
            os.replace(temporary / f"{name}{ending}", folder / f"{name}{ending}")
    except OSError as error:
        reason = "it is not a folder" if isinstance(error, (FileExistsError, NotADirectoryError)) else error.strerror
        raise ContractError(f"{folder}: cannot be written: {reason}; --models-dir names another folder") from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return entry


def _lc0_table(network: Lc0Network) -> dict[str, Any]:
    value: dict[str, Any] = {"name": VALUE, "order": "score"}
    if network.outcome is Outcome.WDL:
        value = {"name": WDL, "order": "win_draw_loss", "softmaxed": True}
    return {
        "contract": {"planes": "lc0-112", "vocabulary": "lc0-1858", "trained_with_mask": False},
        "inputs": {"planes": PLANES},
        "outputs": {"logits": POLICY, "value": value},
    }


def checked_name(name: str) -> str:
    """The name; raises ContractError if no model may have it."""
    if not _NAME.fullmatch(name):
        raise ContractError(f"{name!r} is no name for a model: small letters, digits, '.', '_' and '-', at most 64")
    return name


def refuse_existing(
    folder: Path, name: str, replace: bool, taken: Collection[str] = (), option: str = "--name"
) -> None:
    """Raises ContractError if the folder has a model of that name, or it is `taken`, unless it may be replaced.

    `option` is the command's flag for another name.
    """
    if name in taken and not replace:
        raise ContractError(f"{name} is the name of a shipped model: another {option}, or --replace to take its place")
    there = [ending for ending in (".onnx", ".toml") if (folder / f"{name}{ending}").exists()]
    if there and not replace:
        raise ContractError(f"{folder / name}{there[0]} is there already: --replace, or another {option}")


def _parsed(file: Path, raw: bytes) -> onnx.ModelProto:
    """The parsed file; raises ContractError for what onnx cannot read, or that has no operations."""
    try:
        model = onnx.load_model_from_string(raw)
    except DecodeError:
        raise ContractError(f"{file.name}: not an ONNX file") from None
    if not model.graph.node:
        raise ContractError(f"{file.name}: not an ONNX file, or an empty one")
    return model


#: Key of ONNX's metadata that holds the contract as TOML.
CONTRACT = "movemask.contract"


def export_onnx(entry: Entry, contract: Path, target: Path, *, replace: bool) -> None:
    """Writes the network of a model that is served to `target`. Raises ContractError."""
    if entry.contract is None or not entry.served:
        raise ContractError(f"{entry.name}: failed its check and is not exported: {entry.failure}")
    network = network_file(contract, entry.contract)
    if target.exists() and not replace:
        raise ContractError(f"{target} is there already; --replace overwrites it")
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
