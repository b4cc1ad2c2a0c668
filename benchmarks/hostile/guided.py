"""Coverage-guided fuzzing of what reads strangers' text: FENs, PGNs, contracts and bodies of requests, by atheris.

`python -m benchmarks.hostile.guided fen -max_total_time=60`, with atheris beside the service's packages
(`pip install atheris`; it is no dependency). Ends with an error at the first input that breaks a promise.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.hostile.clients import ROOT, positions
from benchmarks.hostile.trial import Trial

_MODULES = (
    *("chess", "chess.pgn", "json.decoder", "tomllib._parser"),
    *("movemask.board.position", "movemask.board.moves", "movemask.board.pgn"),
    *("movemask.network.contract", "movemask.server.api.bodies", "movemask.server.api.requests"),
)


def _promise(kept: bool, text: str) -> None:
    """Raises AssertionError with `text` if a promise is broken, which atheris reports with the input."""
    if not kept:
        raise AssertionError(text)


def _fen() -> Callable[[bytes], None]:
    import chess

    from movemask.board.position import Position
    from movemask.errors import MovemaskError

    def check(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        try:
            position = Position.read(text)
        except MovemaskError:
            try:
                board = chess.Board(text)
            except ValueError:
                return
            plain = max(board.halfmove_clock, board.fullmove_number) <= 1_000_000 and len(text) <= 200
            _promise(not (board.is_valid() and plain and len(text.split()) >= 4), f"{text!r} is refused")
            return
        theirs = chess.Board() if text == "startpos" else chess.Board(text)
        _promise(position.board == theirs and theirs.is_valid(), f"{text!r} is read otherwise")
        _promise(Position.read(position.fen).board == theirs, f"{text!r} is not what its FEN says")

    return check


def _pgn() -> Callable[[bytes], None]:
    from movemask.board.pgn import Game, read_games
    from movemask.errors import LimitExceeded

    def check(data: bytes) -> None:
        try:
            games = list(read_games(io.StringIO(data.decode("utf-8", "replace")), 2_000))
        except LimitExceeded:
            return
        _promise(bool(games), "no game, and no error")
        for game in games:
            if isinstance(game, Game):
                for ply in game.plies:
                    _promise(ply.played in ply.position.board.legal_moves, f"{ply} is not legal")

    return check


def _contract() -> Callable[[bytes], None]:
    from movemask.errors import MovemaskError
    from movemask.network.contract import read_contract

    file = Path(tempfile.mkdtemp(prefix="movemask-fuzz-")) / "contract.toml"

    def check(data: bytes) -> None:
        file.write_bytes(data)
        try:
            read_contract(file)
        except MovemaskError as error:
            _promise("contract.toml" in str(error), f"{error} names no file")

    return check


def _body() -> Callable[[bytes], None]:
    from movemask.errors import MovemaskError
    from movemask.server.api.bodies import parsed
    from movemask.server.api.routes import games, judge, policy
    from movemask.server.api.routing import BodyRoute
    from movemask.server.edge.limits import RequestLimits
    from movemask.server.problems import ProblemError

    limits = RequestLimits(2 << 20, 1024, 1024)
    routes = [route for route in (*policy.routes, *games.routes, *judge.routes) if isinstance(route, BodyRoute)]

    def check(data: bytes) -> None:
        route = routes[data[0] % len(routes)] if data else routes[0]
        try:
            parsed(data[1:], route.request_model, limits)
        except ProblemError as error:
            _promise(error.problem.status < 500, str(error.problem))
        except MovemaskError:
            pass

    return check


TARGETS: dict[str, Callable[[], Callable[[bytes], None]]] = {
    "fen": _fen,
    "pgn": _pgn,
    "contract": _contract,
    "body": _body,
}

_PGN = '[Event "x"]\n[FEN "%s"]\n[SetUp "1"]\n\n1. e4 {[%%clk 0:01]} e5 (1... c5 2. Nf3) 2. Nf3 $1 Nc6 1/2-1/2\n\n'


def _seeds(name: str) -> Iterator[bytes]:
    start = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
    if name == "fen":
        yield from (fen.encode() for fen in positions(300))
        yield b"startpos"
    elif name == "pgn":
        yield (_PGN % start).encode()
        yield b'[Variant "Chess960"]\n\n1. O-O O-O-O 2. e8=Q# *'
    elif name == "contract":
        yield from (file.read_bytes() for file in sorted((ROOT / "models").glob("*.toml")))
    else:
        for number in range(6):
            for body in (
                b'{"fen":"startpos","moves":["e2e4"],"include":["san"],"elo":{"self":1500}}',
                b'{"positions":[{"fen":"startpos"},{"moves":[]}],"model":"x"}',
                b'{"pgn":"1. e4 *"}',
                b'{"fen":"startpos","elo":[1100,1200],"temperature":1.0,"top_k":3}',
                b'{"fen":"startpos","logits":[0.1,-1e308],"seed":1,"method":"sample"}',
            ):
                yield bytes([number]) + body


def main(arguments: list[str]) -> None:
    """Fuzzes one target with libFuzzer's options."""
    import atheris

    with atheris.instrument_imports(include=["chess", "movemask", "json", "tomllib"]):
        for module in _MODULES:
            importlib.import_module(module)
    check = TARGETS[arguments[0]]()
    with tempfile.TemporaryDirectory(prefix="movemask-corpus-") as folder:
        for number, seed in enumerate(_seeds(arguments[0])):
            (Path(folder) / str(number)).write_bytes(seed)
        atheris.Setup(
            [sys.argv[0], folder, "-max_len=4000", "-timeout=20", "-rss_limit_mb=2000", *arguments[1:]], check
        )
        atheris.Fuzz()


def guided(seconds: float) -> Iterator[Trial]:
    """Each target for a time, in a process of its own."""
    interpreter = os.environ.get("ATHERIS_PYTHON", sys.executable)
    if subprocess.run([interpreter, "-c", "import atheris"], capture_output=True, check=False).returncode:
        print("SKIPPED: atheris is not installed (pip install atheris, or ATHERIS_PYTHON)")
        return
    for name in TARGETS:
        with tempfile.TemporaryDirectory(prefix="movemask-fuzz-") as folder:
            command = [interpreter, "-m", "benchmarks.hostile.guided", name, f"-max_total_time={seconds:.0f}"]
            environment: dict[str, Any] = {**os.environ, "PYTHONPATH": f"{ROOT / 'service'}:{ROOT}"}
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        runs = re.search(r"Done (\d+) runs in (\d+) second", done.stderr)
        covered = re.findall(r"cov: (\d+)", done.stderr) or ["?"]
        if done.returncode:
            print(f"WRONG: {name}:", done.stderr[-2000:])
        count = f"{int(runs[1]):,} inputs in {runs[2]} s" if runs else "stopped"
        seen = f"{count}; {covered[0]} to {covered[-1]} points of the code reached; exit code {done.returncode}"
        yield Trial(f"{name}: inputs that reach new code", "right, or an error of ours", seen, done.returncode == 0)


if __name__ == "__main__":
    main(sys.argv[1:])
