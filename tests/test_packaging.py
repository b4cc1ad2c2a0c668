"""The wheel, the extras and the pinned requirements."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from movemask.errors import EXTRAS
from tests.conftest import ROOT
from tests.networks import write_fake
from tests.processes import call, served, stopped, with_packages

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree and unpacked as pip would."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_wheel_serves_shipped_network(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "movemask", "predict", "--json"]
    output = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    answer = json.loads(output.stdout)
    assert answer["model"]["name"] == "movemask-8"
    assert len(answer["moves"]) == 20


def test_wheel_contents(installed: Path) -> None:
    (metadata,) = installed.glob("*.dist-info/METADATA")
    text = metadata.read_text()
    assert "License-Expression: GPL-3.0-or-later" in text
    needed = [line for line in text.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert not any("torch" in line for line in needed)
    (commands,) = installed.glob("*.dist-info/entry_points.txt")
    assert "movemask = movemask.__main__:main" in commands.read_text()
    assert {path.name for path in installed.iterdir()} == {"movemask", metadata.parent.name}
    assert (installed / "movemask" / "tricky_positions.txt").read_text()  # movemask.testing reads them
    assert (installed / "movemask/board/openings.tsv.gz").exists()
    page = Path("movemask", "page")
    names = {file.name for file in (ROOT / "service" / page).iterdir()}
    assert {"index.html", "main.js", "style.css", "pieces.svg"} <= names
    assert {file.name for file in (installed / page).iterdir()} == names


def test_extras_are_documented_with_size() -> None:
    extras = PROJECT["optional-dependencies"]
    text = (ROOT / "docs" / "install.md").read_text()
    assert re.findall(r"^[|] `(\w+)` [|] .{10,} [|] \d+ MB [|]$", text, re.M) == list(extras)
    assert "(docs/install.md)" in (ROOT / "README.md").read_text()


def test_dependencies_are_documented_with_size() -> None:
    text = (ROOT / "docs" / "install.md").read_text()
    rows = re.findall(r"^[|] (`.+) [|] (?:`(\w+)`)? ?[|] .{3,} [|] [\d.]+ [|]$", text, re.M)
    documented = {(extra, name) for packages, extra in rows for name in re.findall(r"`([\w-]+)`", packages)}
    named = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    direct = {(extra, Requirement(one).name) for extra, requirements in named.items() for one in requirements}
    assert {one for one in direct if one[1] != "movemask"} <= documented


@pytest.mark.parametrize("file", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda file: file.name)
def test_pins_have_hashes_and_no_index_address(file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"https?://|index-url|find-links", text)
    entries = re.findall(r"^[A-Za-z0-9_.-]+(?:\[[^\]]+\])?==.*(?:\n    .*)*", text, re.M)
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries)
    assert ("\ntorch==" in text) == (file.name == "training.txt")


def pins(name: str) -> set[tuple[str, str]]:
    """Packages and their versions in a requirements file, whatever their markers."""
    return set(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / name).read_text(), re.M))


def required(requirements: Iterable[str]) -> set[str]:
    """The packages that pip would install here for these requirements, with those that they require in turn."""
    names: set[str] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in names or not (requirement.marker is None or requirement.marker.evaluate({"extra": extra})):
            continue
        names.add(name)
        for extra in ("", *requirement.extras):
            waiting += [(Requirement(text), extra) for text in requires(name) or ()]
    return names


@pytest.fixture(scope="module")
def plain_set(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python after `pip install movemask`, without an extra."""
    return with_packages(tmp_path_factory.mktemp("plain"), *required(PROJECT["dependencies"]))


