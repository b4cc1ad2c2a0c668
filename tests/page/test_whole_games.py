"""Whole games against the network by real clicks; minutes long."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from typing import Any

import chess
import chess.pgn
import pytest
from playwright.sync_api import expect

from tests.page.test_match import agree, opened, time_passes
from tests.page.visits import Visit
from tests.processes import call

pytestmark = pytest.mark.deep

TAKEN_BACK = (4, 9)  # moves of the third game
MOST = 60  # moves of the player; then the player resigns


def start(visit: Visit, side: str, clock: str, level: str, slider: str, rating: int) -> None:
    """Begins a game at the first screen's door."""
    door = opened(visit)
    door.get_by_label(side, exact=True).check()
    door.get_by_text("More:").click()
    door.get_by_label(clock, exact=True).check()
    door.get_by_label(level).check()
    door.get_by_role("slider", name=slider, exact=True).fill(str(rating))
    door.get_by_role("button", name="Start").click()
    expect(door).to_be_hidden()
    visit.settles()


def position(visit: Visit) -> chess.Board:
    """The position of the game, by the moves in the address."""
    board = chess.Board()
    for uci in re.findall(r"moves=([\w.]+)", visit.page.url)[:1]:
        for move in uci.split("."):
            board.push_uci(move)  # raises for a move that is not legal
    return board


def choice(port: int, board: chess.Board) -> chess.Move:
    """A strong player's move: mate if there is one, and else what a player of 2500 is likeliest to play."""
    for move in board.legal_moves:
        board.push(move)
        mates = board.is_checkmate()
        board.pop()
        if mates:
            return move
    query: dict[str, Any] = {"moves": [move.uci() for move in board.move_stack], "elo": 2500}
    return chess.Move.from_uci(call(port, "/v1/policy", query)["moves"][0]["uci"])


def click(visit: Visit, board: chess.Board, move: chess.Move) -> None:
    """Makes a move by the mouse: castling by a click on the rook, every other move alternately by clicks and a drag."""
    source, target = chess.square_name(move.from_square), chess.square_name(move.to_square)
    if board.is_castling(move):
        rook = ("h" if board.is_kingside_castling(move) else "a") + source[1]
        return visit.click(source, rook)
    if len(board.move_stack) % 4 < 2:
        visit.click(source, target)
    else:
        visit.drag(source, target)
    if move.promotion:
        name = chess.piece_name(move.promotion)
        visit.page.get_by_role("dialog").get_by_role("button", name=name).click()
    return None


def over(visit: Visit) -> bool:
    return visit.page.locator("#result").is_visible()


def plays(visit: Visit, port: int, waits: Callable[[Callable[[], bool]], None], beside: Callable[[int], None]) -> None:
    """Plays to the end: `waits` for the network, `beside` is what the player does between two moves of their own."""
    message = visit.page.locator("#said")
    for number in range(MOST):
        waits(lambda: over(visit) or "Your turn." in message.inner_text())
        visit.settles()
        if over(visit):
            return
        board = position(visit)
        click(visit, board, choice(port, board))
        beside(number)
    if not over(visit):
        agree(visit, "Resign", "Resign")


def finished(visit: Visit, side: str) -> chess.pgn.Game:
    """The finished game as it is kept under Games: its result is that of its last position, or a resignation's."""
    page = visit.page
    expect(page.locator("#result")).to_contain_text("In Games")
    judged = re.compile(r"You.*blunders?$", re.DOTALL)
    expect(page.locator("#review-sides .chosen")).to_contain_text(judged, timeout=60_000)
    page.get_by_role("link", name="Games", exact=True).click()
    expect(page.locator("#library-list tbody tr")).to_have_count(1)
    game = chess.pgn.read_game(io.StringIO(visit.saved("Download PGN")))
    assert game
    assert not game.errors
    assert game.headers[side] == "Player"
    outcome = game.end().board().outcome(claim_draw=True)
    assert game.headers["Result"] == (outcome.result() if outcome else {"White": "0-1", "Black": "1-0"}[side])
    return game


def test_game_3_2_as_white(own_visit: Visit, port: int) -> None:
    page = own_visit.open()
    page.clock.install()
    start(own_visit, "White", "3+2", "plays like", "Rating", 1000)
    chance = random.Random(1)

    def beside(number: int) -> None:
        if over(own_visit) or chance.random() < 0.5:
            return
        if number % 3 == 0:
            page.keyboard.press("ArrowLeft")
        elif number % 3 == 1:
            page.get_by_role("link", name="Games", exact=True).click()
            page.clock.run_for(1000)
            page.get_by_role("link", name="Play", exact=True).click()
        else:
            page.locator("#board").hover()
            page.mouse.wheel(0, -100)

    plays(own_visit, port, lambda until: time_passes(own_visit, until), beside)
    game = finished(own_visit, "White")
    clocks = [node.clock() for node in game.mainline()]
    assert all(left is not None and 0 < left <= 180 + 2 * len(clocks) for left in clocks)


def test_game_as_black_by_strength(visit: Visit, port: int) -> None:
    page = visit.open()
    start(visit, "Black", "None", "as strong as", "Strength", 1600)
    expect(page.locator("#above .player")).to_contain_text("1600")
    plays(visit, port, lambda until: wait(visit, until), lambda number: None)
    assert finished(visit, "Black").headers["WhiteElo"] == "1600"


def wait(visit: Visit, until: Callable[[], bool]) -> None:
    while not until():
        visit.page.wait_for_timeout(50)


def test_game_5_3_as_black_with_premoves_and_takebacks(visit: Visit, port: int) -> None:
    page = visit.open()
    start(visit, "Black", "5+3", "plays like", "Rating", 1500)
    message, moves = page.locator("#said"), page.locator("#line button")
    premoves = 0
    for number in range(20):
        wait(visit, lambda: over(visit) or "Your turn." in message.inner_text())
        visit.settles()
        if over(visit):
            break
        board = position(visit)
        if number in TAKEN_BACK:
            before = moves.count()
            page.keyboard.press("u")
            expect(moves).to_have_count(before - 2)
            visit.sees("Your turn.")
            visit.settles()
            board = position(visit)
        click(visit, board, choice(port, board))
        visit.settles()
        if over(visit) or number + 1 in TAKEN_BACK or "is thinking" not in message.inner_text():
            continue
        pawns = (move for move in board.legal_moves if board.piece_type_at(move.from_square) == chess.PAWN)
        free = next(pawns, None)
        if free is None:
            continue
        visit.click(chess.square_name(free.from_square), chess.square_name(free.to_square))
        if page.locator(".premove").count():
            premoves += 1
        page.keyboard.press("ArrowRight")
    assert premoves > 3
    if not over(visit):
        agree(visit, "Resign", "Resign")
    finished(visit, "Black")
