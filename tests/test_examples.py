"""The programs in examples/, run as they are."""

from __future__ import annotations

import http.server
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import chess
import chess.engine
import chess.pgn
import pytest
import yaml
from click.testing import CliRunner

from movemask.cli.main import main
from movemask.network.files import shipped_models
from movemask.server.app import create_app
from tests.conftest import ROOT
from tests.processes import environment, served, started

EXAMPLES = ROOT / "examples"
AFTER_E4 = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"


@pytest.mark.parametrize("installed", ["on the PATH", ".venv", "venv"])
def test_lichess_bot_engine_takes_options(tmp_path: Path, installed: str) -> None:
    """Without an activated environment, as under systemd, the engine once was not found."""
    script = tmp_path / installed / "bin" / "movemask"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m movemask "$@"\n')
    script.chmod(0o755)
    variables = dict(os.environ)
    if installed == "on the PATH":
        variables["PATH"] = f"{script.parent}:{variables['PATH']}"
    folder = EXAMPLES / "lichess-bot"
    settings = yaml.safe_load((folder / "config.yml").read_text())
    # What lichess-bot's validate_config demands (lib/config.py).
    assert isinstance(settings["token"], str)
    assert isinstance(settings["url"], str)
    assert isinstance(settings["challenge"], dict)
    engine = settings["engine"]
    assert engine["protocol"] == "uci"
    assert os.stat(folder / engine["name"]).st_mode & stat.S_IXUSR
    (tmp_path / "engines").mkdir()
    file = shutil.copy(folder / engine["name"], tmp_path / "engines")
    with chess.engine.SimpleEngine.popen_uci(str(file), env=variables, timeout=30) as player:
        # As lichess-bot's EngineWrapper: options it does not manage are configured, and the opponent is told.
        player.configure(engine["uci_options"])
        player.send_opponent_information(opponent=chess.engine.Opponent("A", None, 1400, False))
        limit = chess.engine.Limit(white_clock=60, black_clock=60)
        played = player.play(chess.Board(), limit, info=chess.engine.INFO_ALL, ponder=engine["ponder"])
        assert played.move in list(chess.Board().legal_moves)
        assert played.info["wdl"].relative.total() == 1000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real service with the shipped network."""
    folder = tmp_path_factory.mktemp("service")
    for file in shipped_models().iterdir():
        (folder / file.name).symlink_to(file)
    with served(folder) as (_, port):
        yield f"http://127.0.0.1:{port}"


def run(*command: str | Path, **options: Any) -> str:
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True, env=environment(), **options)
    assert (done.returncode, done.stderr) == (0, "")
    return str(done.stdout)


def test_python_example_locally_and_over_http(service: str) -> None:
    here, there = (run(sys.executable, EXAMPLES / "policy.py", *url) for url in ((), (service,)))
    for output in (here, there):
        assert output.splitlines()[9].split() == ["move", "1100", "1500", "1900"]
        assert len(output.splitlines()) == 15
    assert sorted(here.splitlines()) == sorted(there.splitlines())


def test_curl_example(service: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed (Debian: apt-get install curl)")
    lines = run("sh", EXAMPLES / "policy.sh", service).splitlines()
    assert json.loads(lines[1])["moves"][0]["san"] == "Nf3"
    assert json.loads(lines[3])["seed"] == 7
    game = chess.pgn.read_game(io.StringIO("\n".join(lines[5:])))
    assert game is not None
    assert game.end().board().is_checkmate()
    assert "movemask: " in game.comment
    # The rules tell the move that allows mate in one; without an engine no move is called a mistake.
    assert "3...Nf6 allows mate in one" in game.comment
    assert not any("$" in line for line in lines)


@pytest.mark.deep
def test_notebook_draws_causes_of_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    games = "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 6. Re1 b5 7. Bb3 d6 8. c3 O-O *"
    (tmp_path / "games.pgn").write_text(games)
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["audit", "games.pgn"]).exit_code == 0
    notebook = json.loads((EXAMPLES / "leakage.ipynb").read_text())
    assert notebook["nbformat"] == 4
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code")  # its pictures are shown
    script = "import matplotlib; matplotlib.use('Agg')\n" + "\n".join(code).replace("plt.show()", "")
    exec(script, {})
    assert "16 rows, 1 networks" in capsys.readouterr().out
    assert (tmp_path / "leakage-by-cause.png").read_bytes().startswith(b"\x89PNG")


def generator(name: str, package: str) -> str:
    """The path of a generator, which the tests do not install; skips with a reason without it."""
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not on the PATH: {package}")
    return program


@pytest.mark.peer
def test_typescript_example_compiles_and_runs(service: str, tmp_path: Path) -> None:
    types = Path(generator("openapi-typescript", "npm install openapi-typescript")).resolve()
    compiler = Path(generator("tsc", "npm install typescript@5 @types/node openapi-fetch")).resolve()
    for name in ("policy.ts", "fetch.ts", "tsconfig.json", "package.json"):
        shutil.copy(EXAMPLES / "typescript" / name, tmp_path)
    modules = next(folder for folder in compiler.parents if folder.name == "node_modules")
    (tmp_path / "node_modules").symlink_to(modules)
    generate = json.loads((tmp_path / "package.json").read_text())["scripts"]["generate"].split()
    (tmp_path / "openapi.json").write_text(json.dumps(create_app().openapi()))
    run("node", types, tmp_path / "openapi.json", *generate[2:], cwd=tmp_path)
    run("node", compiler, cwd=tmp_path)
    lines = run("node", "dist/policy.js", service, cwd=tmp_path).splitlines()
    assert lines[0].startswith("white to move, by ")
    assert lines[1].startswith("Nf3 ")
    assert len(lines) == 6
    fetched = run("node", "dist/fetch.js", service, cwd=tmp_path).splitlines()
    assert fetched[0].startswith("white to move: ")
    assert fetched[1].startswith("422 fen: 'nonsense' is not a FEN")
    assert fetched[2] == "urn:movemask:problem:invalid-fen"
    recipe = (ROOT / "docs" / "api.md").read_text()
    for words in ('createClient<paths, "application/json" | "application/problem+json">', "typescript@5"):
        assert words in recipe
    assert json.loads((tmp_path / "package.json").read_text())["devDependencies"]["typescript"] == "^5"


@pytest.mark.deep
def test_tournament_of_two_ratings(tmp_path: Path) -> None:
    """With clocks that a busy machine does not run down: the engines take what they need, not what they have."""
    weak, strong = (f"{sys.executable} -m movemask uci --elo {elo} --temperature 1" for elo in (1100, 1900))
    options = ["--games", "2", "--pgn", str(tmp_path / "games.pgn"), "--seconds", "600", "--increment", "10"]
    output = run(sys.executable, EXAMPLES / "tournament.py", *options, "--first-option", "Seed=3", weak, strong)
    assert "2 games" in output
    with open(tmp_path / "games.pgn") as stream:
        games = [chess.pgn.read_game(stream) for _ in range(2)]
    assert [game.headers["Round"] for game in games if game and not game.errors] == ["1", "2"]


class Lichess(http.server.BaseHTTPRequestHandler):
    """The routes of lichess's external engine protocol, with one position to analyse."""

    registered: ClassVar[dict[str, Any]] = {}
    lines = ""
    done = threading.Event()

    def do_GET(self) -> None:
        self.answer([])

    def do_POST(self) -> None:
        if "Content-Length" in self.headers:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        else:
            chunks = iter(lambda: self.rfile.read(int(self.rfile.readline(), 16) + 2), b"\r\n")
            body = b"".join(chunk[:-2] for chunk in chunks).decode()
        if self.path == "/api/external-engine":
            Lichess.registered = json.loads(body) | {"token": self.headers["Authorization"]}
            self.answer([])
        elif self.path == "/api/external-engine/work/job-1":
            Lichess.lines = body
            self.answer([])
            self.done.set()
        elif self.done.is_set() or json.loads(body)["providerSecret"] != self.registered["providerSecret"]:
            self.send_response(204)
            self.end_headers()
        else:
            work = {"multiPv": 2, "initialFen": chess.STARTING_FEN, "moves": ["e2e4"], "movetime": 1000}
            self.answer({"id": "job-1", "work": work})

    def answer(self, value: Any) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def test_lichess_provider_answers_work() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Lichess) as lichess:
        threading.Thread(target=lichess.serve_forever).start()
        address = f"http://127.0.0.1:{lichess.server_port}"
        command = [sys.executable, str(EXAMPLES / "lichess-engine" / "provider.py"), "--lichess", address]
        command += ["--broker", address, sys.executable, "-m", "movemask", "uci"]
        with started(command, env=environment(LICHESS_TOKEN="lip_test")):
            assert Lichess.done.wait(60)
        lichess.shutdown()
    assert Lichess.registered["token"] == "Bearer lip_test"
    assert Lichess.registered["variants"] == ["chess"]
    first, second = Lichess.lines.splitlines()
    assert first.startswith("info depth 1 seldepth 2 multipv 1 score cp ")
    assert " multipv 2 score cp " in second
