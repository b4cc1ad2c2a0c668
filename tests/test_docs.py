"""Documents: examples that run, and lists that are complete."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel

from movemask.audit.rows import schema
from movemask.cli.audit import audit
from movemask.encoding.encoders import plane_encoder_names
from movemask.encoding.variations import variation_names
from movemask.encoding.vocabularies import vocabulary_names
from movemask.leakage.causes import Cause
from movemask.leakage.judgement import GIVEN
from movemask.leakage.kinds import KINDS
from movemask.local.network import Network
from movemask.network.contract import Contract, read_contract
from movemask.server import problems
from movemask.server.app import create_app
from movemask.server.settings import Settings
from movemask.settings import PREFIX, NetworkSettings
from movemask.uci.options import Options, Strengths
from tests.conftest import ROOT, Serve

README = (ROOT / "README.md").read_text()


def doc(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def first_column(text: str) -> set[str]:
    """Everything in backticks in the first column of the tables."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


#: Of a probability: 8-bit integers may round the other way on another processor.
TOLERANCE = 0.02


def test_readme_policy_is_answer(shipped: TestClient) -> None:
    command = re.search(r"curl -s localhost:8000(\S+) .*? -d '(.*?)'", README, re.S)
    example = re.search(r"```json\n(.*?)```", README, re.S)
    assert command
    assert example
    answer = shipped.post(command[1], json=json.loads(command[2])).json()
    expected = json.loads(example[1])
    for out in (answer, expected):
        assert set(out.pop("timing")) == {"queue_ms", "inference_ms"}
    assert list(answer) == list(expected)
    moves, expected_moves = answer.pop("moves"), expected.pop("moves")
    assert [(m["uci"], m["san"]) for m in moves] == [(m["uci"], m["san"]) for m in expected_moves]
    probabilities = [m["probability"] for m in moves]
    assert probabilities == pytest.approx([m["probability"] for m in expected_moves], rel=TOLERANCE)
    for part in ("value", "leakage"):
        assert answer.pop(part) == pytest.approx(expected.pop(part), rel=TOLERANCE)
    assert answer == expected


def test_api_examples_are_answered(shipped: TestClient) -> None:
    commands = re.findall(r"```sh\n(curl .*?)\n```", doc("api.md"), re.S)
    assert len(commands) > 10
    for command in commands:
        words = shlex.split(command.replace("\\\n", " "))
        (url,) = (word.removeprefix("localhost:8000") for word in words if word.startswith("localhost:8000"))
        body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
        answer = shipped.get(url) if body is None else shipped.post(url, json=body)
        assert answer.status_code == 200, (command, answer.text)


def test_readme_leakage_is_part_of_answer(shipped: TestClient) -> None:
    policy, leakage = re.findall(r"```sh\n(curl .*?)```", README, re.S)
    command = re.search(r"localhost:8000(\S+) .*? -d '(.*?)'", policy, re.S)
    example = re.search(r"```jsonc\n(.*?)```", README, re.S)
    assert command
    assert example
    shipped.post(command[1], json=json.loads(command[2])).raise_for_status()
    answer = shipped.get(leakage.strip().rpartition("localhost:8000")[2]).json()
    assert_part(json.loads(re.sub(r"//.*", "", example[1])), answer)


