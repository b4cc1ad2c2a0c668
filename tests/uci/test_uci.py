"""The UCI engine, driven by python-chess and by raw commands."""

from __future__ import annotations

import io
import logging
import random
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import chess
import chess.engine
import chess.polyglot
import httpx2
import pytest
from fastapi.testclient import TestClient

from movemask.cli.uci import RemoteSource
from movemask.client.http import Client
from movemask.errors import ApiError, ModelUnavailable, ServiceUnreachable
from movemask.local.distribution import Policy
from movemask.local.network import Network, load
from movemask.uci.commands import Go
from movemask.uci.engine import Engine
from movemask.uci.options import Options
from movemask.uci.search import Search, Source
from tests.client.through import through
from tests.ground_truth import perft
from tests.networks import write_fake
from tests.processes import free_port, until
from tests.uci.test_strength import COMMAND, copied


@pytest.fixture(scope="module")
def started() -> Iterator[chess.engine.SimpleEngine]:
    """The engine with the shipped network."""
    with chess.engine.SimpleEngine.popen_uci(COMMAND, timeout=30) as engine:
        yield engine


@pytest.fixture
def engine(started: chess.engine.SimpleEngine) -> Iterator[chess.engine.SimpleEngine]:
    """The engine, which all tests share, with its options as they were."""
    yield started
    free = (option for option in started.options.values() if not option.is_managed() and option.type != "button")
    started.configure({option.name: option.default for option in free})


@pytest.fixture
def unmeasured(tmp_path: Path) -> Iterator[chess.engine.SimpleEngine]:
    """With the shipped network, but no table of its strengths."""
    with chess.engine.SimpleEngine.popen_uci([*COMMAND, "--models-dir", str(copied(tmp_path, []))]) as engine:
        yield engine


def played_by(engine: chess.engine.SimpleEngine, board: chess.Board, **options: Any) -> chess.Move:
    """The engine's move, which is legal."""
    move = engine.play(board, chess.engine.Limit(time=0.1), **options).move
    assert move is not None
    assert board.is_legal(move)
    return move


def test_self_play_is_legal(engine: chess.engine.SimpleEngine) -> None:
    board = chess.Board()
    engine.configure({"Temperature": "1.3", "Seed": 11})
    while not board.is_game_over(claim_draw=True) and board.ply() < 150:
        board.push(played_by(engine, board))
    assert board.ply() > 20
    engine.configure({"Temperature": "0", "Seed": 0})


def test_multipv_lists_every_legal_move(engine: chess.engine.SimpleEngine, network: Network) -> None:
    board = chess.Board("r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 0 4")
    policy = network.policy(board)
    lines = engine.analyse(board, chess.engine.Limit(depth=1), multipv=500, options={"UCI_ShowWDL": True})
    assert {line["pv"][0] for line in lines} == set(board.legal_moves)
    for number, line in enumerate(lines, 1):
        move = line["pv"][0]
        assert line["multipv"] == number
        assert line["string"] == f"P: {100 * policy[move]:.2f} %"
        wdl = line["wdl"].relative
        assert wdl.total() == 1000
        if move.uci() == "f3f7":
            assert line["score"].relative == chess.engine.Mate(1)
            assert wdl.wins == 1000
        else:
            after = board.copy()
            after.push(move)
            value = network.policy(after).value
            assert value is not None
            assert wdl.expectation() == pytest.approx(1 - value.score, abs=0.002)
            assert (line["score"].relative.score() or 0) * (wdl.expectation() - 0.5) >= -0.5


def test_limit_strength_without_table_is_a_rating(unmeasured: chess.engine.SimpleEngine, network: Network) -> None:
    board = chess.Board("r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR b KQkq - 3 3")

    def first(**options: chess.engine.ConfigValue) -> str:
        (line,) = unmeasured.analyse(board, chess.engine.Limit(nodes=1), multipv=1, options=options)
        return line["string"]

    limited = first(UCI_LimitStrength=True, UCI_Elo=1100)
    assert limited == first(SelfElo=1100, OpponentElo=1100)
    assert limited == f"P: {100 * max(network.policy(board, elo=1100).probabilities.values()):.2f} %"
    assert limited != first(SelfElo=1100, OpponentElo=2200) or limited != first(SelfElo=2200)


