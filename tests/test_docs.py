"""What a reader would lose: documents that say what is so. What can be run is run, what can be listed is compared."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path
from typing import get_args

import click
import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel

from movemask.audit.rows import schema
from movemask.cli.audit import audit
from movemask.encoding.encoders import plane_encoder_names
from movemask.encoding.variations import variation_names
from movemask.encoding.vocabularies import vocabulary_names
from movemask.leakage.causes import Cause
from movemask.leakage.kinds import KINDS
from movemask.network.contract import Contract, read_contract
from movemask.server import problems
from movemask.server.app import create_app
from movemask.server.settings import Settings
from movemask.settings import PREFIX
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


def test_the_readmes_curl_gives_the_readmes_answer(shipped: TestClient) -> None:
    command = re.search(r"curl -s localhost:8000(\S+) .*? -d '(.*?)'", README, re.S)
    shown = re.search(r"```json\n(.*?)```", README, re.S)
    assert command
    assert shown
    answer = shipped.post(command[1], json=json.loads(command[2])).json()
    expected = json.loads(shown[1])
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


def test_every_example_of_the_api_page_is_answered(shipped: TestClient) -> None:
    commands = re.findall(r"```sh\n(curl .*?)\n```", doc("api.md"), re.S)
    assert len(commands) > 10
    for command in commands:
        words = shlex.split(command.replace("\\\n", " "))
        (url,) = (word.removeprefix("localhost:8000") for word in words if word.startswith("localhost:8000"))
        body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
        answer = shipped.get(url) if body is None else shipped.post(url, json=body)
        assert answer.status_code == 200, (command, answer.text)


def test_the_readmes_figures_are_the_cards(shipped: TestClient) -> None:
    measured = shipped.get("/v1/models/movemask-7").json()["card"]["measured"]
    row = next(line for line in README.splitlines() if line.startswith("| `movemask-7`"))
    for words, unit, scale in (("top1", " %", 100), ("cross_entropy", "", 1)):
        bare, known = measured[words], measured[f"{words}_with_moves"]
        digits = 3 if scale == 1 else 1
        assert f"| {scale * bare:.{digits}f}{unit} / {scale * known:.{digits}f}{unit} |" in row
    assert f"| {measured['raw_leakage_mean']} |" in row
    assert f"{measured['positions']:,} positions" in README
    assert measured["command"] in README


def test_every_setting_is_listed_with_its_default() -> None:
    text = doc("settings.md")
    assert {name for name in first_column(text) if name.startswith(PREFIX)} == {
        PREFIX + name.upper() for name in Settings.model_fields
    }
    for name in Settings.model_fields:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{PREFIX}{name.upper()}`"))
        assert row.split("|")[2].strip().startswith(Settings.default_shown(name))


def section(name: str, heading: str) -> str:
    return doc(name).split(f"## {heading}\n")[1].split("\n## ")[0]


def flags_of(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts if option.startswith("--")}


def flags_in(name: str) -> set[str]:
    return {word for word in first_column(doc(name)) if word.startswith("--")}


def test_everything_that_can_be_asked_for_is_listed_and_nothing_else() -> None:
    paths = create_app(Settings.read()).openapi()["paths"]
    endpoints = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert set(re.findall(r"^## ([A-Z]+ /\S*)$", doc("api.md"), re.M)) == endpoints
    assert flags_in("audit.md") == flags_of(audit)
    offered = re.findall(r"option name (.+?) type", "\n".join(Options(models={"m": Strengths()}).lines()))
    assert set(offered) == first_column(doc("uci.md").split("### Tried")[0])
    alerts = re.findall(r"- alert: (\w+)", (ROOT / "monitoring" / "alerts.yml").read_text())
    assert set(alerts) == first_column(section("operations.md", "Alerts"))


def test_every_kind_cause_and_column_is_listed() -> None:
    causes = {cause.value for cause in Cause}
    assert set(KINDS) | causes <= first_column(doc("leakage.md"))
    derived = {f"{kind}{ending}" for kind in KINDS for ending in ("", "_flipped", "_kl")}
    derived |= {f"cause_{cause}" for cause in causes}
    assert set(schema(KINDS).names) - derived <= first_column(doc("audit.md"))


def test_the_example_of_an_audit_of_others_numbers_says_what_is_said(serve: Serve) -> None:
    command = re.search(r"curl -s localhost:8000/v1/audit .*? -d '(.*?)'", doc("leakage.md"), re.S)
    assert command
    answer = serve().post("/v1/audit", json=json.loads(command[1])).json()
    assert answer["kinds"]["given"]["leaked"] == pytest.approx(0.1)
    assert [(move["uci"], move["cause"]) for move in answer["illegal"]] == [
        ("e2e5", "wrong_geometry"),
        ("e1g1", "castling_path"),
    ]
    assert answer["top"] == {"uci": "e2e4", "legal": True}


def test_every_problem_is_listed_with_its_status() -> None:
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
    found = set()
    for name, field in model.model_fields.items():
        kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
        nested = next((kind for kind in kinds if issubclass(kind, BaseModel)), None)
        key = prefix + (field.alias or name)
        found |= keys(nested, f"{key}.") if nested else {key}
    return found


def test_every_key_of_a_contract_and_every_name_it_may_hold_is_listed() -> None:
    text = doc("models.md")
    assert keys(Contract) <= first_column(text)
    for name in (*plane_encoder_names(), *vocabulary_names()):
        assert f"`{name}`" in text
    for name in variation_names():
        assert f"`{name}`" in text


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "examples").glob("*.toml")), ids=lambda file: file.name)
def test_the_example_contracts_can_be_read(file: Path) -> None:
    assert read_contract(file).card


def test_the_examples_of_the_numerics_page_run() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", doc("numerics.md"), re.S)
    exec(example, {})


@pytest.mark.deep
def test_the_benchmark_prints_every_table() -> None:
    command = [sys.executable, "-m", "benchmarks.serving", "--seconds", "0.3", "--rounds", "1"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for words in ("bare onnxruntime, inputs ready", "16 connections", "a plain FastAPI handler"):
        assert words in printed
