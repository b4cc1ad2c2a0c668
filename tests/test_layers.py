"""Import layers: every module is in one."""

from __future__ import annotations

import pkgutil
import tomllib

import movemask
from tests.conftest import ROOT


def test_every_module_is_in_a_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (
        contract["layers"] for contract in contracts if contract["type"] == "layers" and "containers" not in contract
    )
    named = {module.strip() for layer in layers for module in layer.split("|")}
    for module in pkgutil.iter_modules(movemask.__path__, "movemask."):
        if module.name != "movemask.__main__":
            assert any(f"{layer}.".startswith(f"{module.name}.") for layer in named), module.name
