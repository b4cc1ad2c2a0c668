"""The engine's play: variety, analysis, endgame tables, repetitions and statistics."""

from __future__ import annotations

import io
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import chess
import chess.syzygy
import pytest

from movemask.board.position import Position
from movemask.games.think_time import RESERVE, Clock, think_time
from movemask.local.network import Network
from movemask.uci.commands import Go
from movemask.uci.endgames import folders_of, table_moves_of
from movemask.uci.engine import Engine
from movemask.uci.options import Options, Strengths
from movemask.uci.search import Search, Source
from tests.ground_truth import DATA, lc0_slots
from tests.uci.test_field import answers

MARKS = re.compile(r"[A-Z]+:|[(+)%]")

SYZYGY = str(DATA / "syzygy")


def played(
    network: Network, board: chess.Board, options: Options, seed: int | None = None, *, infinite: bool = False
) -> chess.Move:
    move = Search(board, Go(infinite=infinite), options, network, random.Random(seed)).best
    assert move is not None
    assert board.is_legal(move)
    return move


def test_games_differ(network: Network) -> None:
    games = set()
    for _ in range(3):
        board = chess.Board()
        engines = [random.Random(), random.Random()]
        for ply in range(24):
            move = Search(board, Go(), Options(), network, engines[ply % 2]).best
            if move is None:
                break
            board.push(move)
        games.add(tuple(board.move_stack))
    assert len(games) == 3


def test_analysis_shows_the_most_probable_move(network: Network) -> None:
    board = chess.Board()
    best = network.policy(board).best
    hot = Options(temperature=100)
    assert {played(network, board, hot, seed) for seed in range(9)} != {best}
    assert {played(network, board, hot, seed, infinite=True) for seed in range(9)} == {best}
    hot.analyse = True  # python-chess sets UCI_AnalyseMode for `analyse` and unsets it for `play`
    assert {played(network, board, hot, seed) for seed in range(9)} == {best}


#: Positions in which one of the moves loses a queen or allows mate, and two moves.
GRADED = [
    ("startpos moves e2e4 e7e5 d1h5 b8c6", ["f1c4", "h5f7"]),
    ("startpos moves f2f3 e7e5", ["e2e4", "g2g4"]),
    ("fen 4k3/8/8/8/8/8/4q3/K3Q3 w - - 0 1", ["e1e2", "e1h1"]),
]


@pytest.mark.parametrize(("position", "moves"), GRADED)
@pytest.mark.parametrize("how", ["nodes 60", "infinite"])
def test_searchmoves_score_is_after_the_move(network: Network, position: str, moves: list[str], how: str) -> None:
    def scores(*commands: str) -> dict[str, str]:
        lines = answers(network, f"position {position}", *commands)
        matches = [re.search(r" score (\S+ \S+) .* pv (\S+)", line) for line in lines]
        return {match[2]: match[1] for match in matches if match}

    beside = scores("setoption name MultiPV value 500", "go nodes 60")
    alone = {move: scores(f"go searchmoves {move} {how}")[move] for move in moves}
    assert alone == {move: beside[move] for move in moves}
    assert len(set(alone.values())) == len(moves)
    (every,) = scores(f"go searchmoves {' '.join(beside)} nodes 60").values()
    (position_itself,) = scores("go nodes 60").values()
    assert every == position_itself  # naming all moves leaves none out


#: lc0's temperature at move numbers, from `Search::EnsureBestMoveKnown` of `src/mcts/search.cc`: unchanged for the
#: delay, then falling linearly to 0. Columns: TempDecayMoves, TempDecayDelayMoves, move number, share of Temperature.
DECAY = [
    (0, 0, 80, 1.0),
    (10, 0, 1, 1.0),
    (10, 0, 2, 0.9),
    (10, 0, 10, 0.1),
    (10, 0, 11, 0.0),
    (10, 5, 6, 1.0),
    (10, 5, 7, 0.9),
    (10, 5, 16, 0.0),
    (10, 5, 200, 0.0),
    (0, 5, 200, 1.0),
]


