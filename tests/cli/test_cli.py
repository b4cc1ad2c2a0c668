"""Commands: what they print, the errors of one line, scripts/serve, and what Windows lacks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from subprocess import PIPE
from typing import Any

import chess
import pytest
from click.testing import CliRunner

from movemask.cli.main import main
from movemask.network.files import shipped_models
from movemask.server.settings import Settings
from movemask.version import __version__
from tests.conftest import ROOT
from tests.disks import file_system
from tests.networks import write_fake
from tests.processes import call, environment, run, served, started, stopped


@pytest.fixture
def models(tmp_path: Path) -> str:
    write_fake(tmp_path / "m", "rated", elo=True)
    return str(tmp_path / "m")


def test_predict_shows_moves_and_leakage(models: str) -> None:
    result = run("predict", chess.STARTING_FEN, "--models-dir", models, "--top", "3", "--elo", "1200", "1300")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == chess.STARTING_FEN
    assert lines[1:3] == ["White to move.", "Network: rated, rating 1200 against 1300."]
    clamped = run("predict", "--models-dir", str(ROOT / "models"), "--elo", "4000").output.splitlines()
    assert clamped[2].endswith(" (limited to the network's range).")
    assert sum(" %" in line for line in lines[4:7]) == 3
    assert lines[7].startswith("17 more")
    assert "Illegal moves have 0 in this answer (served leakage)." in lines
    assert any(re.fullmatch(r"Plain softmax would give them [\d.e-]+ % \(raw leakage\)\.", line) for line in lines)
    assert "(raw leakage; this network's mean is 0.29 %)." in "\n".join(clamped)
    mate = "r1bqkb1r/pppp1Qpp/2n2n2/4p3/2B1P3/8/PPPP1PPP/RNB1K1NR b KQkq - 0 4"
    assert "Black is checkmated." in run("predict", mate, "--models-dir", models).output


@pytest.mark.parametrize("charset", ["cp1252", "latin-1", "ascii"])
def test_console_replaces_characters_and_pgn_is_utf_8(models: str, charset: str) -> None:
    """On Windows an output that is redirected is in cp1252, which has neither the bars of a table nor every name."""
    runner = CliRunner(charset=charset)
    result = runner.invoke(main, ["predict", "--models-dir", models], catch_exceptions=False)
    assert (result.exit_code, result.stdout.splitlines()[1]) == (
        0,
        "White to move.",
    )
    pgn = '[White "Müller \u2658"]\n\n1. e4 *\n'.encode()
    written = runner.invoke(main, ["annotate", "-", "--models-dir", models], input=pgn, catch_exceptions=False)
    assert written.stdout_bytes.decode().startswith('[Event "?"]\n')
    assert '[White "Müller \u2658"]\n' in written.stdout_bytes.decode()


def test_predict_with_one_rating_and_move_numbers(models: str) -> None:
    def answer(*arguments: str) -> Any:
        return json.loads(run("predict", *arguments, "--models-dir", models, "--json").output)

    after = "rnbqkbnr/pppp1ppp/8/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R b KQkq - 1 2"
    for arguments in (
        ("--elo", "1200", "1200", "--moves", "e4 e5 Nf3"),
        ("--elo", "1200", "--moves", "1. e4 e5 2. Nf3"),
        ("--moves", "1.e4 1...e5 2.Nf3", "--elo", "1200"),
        ("--elo", "1200", after),
        ("--elo=1200", after),
        ("--elo", "1200", *after.split()),  # without quotation marks
    ):
        result = answer(*arguments)
        assert (result["fen"], result["elo"]) == (after, {"self": 1200, "opponent": 1200})
        assert abs(sum(move["probability"] for move in result["moves"]) - 1) < 1e-12
    refused = run("predict", "--elo", "strong", "--models-dir", models)
    assert (refused.exit_code, "'strong' is not a valid float" in refused.output) == (2, True)


def test_predict_finds_fen_in_address(models: str) -> None:
    address = "https://lichess.org/analysis/chess960/4k3/8/8/8/8/8/8/1R2K3_w_B_-_0_1#0"
    assert run("predict", address, "--models-dir", models).output.startswith("4k3/8/8/8/8/8/8/1R2K3 w ")
    refused = run("predict", address.replace("chess960", "atomic"), "--models-dir", models)
    assert "is of atomic; only chess and Chess960 are known" in refused.output


def test_predict_sweep_matches_api(models: str) -> None:
    command = ("predict", "--sweep", "--models-dir", models, "--top", "2")
    lines = run(*command).output.splitlines()
    assert lines[0] == chess.STARTING_FEN
    assert lines[4].split() == ["%", *(str(rating) for rating in range(800, 2501, 100))]
    assert [len(line.split()) for line in lines[5:7]] == [19, 19]
    assert lines[7].startswith("18 more")
    chosen = run(*command, "--ratings", "1100,1900", "--json").output
    assert [point["elo"]["self"] for point in json.loads(chosen)["points"]] == [1100, 1900]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("predict", "x"), "Error: fen: 'x' is not a FEN, such as"),
        (("predict", "4k3/8/8/8/8/8/8/1R2K3 w B - 0 1"), "valid as Chess960: use --chess960"),
        (("predict", "--moves", "e2e5"), "Error: moves[0]: 'e2e5' is not legal"),
        (("predict", "--sweep", "--elo", "1500"), "--ratings needs --sweep, and --elo cannot be combined with --sweep"),
        (("predict", "--sweep", "--ratings", "1,x"), "'1,x' is not a list of ratings"),
        (("predict", "--elo", "nan"), "Error: Invalid value for '--elo': 'nan' is not a number"),
        (("predict", "--elo", "5001"), "Error: Invalid value for '--elo': 5001"),
        (("predict", "--calibrated", "--temperature", "2"), "--temperature cannot be combined with --calibrated"),
        (("predict", "--model", "x"), "Error: model: no model 'x'; available: rated"),
        (
            ("predict", "--models-dir", "/nowhere"),
            "Error: models_dir: '/nowhere' is not a folder; name one by --models-dir",
        ),
        (("modles",), "No such command 'modles'. Did you mean 'models'?"),
        (("quux",), "No such command 'quux'."),
        (("predict", "e2e4", "e7e5"), "Error: fen: 'e2e4 e7e5' looks like moves, not like a FEN"),
        (("serve", "--port", "99999"), "Error: --port: 99999 is not a port; use 0 to 65535"),
        (("serve", "--max-batch", "0"), "Error: --max-batch: 0 is not a whole number from 1 to 4096"),
        (("serve", "--workers", "many"), "Error: --workers: many is not auto or a whole number from 1 to 64"),
        (("serve", "--ledger-share", "2"), "Error: --ledger-share: 2 is not a number from 0 to 1"),
        (("serve", "--head-seconds", "inf"), "Error: --head-seconds: inf is not a number above 0"),
        (("serve", "--log-level", "loud"), "Error: --log-level: loud is not critical, error, warning, info or debug"),
        (("serve", "--engine", "quux"), "Error: --engine: there is no program 'quux'"),
        (("serve", "--default-model", "quux"), "Error: --default-model: no model 'quux'; available: "),
    ],
)
def test_errors_are_one_line(models: str, arguments: tuple[str, ...], words: str) -> None:
    if arguments[0] == "predict" and "--models-dir" not in arguments:
        arguments = (*arguments, "--models-dir", models)
    result = run(*arguments)
    assert result.exit_code != 0
    assert words in result.output


def test_flags_of_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOVEMASK_PAGE", "false")
    monkeypatch.setenv("MOVEMASK_MCP", "true")
    for flags, page, mcp in (([], False, True), (["--page", "--no-mcp"], True, False)):
        with monkeypatch.context() as patch:
            served: list[Settings] = []
            patch.setattr("movemask.server.process.service.run_service", served.append)
            assert run("serve", *flags).exit_code == 0
            assert [(settings.page, settings.mcp) for settings in served] == [(page, mcp)]


def test_invalid_database_url_stops_start() -> None:
    command = [sys.executable, "-m", "movemask", "serve", "--port", "0", "--database-url", "mysql://user:secret@x"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--database-url: 'mysql://user:***@x' is not a database URL" in done.stderr
    assert "secret" not in done.stderr


def test_serve_script_installs_command(tmp_path: Path) -> None:
    """The command works from any folder after the first run of scripts/serve, and so does `import movemask`."""
    for file in ("scripts/serve", "scripts/install", "requirements/tools.txt"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / "service").symlink_to(ROOT / "service")
    venv.create(tmp_path / ".venv")
    python, command = tmp_path / ".venv/bin/python", tmp_path / ".venv/bin/movemask"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    (site,) = subprocess.check_output([python, "-c", where], text=True).splitlines()
    Path(site, "packages.pth").write_text(sysconfig.get_path("purelib"))
    digest = sha256((ROOT / "requirements/tools.txt").read_bytes()).hexdigest()
    (tmp_path / ".venv/.installed").write_text(f"{digest}  -\n")
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    refused = subprocess.run(
        [tmp_path / "scripts/serve", "--port", "99999"], env=outside, capture_output=True, text=True
    )
    assert refused.returncode == 1
    assert "99999" in refused.stderr or "65535" in refused.stderr
    version = subprocess.check_output([command, "--version"], cwd="/", env=outside, text=True)
    assert version == f"movemask, version {__version__}\n"
    usage = subprocess.check_output([command, "--help"], cwd="/", env=outside, text=True)
    assert usage.startswith("Usage: movemask [OPTIONS]")
    subprocess.run([python, "-c", "import movemask.client"], cwd="/", env=outside, check=True)


def test_command_lists_are_not_cut_off() -> None:
    for group in ((), ("models",), ("keys",), ("positions",)):
        lines = run(*group, "--help").output.partition("Commands:\n")[2].splitlines()
        assert lines
        assert not [line for line in lines if line.endswith("...")]


def test_serve_help_lists_settings(tmp_path: Path) -> None:
    for file in ("scripts/serve", "docs/settings.md"):
        (tmp_path / file).parent.mkdir()
        shutil.copy(ROOT / file, tmp_path / file)
    done = subprocess.run([str(tmp_path / "scripts" / "serve"), "--help"], capture_output=True, text=True, check=True)
    flags = {f"--{name.replace('_', '-')}" for name in Settings.model_fields.keys() - Settings.of_commands}
    assert set(re.findall(r"^  (--\S+)", done.stdout, re.M)) == flags
    assert set(re.findall(r"^  (--\S+)", run("serve", "--help").output, re.M)) == flags


@pytest.mark.parametrize("where", ["read-only", "file", "below a file", "full"])
def test_unwritable_folder_is_named(tmp_path: Path, where: str) -> None:
    network = str(shipped_models() / "movemask-8.onnx")
    (tmp_path / "file").touch()
    folder = {"file": tmp_path / "file", "below a file": tmp_path / "file" / "x"}.get(where, tmp_path / "disk")
    options = {"read-only": "ro", "full": "size=64k"}
    with file_system(folder, options[where]) if where in options else nullcontext():
        result = run("models", "add", "--force", network, "--name", "mine", "--models-dir", str(folder))
        left = list(folder.iterdir()) if folder.is_dir() else []
    assert result.exit_code == 1
    reason = {"read-only": "Read-only file system", "full": "No space left on device"}.get(where, "it is not a folder")
    assert result.output == f"Error: {folder}: cannot be written: {reason}; --models-dir names another folder\n"
    assert left == []


@pytest.mark.parametrize("command", [["predict"], ["serve", "--help"]])
def test_unwritable_output_is_no_traceback(models: str, command: list[str]) -> None:
    whole = [sys.executable, "-m", "movemask", *command, *(() if "--help" in command else ("--models-dir", models))]
    with open("/dev/full", "wb") as full, started(whole, stdout=full, stderr=PIPE) as process:
        assert process.communicate()[1] == b"Error: No space left on device\n"
        assert process.returncode == 1
    reader, writer = os.pipe()
    os.close(reader)  # as after `| head -1`
    with started(whole, stdout=writer, stderr=PIPE) as process:
        os.close(writer)
        assert process.communicate()[1] == b""
        assert process.returncode == 1


def test_ctrl_c_during_imports_is_no_traceback() -> None:
    interrupted = """
import runpy, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "movemask.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
runpy.run_module("movemask", run_name="__main__")
"""
    with started([sys.executable, "-c", interrupted], stdout=PIPE, stderr=PIPE) as process:
        assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 130


PROGRAM = str(ROOT / "tests" / "windows.py")  # movemask without what Windows lacks, where chess GUIs are


@pytest.mark.parametrize(
    ("command", "sent", "last"),
    [
        (["--help"], "", "  uci "),
        (["uci"], "uci\nposition startpos\ngo\nquit\n", "bestmove "),
        (["predict"], "", "(raw leakage"),
        (["annotate", "-"], "1. e4 e5 *\n", "(first choice), surprise"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_commands_need_nothing_that_windows_lacks(command: list[str], sent: str, last: str) -> None:
    done = subprocess.run([sys.executable, PROGRAM, *command], input=sent, capture_output=True, text=True, check=True)
    assert last in done.stdout


def test_service_needs_nothing_that_windows_lacks(tmp_path: Path) -> None:
    write_fake(tmp_path)
    with served(tmp_path, program=[PROGRAM]) as (process, port):
        assert len(call(port, "/v1/policy", {"fen": "startpos"})["moves"]) == 20
        assert stopped(process) == 0
