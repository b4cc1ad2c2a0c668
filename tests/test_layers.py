"""Import layers: every module is in one."""

from __future__ import annotations

import ast
import pkgutil
import tomllib
from typing import Any

import movemask
from movemask.server.app import create_app
from movemask.server.settings import Settings
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


def test_edge_names_no_path() -> None:
    """A header, a rate or a log level of one route once depended on its path in another package."""
    routes: Any = create_app(Settings.read(database_url="sqlite://", mcp=True)).routes
    roots = {f"/{route.path.split('/')[1]}" for route in routes} - {"/"}
    assert "/v1" in roots
    edge = ROOT / "service" / "movemask" / "server" / "edge"
    named = {
        f"{file.name}: {node.value}"
        for file in (*edge.glob("*.py"), edge.parent / "metrics.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for root in roots
        if node.value == root or node.value.startswith(f"{root}/")
    }
    assert named == set()