def test_ratings_outside_the_range_are_noted(unmeasured: chess.engine.SimpleEngine, network: Network) -> None:
    offered = unmeasured.options["UCI_Elo"]
    assert (offered.default, offered.min, offered.max) == (1500, 600, 2600)  # models/movemask-8.toml
    sent = "setoption name SelfElo value 3200\nsetoption name Temperature value 0\ngo\n"
    spoken = subprocess.run(COMMAND, input=sent, capture_output=True, text=True, check=True).stdout.splitlines()
    assert spoken[0] == "info string movemask-8 does not know the rating 3200: asked as 2600"
    highest = max(network.policy(chess.Board(), elo=2600).probabilities.values())
    assert f"P: {100 * highest:.2f} %" in spoken[-2]


@pytest.mark.parametrize("option", ["SelfElo value 1200", "UCI_LimitStrength value true"])
def test_network_without_ratings_notes_it(option: str, tmp_path: Path) -> None:
    write_fake(tmp_path, "plain")
    command = [*COMMAND, "--models-dir", str(tmp_path)]
    sent = f"go\nsetoption name {option}\ngo\n"
    spoken = subprocess.run(command, input=sent, capture_output=True, text=True, check=True).stdout
    before, after = spoken.split("bestmove", 1)
    assert "info string" not in before
    assert "\ninfo string plain takes no ratings: SelfElo, OpponentElo and UCI_Elo have no effect\n" in after


def test_opponent_rating_from_uci_opponent(engine: chess.engine.SimpleEngine, network: Network) -> None:
    engine.send_opponent_information(opponent=chess.engine.Opponent(name="A", title=None, rating=1900, is_engine=False))
    board = chess.Board()
    limit = chess.engine.Limit(nodes=1)
    options: chess.engine.ConfigMapping = {"SelfElo": 1200, "Temperature": "0"}
    # A new game, at which python-chess sends what it knows of the opponent.
    played = engine.play(board, limit, game=object(), info=chess.engine.INFO_ALL, options=options)
    highest = max(network.policy(board, elo=(1200, 1900)).probabilities.values())
    assert played.info["string"] == f"P: {100 * highest:.2f} %"


#: `uci_options` of lichess-bot's `config.yml.default` (lichess-bot-devs/lichess-bot), as later versions have it.
LICHESS_BOT: chess.engine.ConfigMapping = {
    "Move Overhead": 100,
    "Threads": 2,
    "Hash": 256,
    "SyzygyPath": "./syzygy/",
    "UCI_ShowWDL": True,
}


def test_lichess_bot_options(engine: chess.engine.SimpleEngine, caplog: pytest.LogCaptureFixture) -> None:
    """As lichess-bot does it, through python-chess: options, clocks, pondering, a new game and the opponent's name."""
    with caplog.at_level(logging.WARNING, "chess.engine"):
        engine.configure({**LICHESS_BOT, "Seed": 7})  # other games may end in a mate
        opponent = chess.engine.Opponent("somebody", None, 1600, is_engine=False)
        engine.send_opponent_information(opponent=opponent)
        for game in range(2):
            board = chess.Board()
            for _ in range(8):
                limit = chess.engine.Limit(white_clock=60, black_clock=60, white_inc=1, black_inc=1)
                played = engine.play(board, limit, game=game, info=chess.engine.INFO_ALL, ponder=True)
                assert played.move is not None
                assert played.info["score"].relative.score() is not None
                assert "wdl" in played.info
                board.push(played.move)
        for multipv in (1, 5):
            lines = engine.analyse(board, chess.engine.Limit(depth=1), multipv=multipv)
            assert len(lines) == multipv
        engine.configure({"VerboseMoveStats": True})
        engine.analyse(board, chess.engine.Limit(nodes=1), info=chess.engine.INFO_ALL)
    assert caplog.messages == []


