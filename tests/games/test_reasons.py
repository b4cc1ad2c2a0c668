"""Why a move was a mistake, in words: mates, material on balance, and silence where the lines show neither."""

from __future__ import annotations

import chess
import chess.engine
import pytest

from movemask.board.pgn import Game, read_games
from movemask.games.costs import Costs
from movemask.games.engine import DEEP, QUICK, Evaluation
from movemask.games.reasons import reason_of

#: A position, or the moves that lead to it; the move that is judged; White's evaluation (centipawns, or a mate such as
#: "#-2") and best line after the move and before it; and the reason.
THEMES: dict[str, tuple[str, str, tuple[int | str, str], tuple[int | str, str], str | None]] = {
    "fool's mate": ("1. f3 e5 2.", "g4", ("#-1", "Qh4#"), (0, "d3"), "allows mate in one"),
    "scholar's mate": ("1. e4 e5 2. Bc4 Nc6 3. Qh5", "Nf6", ("#1", "Qxf7#"), (20, "g6 Qf3"), "allows mate in one"),
    "missed scholar's mate": (
        "1. e4 e5 2. Bc4 Nc6 3. Qh5 Nf6 4.",
        "Nf3",
        (-900, "Nxh5"),
        ("#1", "Qxf7#"),
        "misses Qxf7 mate",
    ),
    "Légal's mate": (
        "1. e4 e5 2. Nf3 d6 3. Bc4 Bg4 4. Nc3 g6 5. Nxe5",
        "Bxd1",
        ("#2", "Bxf7+ Ke7 Nd5#"),
        (80, "dxe5 Qxg4"),
        "allows mate in 2",
    ),
    "a mate whose line is cut off": (
        "1. e4 e5 2. Nf3 d6 3. Bc4 Bg4 4. Nc3 g6 5. Nxe5",
        "Bxd1",
        ("#2", "Bxf7+ Ke7"),
        (80, "dxe5 Qxg4"),
        None,
    ),
    "missed mate in 2": (
        "1. e4 e5 2. Nf3 d6 3. Bc4 Bg4 4. Nc3 g6 5. Nxe5 Bxd1 6.",
        "Nxd1",
        (-200, "dxe5 Ne3"),
        ("#2", "Bxf7+ Ke7 Nd5#"),
        "misses mate in 2 with Bxf7+",
    ),
    "back rank": ("3r2k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1", "Rb1", (0, "Ra8"), ("#1", "Rxd8#"), "misses Rxd8 mate"),
    "the queen taken by the king": (
        "1. e4 e5 2. Qh5 Nc6 3.",
        "Qxf7+",
        (-1000, "Kxf7 Bc4+ Ke8 d3 Nf6"),
        (0, "Nc3 Nf6"),
        "loses the queen for a pawn",
    ),
    "a knight for a pawn": (
        "1. e4 e5 2. Nf3 Nc6 3.",
        "Nxe5",
        (-250, "Nxe5 d4 Ng6"),
        (40, "Bb5 a6"),
        "loses a knight for a pawn",
    ),
    "Elephant trap": (
        "1. d4 d5 2. c4 e6 3. Nc3 Nf6 4. Bg5 Nbd7 5. cxd5 exd5 6.",
        "Nxd5",
        (-250, "Nxd5 Bxd8 Bb4+ Qd2 Bxd2+ Kxd2 Kxd8"),
        (40, "e3 Be7"),
        "loses a knight for a pawn",
    ),
    "a queen in the way of a queen": (
        "r4rk1/ppp2ppp/8/3q4/8/8/PPP2PPP/R2QR1K1 w - - 0 1",
        "Qd4",
        (-900, "Qxd4 Rab1 Rfd8"),
        (20, "Qxd5 Rad8"),
        "loses the queen on d4",
    ),
    "a rook left alone": (
        "r3k3/8/8/8/8/8/6PP/R3K2R b Qq - 0 1",
        "Ra2",
        (1000, "Rxa2 Kf7 Kf2"),
        (450, "Rxa1+ Ke2 Rxh1"),
        "loses the rook on a2",
    ),
    "the exchange by a fork": (
        "r3k2r/pp3ppp/8/1N6/8/8/PP3PPP/R3K2R b KQkq - 0 1",
        "h6",
        (200, "Nc7+ Kd7 Nxa8 Rxa8 O-O-O+ Kc6"),
        (0, "Kd7 O-O-O+ Kc6"),
        "loses the exchange",
    ),
    "a bishop put where a knight takes it": (
        "6k1/5ppp/5n2/8/8/3B4/5PPP/6K1 w - - 0 1",
        "Be4",
        (-300, "Nxe4 f3 Nf6"),
        (0, "f3 Kf8"),
        "loses the bishop on e4",
    ),
    "a pawn won by the best move": (
        "6k1/p4ppp/8/8/8/4B3/5PPP/6K1 w - - 0 1",
        "Kf1",
        (0, "a5"),
        (120, "Bxa7 Kf8"),
        "misses Bxa7 winning a pawn",
    ),
    "the queen for a bishop": (
        "1. e4 c5 2. Nf3 Nc6 3. d4 cxd4 4. Nxd4 e5 5. Nf5 d5 6. exd5 Bxf5 7. dxc6 bxc6 8. Qf3 Qd7 9.",
        "Qxf5",
        (-650, "Qxf5 Bd3 Qd7"),
        (20, "Bd3 e4"),
        "loses the queen for a bishop",
    ),
    "a line of one move": (
        "1. e4 e5 2. Nf3 Nc6 3.",
        "Nxe5",
        (-250, "Nxe5"),
        (40, "Bb5 a6"),
        "loses a knight for a pawn",
    ),
    "a loss that the evaluation does not see": (
        "1. e4 e5 2. Nf3 Nc6 3.",
        "Nxe5",
        (-40, "Nxe5 d4 Ng6"),
        (40, "Bb5 a6"),
        None,
    ),
    "a loss hardly greater than that of the best move": (
        "6k1/5ppp/5n2/8/8/3B4/5PPP/6K1 w - - 0 1",
        "Be4",
        (-300, "Nxe4 f3 Nf6"),
        (-200, "Bxh7+ Nxh7 f3 Kf8"),
        None,
    ),
    "a pawn that is won after ten plies": (
        "6k1/p4ppp/8/8/8/4B3/5PPP/6K1 w - - 0 1",
        "Kf1",
        (0, "a5"),
        (120, "g3 g6 Kg2 Kg7 f3 f6 h3 h6 Kf2 Kf7 Bxa7 Ke7"),
        None,
    ),
    "a queen left alone, and a rook lost": (
        "1r3rk1/Q1p2ppp/2p2n2/P3p3/8/7P/R1q2PP1/3R2K1 w - - 0 22",
        "Qxc7",
        (-760, "Qxd1+ Kh2 Rb1 Qxe5 h5"),
        (530, "Rxc2 Ra8 Qc5 Rfd8 Rdc1 Rf8 Qxc6 Rxa5 Qxc7 Raa8 Qc6 e4"),
        "misses Rxc2 winning the queen",
    ),
    "three pieces": (
        "6k1/6pp/8/8/4P2q/8/2N3PP/3R2K1 w - - 0 1",
        "Kf1",
        (-1000, "Qxe4 g3 Qxc2 h3 Qxd1+ Kg2 h6"),
        (0, "Rd4 h6"),
        "loses a rook, a knight and a pawn",
    ),
    "a bishop that is lost after ten plies": (
        "6k1/6pp/8/2n5/4B3/8/6PP/6K1 w - - 0 1",
        "Kf1",
        (-400, "g6 Ke1 Kg7 Kd1 Kf8 Kc1 Ke8 Kb1 Nxe4 Kc1"),
        (0, "Bd5 Kf8"),
        None,
    ),
    "a trade of bishop for knight": (
        "1. e4 e5 2. Nf3 Nc6 3.",
        "Bb5",
        (-60, "a6 Bxc6 dxc6 O-O Bd6"),
        (40, "d4 exd4 Nxd4"),
        None,
    ),
    "a positional mistake": ("1. e4 e5 2. Nf3 Nc6 3.", "h4", (-90, "Nf6 Nc3"), (40, "Bb5 a6"), None),
}