def assert_part(part: Any, whole: Any) -> None:
    """Asserts that everything in `part` is in `whole`, floats up to TOLERANCE."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert_part(value, whole[key])
    elif isinstance(part, list):
        assert len(whole) == len(part)
        for element, other in zip(part, whole, strict=True):
            assert_part(element, other)
    elif isinstance(part, float):
        assert whole == pytest.approx(part, rel=TOLERANCE)
    else:
        assert whole == part


def test_readme_networks_match_reports() -> None:
    report = (ROOT / "models" / "movemask-8.report.md").read_text()
    held_out = {cells[0]: cells for cells in tables(report) if len(cells) == 8}
    megabytes = {cells[0]: cells[2] for cells in tables(report.partition("## Cost")[2])}
    rows = {cells[0]: cells for cells in tables(README.partition("## Networks")[2])}
    for row, name, file in (
        ("`movemask-8` (shipped)", "movemask-8", "movemask-8"),
        ("Maia-1", "maia-1 nearest", "maia-1100"),
    ):
        bare, known = held_out[name], held_out[f"{name} + moves"]
        top1 = " / ".join(f"{cells[1].partition(' ±')[0]} %" for cells in (bare, known))
        cross_entropy = " / ".join(cells[3].partition(" ±")[0] for cells in (bare, known))
        assert rows[row][2:] == [top1, cross_entropy, bare[5], megabytes[file]]
    positions = re.match(r"[\d,]+ positions", report.partition("\n\n")[2])
    assert positions
    assert positions[0].replace("positions", "held-out positions") in README


def tables(text: str) -> list[list[str]]:
    """The rows of all tables, as cells."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_settings_are_listed_with_default() -> None:
    text = doc("settings.md")
    assert {name for name in first_column(text) if name.startswith(PREFIX)} == {
        PREFIX + name.upper() for name in Settings.model_fields
    }
    for name in Settings.model_fields:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{PREFIX}{name.upper()}`"))
        assert row.split("|")[2].strip().startswith(Settings.default_shown(name))
    (line,) = re.findall(r"^- Commands that need no service: (.*)$", text, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", line)) == {PREFIX + name.upper() for name in NetworkSettings.model_fields}


def section(name: str, heading: str) -> str:
    return doc(name).split(f"## {heading}\n")[1].split("\n## ")[0]


def flags_of(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts if option.startswith("--")}


def flags_in(name: str) -> set[str]:
    return {word for word in first_column(doc(name)) if word.startswith("--")}


def test_endpoints_flags_options_and_alerts_are_listed() -> None:
    paths = create_app(Settings.read()).openapi()["paths"]
    endpoints = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert set(re.findall(r"^## ([A-Z]+ /\S*)$", doc("api.md"), re.M)) == endpoints
    assert flags_in("audit.md") == flags_of(audit)
    offered = re.findall(r"option name (.+?) type", "\n".join(Options(models={"m": Strengths()}).lines()))
    assert set(offered) == first_column(doc("uci.md").split("### Tried")[0])
    alerts = re.findall(r"- alert: (\w+)", (ROOT / "monitoring" / "alerts.yml").read_text())
    assert set(alerts) == first_column(section("operations.md", "Alerts"))


def test_kinds_causes_and_columns_are_listed() -> None:
    assert set(KINDS) <= first_column(doc("leakage.md"))
    causes = [cause.value for cause in Cause]
    assert re.findall(r"^\| `(\w+)`", section("leakage.md", "Causes"), re.M) == causes, "the first that applies counts"
    fills = {kind for kind in KINDS if kind.startswith("filled_")}
    assert set(KINDS) - fills | {"filled_…", GIVEN} <= first_column(doc("glossary.md"))
    derived = {f"{kind}{ending}" for kind in KINDS for ending in ("", "_flipped", "_kl")}
    derived |= {f"cause_{cause}" for cause in causes}
    assert set(schema(KINDS).names) - derived <= first_column(doc("audit.md"))


def test_leakage_page_multiplied_depends_on_constant(network: Network) -> None:
    logits = network.logits("startpos")
    sentence = re.search(
        r"At the start position, `multiplied` is ([\d.]+) .* ([\d.]+) if (\d+) is added", doc("leakage.md")
    )
    assert sentence
    illegal = len(logits.values) - len(logits.slots)
    for expected, constant in ((sentence[1], 0.0), (sentence[2], float(sentence[3]))):
        multiplied = illegal / (illegal + np.exp(logits.values[logits.slots].astype(float) + constant).sum())
        assert multiplied == pytest.approx(float(expected), rel=TOLERANCE)


def test_leakage_page_audit_example_is_answered(serve: Serve) -> None:
    command = re.search(r"curl -s localhost:8000/v1/audit .*? -d '(.*?)'", doc("leakage.md"), re.S)
    example = re.search(r"```jsonc\n(.*?)```", doc("leakage.md"), re.S)
    assert command
    assert example
    answer = serve().post("/v1/audit", json=json.loads(command[1])).json()
    assert_part(json.loads(re.sub(r"//.*", "", example[1])), answer)


def test_problems_are_listed_with_status() -> None:
    text = doc("errors.md")
    for name, status in problems.STATUSES.items():
        row = next((line for line in text.splitlines() if line.startswith("|") and f"`{name}`" in line), None)
        assert row is not None, name
        assert str(status.value) in row
    alone = (400, 404, 405, 408, 431, 501, 505)  # problems of HTTP alone
    own = {"type", "urn:movemask:problem:", *(problems.name_of(HTTPStatus(status)) for status in alone)}
    assert first_column(text) - set(problems.STATUSES) == own


def keys(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Dotted names of all keys of a contract."""
    result = set()
    for name, field in model.model_fields.items():
        kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
        nested = next((kind for kind in kinds if issubclass(kind, BaseModel)), None)
        key = prefix + (field.alias or name)
        result |= keys(nested, f"{key}.") if nested else {key}
    return result


def test_contract_keys_and_values_are_listed() -> None:
    text = doc("models.md")
    assert keys(Contract) <= first_column(text)
    for name in (*plane_encoder_names(), *vocabulary_names()):
        assert f"`{name}`" in text
    for name in variation_names():
        assert f"`{name}`" in text


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "examples").glob("*.toml")), ids=lambda file: file.name)
def test_example_contracts_are_readable(file: Path) -> None:
    assert read_contract(file).card


def test_numerics_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", doc("numerics.md"), re.S)
    exec(example, {})


@pytest.mark.deep
def test_serving_benchmark_prints_tables() -> None:
    command = [sys.executable, "-m", "benchmarks.serving", "--seconds", "0.3", "--rounds", "1"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for words in ("bare onnxruntime, inputs ready", "16 connections", "a plain FastAPI handler"):
        assert words in printed
