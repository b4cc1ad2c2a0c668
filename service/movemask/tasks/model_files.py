"""The files of a model, `NAME.toml` and its network: copied, removed, replaced.

The TOML comes last when a model appears and goes first when it disappears, so that a running service that follows the
folder never sees half a model.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from movemask.errors import ContractError, ModelError
from movemask.network.contract import read_contract
from movemask.network.files import ModelFolders
from movemask.network.registry import network_file


def copied(contract: Path, folder: Path) -> Path:
    """The model in another folder, which is made if need be; raises ContractError if it is there already."""
    target, network = folder / contract.name, _network(contract)
    if target.exists():
        raise ContractError(f"{target} is there already")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(network, folder / network.name)
        replaced(target, contract.read_text(encoding="utf-8"))
    except OSError as error:
        raise ContractError(f"{error.filename or folder}: {os.strerror(error.errno or 0)}") from None
    return target


def removed(contract: Path) -> list[Path]:
    """Deletes a contract, and its network unless another contract of the folder names it; the files that are gone."""
    network, others = _network(contract), ModelFolders((contract.parent,)).found().values()
    gone = [contract]
    if network.exists() and not any(other != contract and _network(other) == network for other in others):
        gone.append(network)
    for file in gone:
        file.unlink()
    return gone


def replaced(file: Path, text: str) -> None:
    """Writes a TOML beside the old one and renames it: no reader sees a part."""
    partial = file.with_suffix(".toml.part")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, file)


def _network(contract: Path) -> Path:
    try:
        return network_file(contract, read_contract(contract))
    except ModelError:  # a contract that cannot be read can still be removed
        return network_file(contract, None)
