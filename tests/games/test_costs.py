"""Costs of moves by the rules, the PGN's evaluations and an engine."""

from __future__ import annotations

import asyncio

import chess
import chess.engine
import pytest

from movemask.board.pgn import Game, read_games
from movemask.errors import RateLimited
from movemask.evaluate import Direct
from movemask.games.costs import MOST_TRIED, Cost, Costs, Fact, MateSearch, Stopped
from movemask.games.engine import Evaluation
from movemask.games.reports import costs_of, reports_of
from tests.networks import fake_model


def costs(moves: str, fen: str = "") -> Costs:
    tags = f'[SetUp "1"]\n[FEN "{fen}"]\n\n' if fen else ""
    (game,) = read_games(f"{tags}{moves} *")
    assert isinstance(game, Game)
    return Costs.of(game)


def last(moves: str, fen: str = "") -> Cost:
    return list(costs(moves, fen))[-1]


def evaluation(centipawns: int, *line: str) -> Evaluation:
    """By its centipawns for White."""
    score = chess.engine.PovScore(chess.engine.Cp(centipawns), chess.WHITE)
    return Evaluation(score, tuple(chess.Move.from_uci(move) for move in line))


@pytest.mark.parametrize(
    ("moves", "fen", "fact"),
    [
        ("1. f3 e5 2. g4", "", Fact.ALLOWS_MATE),
        ("1. e4 e5 2. Bc4 Nc6 3. Qh5 Nf6", "", Fact.ALLOWS_MATE),
        ("1. Qg6", "7k/8/5K2/8/8/8/8/6Q1 w - - 0 1", Fact.STALEMATES),
        ("1. Kxe2", "8/8/8/8/8/8/4r3/2k1K3 w - - 0 1", Fact.DRAWS),
        ("1. Kg1", "8/8/8/8/8/6k1/1r6/7K w - - 0 1", None),  # Black mates, and there is no other move
        ("1. Ra2", "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", Fact.MISSES_MATE),
    ],
)
def test_facts_by_the_rules(moves: str, fen: str, fact: Fact | None) -> None:
    cost = last(moves, fen)
    assert cost.fact is fact
    assert cost.is_key == (fact not in (None, Fact.DRAWS))


def test_stalemate_instead_of_mate_is_a_blunder() -> None:
    cost = last("1. Qg6", "7k/8/5K2/8/8/8/8/6Q1 w - - 0 1")
    assert (cost.mark, cost.source, cost.lost) == ("blunder", "rules", 0.5)
    assert [move.uci() for move in cost.line] in (["g1g7"], ["g1h2"], ["g1h1"])


def test_checkmate_and_only_move_cost_nothing() -> None:
    assert last("1. e4 e5 2. Qh5 Nc6 3. Bc4 Nf6 4. Qxf7#").lost == 0
    assert last("1. Kg1", "8/8/8/8/8/6k1/1r6/7K w - - 0 1").lost == 0


def test_no_cost_without_evaluations() -> None:
    result = costs("1. e4 e5 2. Qh5 Ke7 3. a3 a6")
    assert [cost.lost for cost in result] == [None] * 6
    assert {cost.mark for cost in result} == {None}
    allowed = last("1. f3 e5 2. g4")  # the game might have been lost before
    assert (allowed.mark, allowed.lost, allowed.is_key) == (None, None, True)


def test_pgn_evaluations_take_precedence_over_engine() -> None:
    known = costs("1. e4 {[%eval 0.3]} e5 2. Ke2 {[%eval -3.0]}")
    assert known.missing == [0, 2]
    known = known.evaluated(0, evaluation(30, "e2e4")).evaluated(2, evaluation(40, "g1f3", "b8c6"))
    first, reply, king = known
    assert (first.lost, first.source) == (0.0, "evaluations")
    assert reply.source == "evaluations"
    # https://lichess.org/page/accuracy: win % = 50 + 50 * (2 / (1 + exp(-0.00368208 * centipawns)) - 1)
    assert king.lost == pytest.approx(0.537 - 0.249, abs=0.002)
    assert king.mark == "blunder"
    assert [move.uci() for move in king.line] == ["g1f3", "b8c6"]
    assert known.missing == []
    assert known.scores == pytest.approx([0.528, 0.528, 0.537, 0.249], abs=0.001)


def test_source_of_an_allowed_mate_is_what_told_the_score_before() -> None:
    """The page once said that such a move cost 12 points by the rules, which know the mate alone."""
    moves = "1. f3 e5 {%s} 2. g4 *"
    judged = costs(moves % "").evaluated(2, evaluation(-20, "g2g3"))[2]
    assert (judged.source, judged.mark) == ("engine", "blunder")
    told = costs(moves % "[%eval -0.2]")[2]
    assert (told.source, told.lost) == ("evaluations", judged.lost)