def evaluation(score: int | str, line: str, board: chess.Board, nodes: int) -> Evaluation:
    board = board.copy()
    moves = tuple(board.push_san(san) for san in line.split())
    white = chess.engine.Mate(int(score[1:])) if isinstance(score, str) else chess.engine.Cp(score)
    return Evaluation(chess.engine.PovScore(white, chess.WHITE), moves, nodes)


def said(
    where: str, played: str, after: tuple[int | str, str], before: tuple[int | str, str], nodes: int = DEEP
) -> str | None:
    """The reason of a move, by evaluations that are made up."""
    tags = f'[SetUp "1"]\n[FEN "{where}"]\n\n' if "/" in where else ""
    (game,) = read_games(f"{tags}{'' if tags else where} {played} *")
    assert isinstance(game, Game), game
    costs, place = Costs.of(game), len(game.plies) - 1
    for at, (score, line) in ((place, before), (place + 1, after)):
        board = game.played.board(at)
        if not board.is_game_over():
            costs = costs.evaluated(at, evaluation(score, line, board, nodes))
    return reason_of(costs, place)


@pytest.mark.parametrize(
    ("where", "played", "after", "before", "reason"), THEMES.values(), ids=[name.replace(" ", "-") for name in THEMES]
)
def test_reason_of_a_theme(
    where: str, played: str, after: tuple[int | str, str], before: tuple[int | str, str], reason: str | None
) -> None:
    assert said(where, played, after, before) == reason


def test_castling_in_chess960_takes_no_rook() -> None:
    """The move ends on the rook's square, and the line wins a queen after ten plies."""
    fen = "6k1/6pp/8/8/8/q7/2N3PP/4KR2 w F - 0 1"
    (game,) = read_games(f'[SetUp "1"]\n[Variant "Chess960"]\n[FEN "{fen}"]\n\n1. h3 *')
    assert isinstance(game, Game), game
    costs = Costs.of(game)
    best = "O-O h6 Kh1 Kh7 Kg1 Kg8 Kh1 Kh7 Kg1 Kg8 Nxa3 h5 Nb5"
    for place, (score, line) in enumerate([(900, best), (0, "Qe7+ Kd2")]):
        costs = costs.evaluated(place, evaluation(score, line, game.played.board(place), DEEP))
    assert reason_of(costs, 0) is None


def test_quick_search_gives_no_reason() -> None:
    """Lines of 5,000 nodes are not believed."""
    where, played, after, before, _ = THEMES["a rook left alone"]
    assert said(where, played, after, before, QUICK) is None


def test_missed_mate_is_named_where_it_costs_nothing() -> None:
    """A mate in one that was missed with a won position once raised an IndexError."""
    where = "6k1/5ppp/8/8/8/8/5PPP/3RR1K1 w - - 0 1"
    assert said(where, "h3", ("#2", "h6 Rd8+"), ("#1", "Rd8#")) == "misses Re8 mate"