@pytest.mark.parametrize(("decay", "delay", "number", "share"), DECAY)
@pytest.mark.parametrize("turn", ["w", "b"])
def test_temperature_decay_matches_lc0(decay: int, delay: int, number: int, share: float, turn: str) -> None:
    options = Options(temperature=1.4, decay_moves=decay, decay_delay_moves=delay)
    board = chess.Board(f"4k3/8/8/8/8/8/8/4K2R {turn} - - 0 {number}")
    assert options.temperature_at(board) == pytest.approx(1.4 * share)
    # A measured strength keeps the temperature that it was measured at.
    measured = Strengths(1200, 1200, ((1200.0, 800.0, 0.5),))
    options.limit_strength, options.model, options.models = True, "m", {"m": measured}
    assert options.temperature_at(board) == 0.5


def shuffled(fen: str, *moves: str) -> chess.Board:
    board = chess.Board(fen)
    for uci in moves * 2:
        board.push_uci(uci)
    return board


def test_repetition_is_avoided_only_when_ahead(network: Network) -> None:
    ahead = shuffled("6k1/5ppp/8/8/8/8/5PPP/3Q2K1 w - - 0 1", "g1f1", "g8f8", "f1g1", "f8g8")
    behind = shuffled("3q2k1/5ppp/8/8/8/8/5PPP/6K1 w - - 0 1", "g1f1", "g8f8", "f1g1", "f8g8")
    repeats = chess.Move.from_uci("g1f1")
    hot = Options(temperature=100)  # nearly the same probability for every move
    assert repeats not in {played(network, ahead, hot, seed) for seed in range(120)}
    assert repeats in {played(network, behind, hot, seed) for seed in range(120)}
    # It is the only move that is allowed, so it is played.
    only = Search(ahead, Go(searchmoves=["g1f1"]), hot, network, random.Random(1))
    assert only.best == repeats


@pytest.mark.parametrize("fen", ["8/8/8/3K4/3P4/8/8/3k4 w - - 0 1", "8/8/8/3k4/8/8/4P3/4K3 w - - 0 1"])
def test_tables_win(network: Network, fen: str) -> None:
    options, defence = Options(syzygy=SYZYGY, temperature=100), random.Random(3)
    board = chess.Board(fen)
    with chess.syzygy.open_tablebase(SYZYGY) as tables:
        won = tables.probe_wdl(board) == 2
        while not board.is_game_over() and board.ply() < 90:
            assert not won or tables.probe_wdl(board) == 2
            board.push(played(network, board, options, board.ply()))
            if not board.is_game_over():
                board.push(defence.choice(list(board.legal_moves)))
                won = won or tables.probe_wdl(board) == 2
    assert won == board.is_checkmate()


def test_tables_hold_a_draw(network: Network) -> None:
    board = chess.Board("8/5k2/8/8/6K1/4P3/8/8 b - - 0 1")
    drawn = {move for move in board.legal_moves if _result_after(board, move) == 0}
    assert 0 < len(drawn) < board.legal_moves.count()
    options = Options(syzygy=SYZYGY, temperature=100)
    assert {played(network, board, options, seed) for seed in range(60)} == drawn


def _result_after(board: chess.Board, move: chess.Move) -> int:
    after = board.copy()
    after.push(move)
    with chess.syzygy.open_tablebase(SYZYGY) as tables:
        return -tables.probe_wdl(after)


def test_tables_know_the_fifty_move_rule() -> None:
    rook = chess.Board("8/8/8/3k4/8/8/R7/K7 w - - 90 120")  # a mate takes longer than the ten half-moves that are left
    moves = table_moves_of(SYZYGY, rook)
    assert moves is not None
    assert max(moves.results.values()) == 1
    moves = table_moves_of(SYZYGY, chess.Board("8/8/8/3k4/8/8/R7/K7 w - - 0 120"))
    assert moves is not None
    assert max(moves.results.values()) == 2
    assert table_moves_of(SYZYGY, chess.Board()) is None


