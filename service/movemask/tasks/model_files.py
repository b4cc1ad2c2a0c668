"""Removes and copies the files of a model: `NAME.toml` and its network.

The TOML comes last when a model appears and goes first when it disappears, so that a running service that follows the
folder never sees half a model.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from movemask.errors import ContractError, ModelError
from movemask.network.contract import read_contract
from movemask.network.files import ModelFolders
from movemask.network.registry import network_file


def remove(contract: Path) -> list[Path]:
    """Deletes a contract, and its network if no other contract of the folder names it; the files that are gone."""
    network = _network(contract)
    gone = [contract]
    with _os_errors_named(contract):
        contract.unlink()
        if network.exists() and not _named_by_others(network, contract):
            network.unlink()
            gone.append(network)
    return gone


def copy(contract: Path, folder: Path) -> Path:
    """The model in another folder, which is made if need be; raises ContractError if it is there already."""
    target = folder / contract.name
    network = _network(contract)
    if target.exists():
        raise ContractError(f"{target} is there already")
    with _os_errors_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(network, folder / network.name)
        _write(target, contract.read_text(encoding="utf-8"))
    return target


def _network(contract: Path) -> Path:
    try:
        known = read_contract(contract)
    except ModelError:  # a contract that cannot be read can still be removed
        known = None
    return network_file(contract, known)


def _named_by_others(network: Path, contract: Path) -> bool:
    others = ModelFolders((contract.parent,)).found().values()
    return any(other != contract and _network(other) == network for other in others)


def _write(file: Path, text: str) -> None:
    partial = file.with_suffix(".toml.part")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, file)


@contextmanager
def _os_errors_named(path: Path) -> Iterator[None]:
    """Turns an OSError into a ContractError that names the file."""
    try:
        yield
    except OSError as error:
        raise ContractError(f"{error.filename or path}: {os.strerror(error.errno or 0)}") from None