@pytest.fixture(scope="module")
def serving_set(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python that has the packages of requirements/service.txt and no others."""
    return with_packages(tmp_path_factory.mktemp("serving"), *(name for name, _ in pins("service.txt")))


def run(
    environment: dict[str, str], folder: Path, *arguments: str, input: str = ""
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-m", "movemask", *arguments]  # -S: without this environment's own packages
    return subprocess.run(command, cwd=folder, env=environment, input=input, capture_output=True, text=True)


@pytest.mark.deep
def test_plain_install_has_library_and_engine(plain_set: dict[str, str], tmp_path: Path) -> None:
    program = """
import chess, movemask
from movemask.testing import assert_masked

network = movemask.load()

def policy(fen):
    moves = network.policy(chess.Board(fen))
    return {move.uci(): moves[move] for move in moves}

assert_masked(policy)
"""
    command = [sys.executable, "-S", "-c", program]
    used = subprocess.run(command, cwd=tmp_path, env=plain_set, capture_output=True, text=True)
    assert used.returncode == 0, used.stderr
    helped = run(plain_set, tmp_path, "--help")
    assert helped.returncode == 0, helped.stderr
    predicted = run(plain_set, tmp_path, "predict", "--json")
    assert predicted.returncode == 0, predicted.stderr
    moves = json.loads(predicted.stdout)["moves"]
    assert len(moves) == 20
    for verb in ("list", "check"):
        done = run(plain_set, tmp_path, "models", verb)
        assert (done.returncode, done.stderr) == (0, "")
        assert "movemask-8" in done.stdout
    commands = "setoption name Temperature value 0\nposition startpos\ngo\nquit\n"
    played = run(plain_set, tmp_path, "uci", input=commands)
    assert (played.returncode, played.stderr) == (0, "")
    assert played.stdout.splitlines()[-1] == f"bestmove {moves[0]['uci']}"
    annotated = run(plain_set, tmp_path, "annotate", "-", input="1. e4 e5 *\n")
    assert annotated.returncode == 0, annotated.stderr


@pytest.mark.deep
def test_audit_needs_its_extra_only(tmp_path: Path) -> None:
    audit = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["audit"]]
    environment = with_packages(tmp_path / "site", *required(audit))
    done = run(environment, tmp_path, "audit", "-", "--out", "out", input="1. e4 e5 *\n")
    assert done.returncode == 0, done.stderr
    assert {"positions.parquet", "report.html"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_serve_extra_serves(serving_set: dict[str, str], tmp_path: Path) -> None:
    models = write_fake(tmp_path / "m").parent
    with served(models, program=("-S", "-m", "movemask"), env=serving_set) as (process, port):
        assert len(call(port, "/v1/policy", {"moves": ["e2e4"]})["moves"]) == 20
        assert stopped(process) == 0


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("serve",), "serve"),
        (("positions", "delete", "--all"), "serve"),
        (("mcp",), "mcp"),
        (("audit", "games.pgn"), "audit"),
        (("models", "import", "games.pgn"), "import"),
        (("models", "add", "games.pgn"), "import"),
        (("uci", "--url", "http://127.0.0.1:9"), "client"),
    ],
)
def test_command_names_missing_extra(
    plain_set: dict[str, str], tmp_path: Path, arguments: tuple[str, ...], extra: str
) -> None:
    (tmp_path / "games.pgn").write_text("1. e4 *\n")
    done = run(plain_set, tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    message = re.fullmatch(r"Error: movemask ([\w -]+) needs ([\w, ]+): (.+)", line)
    assert message
    assert " ".join(arguments).startswith(message[1])
    assert tuple(message[2].split(", ")) == EXTRAS[extra]
    assert f"pip install 'movemask[{extra}]'" in line
    assert [path.name for path in tmp_path.iterdir()] == ["games.pgn"]


def test_extras_match_their_modules() -> None:
    extras = {
        extra: {Requirement(text).name.replace("-", "_") for text in requirements} - {"movemask"}
        for extra, requirements in PROJECT["optional-dependencies"].items()
    }
    extras["serve"] = extras["serve"] - {"opentelemetry_api"} | {"opentelemetry"}
    assert {extra: set(modules) for extra, modules in EXTRAS.items()} == {extra: extras[extra] for extra in EXTRAS}


def test_larger_pin_sets_contain_smaller_ones() -> None:
    serving, tools = pins("service.txt"), pins("tools.txt")
    assert {"onnxruntime", "uvicorn"} <= {name for name, _ in serving}
    assert serving < tools
    assert tools < pins("dev.txt")
    assert tools < pins("training.txt")
    assert tools < pins("ray.txt")
    heavy = {module for extra, modules in EXTRAS.items() if extra != "serve" for module in modules}
    assert not heavy & {name for name, _ in serving}
