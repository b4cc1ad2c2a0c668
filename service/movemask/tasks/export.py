"""Writes a model as one ONNX file that carries its contract, so that `models add` of it needs no guess."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import tomlkit

from movemask.errors import ContractError
from movemask.network.registry import Entry, network_file

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