def test_unreadable_tables_cost_no_move(network: Network, tmp_path: Path) -> None:
    position = "position fen 8/8/8/8/8/1k6/1P6/1K6 w - - 0 1"
    lines = answers(network, f"setoption name SyzygyPath value {SYZYGY}", position, "go")
    assert re.search(r" tbhits [1-9]", lines[0])
    (tmp_path / "empty").mkdir()
    (line,) = answers(network, f"setoption name SyzygyPath value {tmp_path / 'empty'}")
    assert line.endswith(f"{tmp_path / 'empty'}: contains no Syzygy tables (.rtbw, .rtbz)")
    for name in ("KPvK.rtbw", "KPvK.rtbz", "KQvK.rtbw", "KQvK.rtbz"):
        shutil.copy(Path(SYZYGY) / name, tmp_path)
    assert (
        table_moves_of(str(tmp_path), chess.Board("8/1P6/8/8/8/1k6/8/1K6 w - - 0 1")) is None
    )  # promotes to a rook too
    damaged = tmp_path / "damaged"
    shutil.copytree(SYZYGY, damaged)
    for file in damaged.iterdir():
        file.write_bytes(file.read_bytes()[:40])
    lines = answers(network, f"setoption name SyzygyPath value {damaged}", position, "go")
    assert "a table cannot be read" in lines[0]
    assert lines[-1].startswith("bestmove b")
    assert folders_of("") == []


def test_threads_option_reloads_the_network(network: Network) -> None:
    opened: list[tuple[str | None, int]] = []

    def source(name: str | None, threads: int) -> Source:
        opened.append((name, threads))
        return network

    out = io.StringIO()
    commands = ["isready", "setoption name Threads value 3", "isready", "go", "setoption name Hash value 64", "go"]
    Engine(source, Options("movemask-8", threads=2), out).run(commands)
    assert opened == [("movemask-8", 2), ("movemask-8", 3)]
    assert out.getvalue().count("readyok") == 2


def test_readyok_during_analysis(network: Network) -> None:
    out = io.StringIO()

    def commands() -> Iterator[str]:
        yield from ("go infinite", "isready")
        while "readyok" not in out.getvalue():
            yield ""
        assert "bestmove" not in out.getvalue()

    Engine(lambda *_: network, Options(), out).run(commands())
    assert out.getvalue().splitlines()[-1].startswith("bestmove")


@pytest.mark.parametrize("mated", [False, True])
def test_infinite_analysis_grows_until_stop(network: Network, mated: bool) -> None:
    """U04 (LeelaChessZero/lc0#1209): `go infinite` in a mate."""
    out = io.StringIO()
    moves = " moves f2f3 e7e5 g2g4 d8h4" if mated else ""
    last = "score mate 0" if mated else "seldepth 6"

    def commands() -> Iterator[str]:
        yield from (f"position startpos{moves}", "go infinite")
        while last not in out.getvalue():
            yield ""
        assert "bestmove" not in out.getvalue()
        yield "stop"

    Engine(lambda *_: network, Options(), out).run(commands())
    *lines, best = out.getvalue().splitlines()
    assert best == "bestmove (none)" if mated else best.startswith("bestmove ")
    if not mated:
        lines_of_moves = [line.partition(" pv ")[2].partition(" string")[0].split() for line in lines]
        assert [len(moves) for moves in lines_of_moves[:6]] == [1, 2, 3, 4, 5, 6]
        board = chess.Board()
        for uci in lines_of_moves[5]:  # each move is the most probable one
            assert network.policy(board).best == board.parse_uci(uci)
            board.push_uci(uci)


def test_move_overhead_shortens_think_time(network: Network) -> None:
    board = chess.Board("r1bq1rk1/2p1bppp/p1np1n2/1p2p3/4P3/1BP2N1P/PP1P1PP1/RNBQR1K1 b - - 0 9")
    options = Options(think_time=True, move_overhead=400, temperature=0)
    go = Go(numbers={"btime": 60_000, "binc": 1_000})
    search, position = Search(board, go, options, network, random.Random(1)), Position(board)
    assert search.best is not None
    probabilities = network.policy(board).probabilities.values()
    expected = think_time(position, search.best, probabilities, Clock(60, 1, overhead=0.4))
    assert search.seconds == expected > 0.5
    plain = think_time(position, search.best, probabilities, Clock(60, 1))
    assert expected == pytest.approx(plain - 0.4, abs=0.1)
    for remaining in (0.1, 1.0, 1.4, 1.6, 5.0):  # never more than what is left
        thought = think_time(position, search.best, probabilities, Clock(remaining, 0, overhead=0.4))
        assert thought + 0.4 <= max(0.4, remaining - RESERVE)