def test_chess960_castling(engine: chess.engine.SimpleEngine) -> None:
    engine.configure({"Temperature": "0"})
    for row in perft("chess960")[:5]:
        board = chess.Board(row.fen, chess960=True)
        for _ in range(12):
            board.push(played_by(engine, board))
    board = chess.Board("4k3/8/8/8/8/8/8/4K2R w H - 0 1", chess960=True)
    castles = [chess.Move.from_uci("e1h1")]
    assert played_by(engine, board, root_moves=castles) == castles[0]


def test_infinite_analysis_waits_for_stop(engine: chess.engine.SimpleEngine) -> None:
    with engine.analysis(chess.Board(), chess.engine.Limit(), multipv=2) as analysis:
        first = analysis.get()
        assert first["multipv"] == 1
        analysis.stop()
        assert analysis.wait().move is not None


def test_ponder(engine: chess.engine.SimpleEngine) -> None:
    board = chess.Board()
    played = engine.play(board, chess.engine.Limit(time=0.1), ponder=True)
    assert played.move is not None
    assert played.ponder is not None
    board.push(played.move)
    assert played.ponder in board.legal_moves
    board.push(played.ponder)
    played_by(engine, board)  # a ponderhit


def test_engine_survives_any_input() -> None:
    rng = random.Random(5)
    words = ["uci", "isready", "ucinewgame", "position", "fen", "startpos", "moves", "e2e4", "setoption", "name"]
    words += ["value", "go", "searchmoves", "nodes", "-1", "ponder", "infinite", "stop", "ponderhit", "\x00", "é"]
    lines = [" ".join(rng.choices(words, k=rng.randrange(1, 9))).encode() for _ in range(400)]
    lines += [rng.randbytes(200).replace(b"\n", b"") for _ in range(50)]
    lines += [b"9" * 400, b"go " * 100_000, b"position fen " + b"8/" * 50_000, b"setoption name Model value nothing"]
    process = subprocess.Popen(COMMAND, stdin=-1, stdout=-1, stderr=-1)
    end = [b"stop", b"position startpos", b"go", b"quit", b""]
    written, errors = process.communicate(b"\n".join([b"uci", *lines, *end]), 60)
    assert (process.returncode, errors) == (0, b"")
    output = written.decode().splitlines()
    last = output[-1].split()
    assert last[0] == "bestmove"
    assert chess.Move.from_uci(last[1]) in chess.Board().legal_moves


@pytest.mark.parametrize(
    ("sent", "message", "best"),
    [
        ("rubbish", "unknown command: rubbish", None),
        ("setoption name Nothing value 3", "setoption: no option 'Nothing'", None),
        ("setoption name TopP value 0", "setoption: TopP: '0' is not a number from 1e-09 to 1", None),
        ("go depth abc", "go: 'abc' is not known", "e2e4"),
        ("go perft 3", "go: 'perft' is not known", "e2e4"),
        ("go searchmoves e2e5", f"go: searchmoves: 'e2e5' is not legal in {chess.STARTING_FEN!r}", "e2e4"),
        ("go searchmoves e2e5 a2a3", f"go: searchmoves: 'e2e5' is not legal in {chess.STARTING_FEN!r}", "a2a3"),
    ],
)
def test_unknown_input_is_reported(network: Network, sent: str, message: str, best: str | None) -> None:
    out = io.StringIO()
    Engine(lambda *_: network, Options(temperature=0), out).run([sent, "stop", "quit"])
    lines = out.getvalue().splitlines()
    assert lines[0] == f"info string {message}"
    assert [line for line in lines if line.startswith("bestmove")] == ([f"bestmove {best}"] if best else [])


