"""What whoever ships the service would lose: the names of all that it is made of, and under which terms."""

from __future__ import annotations

import json
import tomllib

from click.testing import CliRunner

from movemask.cli import licences
from movemask.cli.main import main
from tests.conftest import ROOT


def test_every_pinned_package_of_the_service_is_listed_with_a_licence() -> None:
    rows = json.loads(CliRunner().invoke(main, ["licences", "--json"]).output)
    found = {row["name"].lower().replace("_", "-"): row["licence"] for row in rows}
    assert {"numpy", "onnxruntime", "fastapi", "starlette", "pydantic-core", "mako", "chess"} <= set(found)
    assert [name for name, licence in found.items() if licence == "not stated"] == []
    assert found["chess"].startswith("GNU General Public License v3")
    assert "pytest" not in found


def test_a_checkout_knows_what_it_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for name in project["optional-dependencies"] for line in project["optional-dependencies"][name]]
    named = {licences._name(line) for line in [*project["dependencies"], *extras]}
    left_out = {"movemask", "torch"}
    assert {name for name in named - left_out if "exporter" not in name} <= set(licences._TOP)