def test_engine_adds_better_line_to_marked_move() -> None:
    known = costs("1. e4 {[%eval 0.3]} e5 {[%eval 0.3]} 2. Ke2 {[%eval -3.0]} d5 {[%eval -3.0]}")
    assert known.missing == [0, 2]
    king = known.evaluated(2, evaluation(-900, "g1f3"))[2]
    assert king.lost == pytest.approx(0.528 - 0.249, abs=0.002)  # its own opinion does not count
    assert [move.uci() for move in king.line] == ["g1f3"]
    assert (known.unsure(reasons=False), known.unsure(reasons=True)) == (set(), {2, 3})


@pytest.mark.parametrize(("after", "mark"), [(30, None), (-40, "inaccuracy"), (-90, "mistake"), (-160, "blunder")])
def test_marks_at_lichess_thresholds(after: int, mark: str | None) -> None:
    known = costs("1. e4 e5").evaluated(0, evaluation(30, "d2d4")).evaluated(1, evaluation(after, "e7e5"))
    assert known[0].mark == mark
    assert known[0].is_key == (mark in ("mistake", "blunder"))
    assert bool(known[0].line) == (mark is not None)


def test_engines_first_choice_costs_nothing() -> None:
    known = costs("1. e4 e5").evaluated(0, evaluation(30, "e2e4")).evaluated(1, evaluation(-160, "e7e5"))
    assert (known[0].lost, known[0].mark) == (0.0, None)


@pytest.mark.parametrize(("lost", "points"), [(None, 0), (0.009, 0), (0.0996, 9), (0.1, 10), (0.29, 29), (1.0, 100)])
def test_points_are_rounded_down(lost: float | None, points: int) -> None:
    assert Cost(lost).points == points


def test_allowing_mate_in_lost_game_is_no_mistake() -> None:
    lost = "4r1k1/5ppp/8/8/8/8/q5PP/7K w - - 0 1"
    known = costs("1. Kg1", lost).evaluated(0, evaluation(-1000, "h2h3"))
    assert (known[0].fact, known[0].mark, known[0].is_key) == (Fact.ALLOWS_MATE, None, False)


#: Every move of White allows mate in one, and there are many to try.
CONTRIVED = "B2Rq3/q1N2N1k/2q2B1q/Rq1R4/2Nq2qn/5r1R/B1K5/q1QRN1n1 w - - 0 1"


def test_mate_search_is_bounded() -> None:
    """One such position took 21 ms, and 1,000 of them fit into a request of 83 kB."""
    search = MateSearch()
    (game,) = read_games(f'[FEN "{CONTRIVED}"]\n\n1. d8e8 *')
    assert isinstance(game, Game)
    (cost,) = Costs.of(game, search)
    scans = sum(board.legal_moves.count() for board in (game.played.board(0), game.played.board(1)))
    assert search.tried < 2 * scans + MOST_TRIED
    assert (cost.fact, cost.lost) == (None, None), "nobody knows whether the mate could be avoided"


def test_mate_search_can_be_stopped() -> None:
    search = MateSearch()
    search.stopped = True
    with pytest.raises(Stopped):
        search.mate_in_one(chess.Board())


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[MateSearch]:
    """The searches for mates of a test, as they begin."""
    recorded: list[MateSearch] = []

    class Recorded(MateSearch):
        def __init__(self) -> None:
            super().__init__()
            recorded.append(self)

    for module in ("costs", "reports"):
        monkeypatch.setattr(f"movemask.games.{module}.MateSearch", Recorded)
    return recorded


@pytest.mark.anyio
async def test_mate_search_ends_with_the_request_and_is_charged(searches: list[MateSearch]) -> None:
    games = [game for game in read_games(f'[FEN "{CONTRIVED}"]\n\n1. d8e8 *\n\n' * 40) if isinstance(game, Game)]
    charged: list[int] = []
    await costs_of(games, charged.append)
    assert sum(charged) >= 5 * len(games), "as much as the network's positions that take as long"
    assert len(charged) == 3, "while it goes on"

    def leave(positions: int) -> None:
        raise RateLimited("no positions left", retry_after=1, positions=positions)

    with pytest.raises(RateLimited):
        await costs_of(games, leave)
    usual = [game for game in read_games("1. e4 e5 2. Qh5 Nc6 3. Bc4 Nf6 4. Qxf7# *") if isinstance(game, Game)]
    await costs_of(usual, leave)
    client = asyncio.create_task(costs_of(games * 100))
    while len(searches) < 4:
        await asyncio.sleep(0)
    client.cancel()
    with pytest.raises(asyncio.CancelledError):
        await client


@pytest.mark.anyio
async def test_report_searches_mates_once(searches: list[MateSearch]) -> None:
    """The search once ran twice, and only the first was charged."""
    await reports_of(Direct(fake_model()), list(read_games("1. e4 e5 2. Qh5 Nc6 3. Bc4 Nf6 4. Qxf7# *")), 1.0)
    assert len(searches) == 1
    assert all(search.stopped for search in searches)