def test_uciok_before_heavy_imports() -> None:
    code = "import sys; from movemask.__main__ import main; sys.argv[1:] = ['uci']; import atexit; atexit.register("
    code += "lambda: print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)); main()"
    done = subprocess.run([sys.executable, "-c", code], input="uci\nquit\n", capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "uciok"
    imported = set(done.stderr.split())
    assert not imported & {"fastapi", "starlette", "uvicorn", "sqlalchemy", "prometheus_client", "numpy", "onnxruntime"}


def test_opening_book(network: Network, tmp_path: Path) -> None:
    book = tmp_path / "one.bin"  # Polyglot's format: key, move, weight and learn of each entry
    castles = chess.Board("4k3/8/8/8/8/8/8/4K2R w K - 0 1")
    entries = [(chess.Board(), "b1a3", 1)]
    entries += [(castles, "e1h1", 1), (castles, "e1d1", 0), (castles, "e1e7", 9)]  # castling; weight 0; not legal
    packed = []
    for board, text, weight in entries:
        move = chess.Move.from_uci(text)
        entry = (chess.polyglot.zobrist_hash(board), move.from_square << 6 | move.to_square, weight, 0)
        packed.append(struct.pack(">QHHI", *entry))
    book.write_bytes(b"".join(sorted(packed)))

    def told(*commands: str) -> list[str]:
        out = io.StringIO()
        Engine(lambda *_: network, Options(temperature=0), out).run(
            [f"setoption name BookFile value {book}", *commands]
        )
        return out.getvalue().splitlines()

    assert told("position startpos", "go")[-1] == "bestmove b1a3"
    assert {told(f"position fen {castles.fen()}", "go")[-1] for _ in range(9)} == {"bestmove e1g1"}
    assert told("position startpos", "go searchmoves e2e4")[-1] == "bestmove e2e4"
    assert told("position startpos moves e2e4", "go")[-1] != "bestmove b1a3"
    (fault,) = told(f"setoption name BookFile value {book}x")
    assert fault == f"info string setoption: BookFile: {book}x: cannot be read: No such file or directory"
    (tmp_path / "empty.bin").touch()
    for file in (tmp_path, tmp_path / "empty.bin"):
        (fault,) = told(f"setoption name BookFile value {file}")
        assert fault == f"info string setoption: BookFile: {file}: contains no moves"


def test_remote_and_local_sources_agree(shipped: TestClient) -> None:
    sources: tuple[Source, Source] = load(), RemoteSource(Client(http=through(shipped)), None)
    options = Options(temperature=0, multi_pv=4, show_wdl=True, self_elo=1300, opponent_elo=1700, ponder=True)
    board = chess.Board()
    for uci in ("e2e4", "c7c5", "g1f3"):
        board.push_uci(uci)
        infos = [Search(board, Go(), options, source, random.Random(1)).info() for source in sources]
        lines = [[line.split(" nodes ")[0] + line.partition(" pv ")[2] for line in part] for part in infos]
        assert lines[0] == lines[1]


def without_service(spare: Callable[[], Source], *commands: str) -> list[str]:
    """What an engine writes whose service cannot be reached."""

    def gone(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(gone), base_url="http://nowhere")
    out = io.StringIO()
    engine = Engine(lambda name, _: RemoteSource(Client(http=http, retries=0), name), Options(), out, spare)
    engine.run(["isready", *commands, "quit"])
    assert "info string http://nowhere/v1/policy/batch: ConnectError: refused" in out.getvalue()
    return out.getvalue().splitlines()


@pytest.mark.parametrize("temperature", [0, 100])
def test_fallback_without_service(network: Network, temperature: int) -> None:
    commands = (f"setoption name Temperature value {temperature}", "position startpos moves e2e4", "go movetime 2000")
    lines = without_service(lambda: network, *commands, "stop")
    board = chess.Board()
    board.push_san("e4")
    assert lines[-1] == f"bestmove {network.policy(board).best}"
    assert lines[-2].endswith(" %, by movemask-8 on this machine: the service does not answer")


def test_absent_service_is_asked_once_per_move(network: Network, shipped: TestClient) -> None:
    """Each move once cost half of the clock."""
    tries: list[str] = []
    out = io.StringIO()
    answering = RemoteSource(Client(http=through(shipped)), None)

    class Absent(RemoteSource):
        def policies(self, boards: Any, *, elo: Any) -> list[Policy]:
            tries.append("asked")
            if out.getvalue().count("bestmove") < 3:
                raise ServiceUnreachable("http://x: refused")
            return answering.policies(boards, elo=elo)

    def has_moved(times: int) -> bool:
        return out.getvalue().count("bestmove") == times

    def lines() -> Iterator[str]:
        for times in range(1, 5):
            yield "position startpos moves e2e4 e7e5"
            yield "go wtime 2000 btime 2000"
            until(partial(has_moved, times), "the engine has moved")
            tries.append("moved")

    engine = Engine(lambda name, _: Absent(Client(http=through(shipped)), name), Options(), out, lambda: network)
    engine.run(lines())
    first = tries.index("moved")
    assert first > 1, "it waits for a service that may restart"
    assert tries[first:] == ["moved", *["asked", "moved"] * 3]
    remarks = ["this machine" in line for line in out.getvalue().splitlines() if " pv " in line]
    assert remarks == [True, True, True, False]


def test_engine_starts_without_its_service() -> None:
    """lichess-bot starts an engine for each game, and those that began while a service restarted had none."""
    url = f"http://127.0.0.1:{free_port()}"
    commands = "uci\nisready\nposition startpos\ngo movetime 1000\nquit\n"
    result = subprocess.run([*COMMAND, "--url", url], input=commands, capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    assert {"uciok", "readyok"} <= set(lines)
    assert lines[-2].endswith("by movemask-8 on this machine: the service does not answer")
    assert re.fullmatch("bestmove [a-h][1-8][a-h][1-8]", lines[-1])


def test_legal_move_without_any_network() -> None:
    def broken() -> Source:
        raise ModelUnavailable("no network here")

    lines = without_service(broken, "position fen 7k/8/8/8/8/8/6q1/K7 w - - 0 1", "go movetime 10", "stop")
    assert "info string no network here" in lines
    assert lines[-1] == "bestmove a1b1"
    mated = without_service(broken, "position fen 7k/6Q1/6K1/8/8/8/8/8 b - - 0 1", "go movetime 10", "stop")
    assert mated[-1] == "bestmove (none)"


def test_engine_ends_when_nobody_reads(network: Network, capfd: pytest.CaptureFixture[str]) -> None:
    class Broken(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    left = iter(["isready", "go infinite", *["isready"] * 100])
    Engine(lambda *_: network, Options(), Broken()).run(left)
    assert len(list(left)) > 90
    assert "Traceback" not in capfd.readouterr().err


def test_restarting_service_is_asked_again(shipped: TestClient) -> None:
    """The third time it is there again, well within the clock."""
    tries: list[int] = []

    class Restarting(RemoteSource):
        def policies(self, boards: Any, *, elo: Any) -> list[Policy]:
            tries.append(1)
            if len(tries) == 1:
                raise ServiceUnreachable("http://x: refused")
            if len(tries) == 2:
                raise ApiError(502, "about:blank", "HTTP 502", "the proxy has no service")
            return super().policies(boards, elo=elo)

    out = io.StringIO()

    def lines() -> Iterator[str]:
        yield from ("position startpos", "go wtime 60000 btime 60000")
        until(lambda: "bestmove" in out.getvalue(), "the engine has moved")

    source = Restarting(Client(http=through(shipped)), None)
    Engine(lambda name, _: source, Options(), out).run(lines())
    assert len(tries) == 3
    assert re.search(r"^bestmove [a-h]", out.getvalue(), re.MULTILINE)


def test_huge_clock(network: Network) -> None:
    """Its thread died of the time it was to think, and no later `go` was answered."""
    out = io.StringIO()
    commands = ("setoption name Think Time value true", f"go wtime {10**20} btime 1", "stop", "quit")
    Engine(lambda *_: network, Options(temperature=0), out).run(commands)
    assert out.getvalue().splitlines()[-1].startswith("bestmove ")
