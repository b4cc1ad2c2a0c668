"""Copies the files of a model: `NAME.toml` and its network."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from movemask.errors import ContractError
from movemask.network.contract import read_contract
from movemask.network.registry import network_file


def copy(contract: Path, folder: Path) -> Path:
    """The model in another folder, which is made if need be; raises ContractError if it is there already.

    The TOML comes last, so that a running service that follows the folder never sees half a model.
    """
    target = folder / contract.name
    network = network_file(contract, read_contract(contract))
    if target.exists():
        raise ContractError(f"{target} is there already")
    partial = target.with_suffix(".toml.part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(network, folder / network.name)
        shutil.copyfile(contract, partial)
        os.replace(partial, target)
    except OSError as error:
        raise ContractError(f"{error.filename or folder}: {os.strerror(error.errno or 0)}") from None
    return target