def stats_of(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("info string ") and " (P: " in line]


def test_nibbler_reads_the_statistics(network: Network) -> None:
    """Nibbler splits a line at blanks and takes the word behind `(P:`, `N:` and the others (`80_info.js`)."""
    lines = answers(network, "setoption name VerboseMoveStats value true", "position startpos", "go nodes 1")
    *moves, node = stats_of(lines)
    policy = network.policy(chess.Board())
    probabilities = {}
    for line in moves:
        words = line.split()
        probabilities[chess.Move.from_uci(words[2])] = float(words[words.index("(P:") + 1].rstrip("%)"))
    assert list(probabilities) == sorted(policy.probabilities, key=lambda move: policy[move])
    assert probabilities == {move: pytest.approx(100 * policy[move], abs=0.0051) for move in policy}
    words = node.split()
    assert (words[2], words[words.index("N:") + 1]) == ("node", "1")
    assert policy.value is not None
    assert float(words[words.index("(V:") + 1].rstrip(")")) == pytest.approx(2 * policy.value.score - 1, abs=1e-4)
    assert lines[-1].startswith("bestmove")
    assert lines[-2] == node
    # Nibbler takes all words behind `pv` for moves.
    (info,) = [line for line in lines if " pv " in line]
    assert all(re.fullmatch(r"[a-h][1-8][a-h][1-8][nbrq]?", word) for word in info.partition(" pv ")[2].split())


def test_statistics_columns_match_lc0(network: Network) -> None:
    """Compared with lines of lc0 itself: every bracket, colon and per cent sign stands in the same column."""
    *moves, node = stats_of(answers(network, "setoption name VerboseMoveStats value true", "go nodes 1"))
    ours = {line.split()[2]: line for line in [*moves, node]}
    for line in (DATA / "field" / "lc0-verbose.txt").read_text().splitlines():
        own = ours[line.split()[2]]
        assert [(at.start(), at[0]) for at in MARKS.finditer(own)] == [
            (at.start(), at[0]) for at in MARKS.finditer(line)
        ]
        assert own[:25] == line[:25]  # the move and its index
        assert len(own) == len(line)


def test_statistics_indices_match_lc0(network: Network) -> None:
    for fen, slots in lc0_slots()[:6]:
        lines = answers(network, "setoption name VerboseMoveStats value true", f"position fen {fen}", "go nodes 1")
        indices = {line.split()[2]: int(line[18:].split("(")[1].split(")")[0]) for line in stats_of(lines)[:-1]}
        assert indices == slots


@pytest.mark.parametrize("live", [False, True])
def test_statistics_at_end_or_with_each_report(network: Network, live: bool) -> None:
    out = io.StringIO()
    before: list[str] = []

    def commands() -> Iterator[str]:
        yield from ("setoption name VerboseMoveStats value true", "setoption name MultiPV value 2")
        yield from (f"setoption name LogLiveStats value {str(live).lower()}", "go infinite")
        while "seldepth 5" not in out.getvalue():
            yield ""
        before.extend(out.getvalue().splitlines())
        yield "stop"

    Engine(lambda *_: network, Options(), out).run(commands())
    assert bool(stats_of(before)) == live
    lines = out.getvalue().splitlines()
    assert len(stats_of(lines[-22:])) == 21
    visited = [line for line in stats_of(lines[-22:]) if " N:       1 " in line]
    assert [line.split()[2] for line in visited] == ["d2d4", "e2e4"]  # evaluated, by the two lines
    assert "-.-----" not in "".join(visited)
