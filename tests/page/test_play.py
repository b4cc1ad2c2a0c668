"""Moves on the board by every input, links and texts, errors, API keys."""

from __future__ import annotations

import functools
import http.server
import io
import re
import threading
from pathlib import Path
from urllib.parse import quote

import chess
import chess.pgn
import pytest
from playwright.sync_api import Browser, Route, expect

from tests.conftest import ROOT
from tests.page.conftest import ORIGIN
from tests.page.visits import Visit
from tests.processes import call, free_port, served, stopped

PGN = (
    '[White "Anderssen"]\n[Black "Kieseritzky"]\n[WhiteElo "1900"]\n[BlackElo "1800"]\n\n'
    "1. e4 e5 2. f4 exf4 3. Bc4 Qh4+ 4. Kf1 b5 5. Bxb5 Nf6 6. Nf3 Qh6 7. d3 Nh5 *\n"
)


STUDY = (
    '[White "Ann"]\n[Black "Bob"]\n[Result "1-0"]\n\n{From a study.} 1. e4 {[%clk 0:05:00] best by test} e5 '
    "(1... d5?! 2. exd5 Nf6 (2... Qxd5)) 2. Nf3 Nc6 1-0\n"
)


def address(fen: str, view: str = "play", **more: str) -> str:
    return f"#{view}?fen={quote(fen)}" + "".join(f"&{name}={quote(value)}" for name, value in more.items())


def test_game_to_mate_by_mouse_text_and_keyboard(visit: Visit) -> None:
    page = visit.open("#position")
    visit.sees("White to move")
    visit.click("f2", "f3")
    visit.sees("Black to move")
    page.keyboard.press("ArrowLeft")  # the focus is on the board, but by the mouse
    visit.sees("White to move")
    page.keyboard.press("ArrowRight")
    visit.sees("Black to move")
    visit.drag("e7", "e5")
    visit.sees("White to move")
    visit.type_move("g4")
    visit.sees("Black to move")
    visit.square("d8").focus()
    page.keyboard.press("Enter")
    for key in ("ArrowRight",) * 4 + ("ArrowDown",) * 4:
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "h4, empty, move here: Qh4#"
    page.keyboard.press("Enter")
    visit.sees("Black won by checkmate, 0-1.")
    visit.line("f3", "e5", "g4", "Qh4#")
    assert visit.piece("h4") == "bq"
    assert not page.locator(".movable").count()
    visit.open(page.url.removeprefix(visit.url + "/"))  # the address holds the game
    visit.sees("Black won by checkmate, 0-1.")
    visit.line("f3", "e5", "g4", "Qh4#")


def test_board_offers_moves_of_the_answer_only(visit: Visit) -> None:
    page = visit.open("#position")
    visit.click("e2")
    assert sorted(page.locator(".target").evaluate_all("all => all.map(one => one.dataset.square)")) == ["e3", "e4"]
    visit.click("e5")
    visit.drag("e2", "e5")
    visit.drag("b1", "d2")
    visit.click("e7")
    assert not page.locator(".target").count()
    assert not page.locator("#line button").count()
    visit.type_move("e5")
    visit.is_told("Not a legal move here: e5")
    visit.type_move("e4")
    visit.line("e4")
    expect(page.get_by_role("alert")).to_be_hidden()


def test_move_typed_before_answer_is_not_refused(visit: Visit) -> None:
    page = visit.open("#position")
    pending: list[Route] = []
    page.route("**/v1/policy", lambda route: route.continue_() if pending else pending.append(route))
    visit.type_move("e4")
    expect(page.get_by_label("Move", exact=True)).to_have_value("")
    visit.type_move("e5")
    expect(page.get_by_label("Move", exact=True)).to_have_value("e5")
    expect(page.get_by_role("alert")).to_be_hidden()
    pending[0].continue_()
    visit.sees("Black to move")
    page.get_by_label("Move", exact=True).press("Enter")
    visit.line("e4", "e5")


@pytest.mark.deep
def test_dragged_piece_marks_its_target(visit: Visit) -> None:
    page = visit.open("#position")

    def over(name: str) -> list[str]:
        box = visit.square(name).bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
        squares: list[str] = page.locator(".over").evaluate_all("all => all.map(one => one.dataset.square)")
        return squares

    assert over("e2") == []
    page.mouse.down()
    assert [over(name) for name in ("e3", "e5", "e4")] == [["e3"], [], ["e4"]]
    page.mouse.up()
    visit.line("e4")
    expect(page.locator(".over")).to_have_count(0)


def test_promotion_to_picked_piece(visit: Visit) -> None:
    page = visit.open()
    for flip, name, piece in (("0", "white rook", "wr"), ("1", "white queen", "wq")):
        visit.turns_to(address("8/P6k/8/8/8/8/7K/8 w - - 0 1", flip=flip))
        visit.click("a7", "a8")
        picker = page.get_by_role("dialog")
        expect(picker.get_by_role("button")).to_have_count(4)
        queen, square = (one.bounding_box() for one in (picker.get_by_role("button", name="queen"), visit.square("a8")))
        assert queen == pytest.approx(square, abs=1)
        page.keyboard.press("Escape")  # and then nothing is played
        expect(picker).to_be_hidden()
        visit.drag("a7", "a8")
        picker.get_by_role("button", name=name).click()
        visit.sees("Black to move")
        assert visit.piece("a8") == piece


@pytest.mark.deep
def test_moves_of_two_pieces_are_shown_whole(visit: Visit) -> None:
    """Castling, also onto the rook, en passant, and castling in Chess960."""
    visit.open()
    for fen, squares, expected in (
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "e1 g1", "g1 wk f1 wr h1 -"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "e1 h1", "g1 wk f1 wr h1 -"),
        ("r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1", "e8 a8", "c8 bk d8 br a8 -"),
        ("4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 2", "e5 d6", "d6 wp d5 - e5 -"),
        ("1k6/8/8/8/8/8/8/RK2R3 w EA - 0 1", "b1 e1", "g1 wk f1 wr b1 - e1 -"),
    ):
        visit.turns_to(address(fen, **({"chess960": "1"} if " EA " in fen else {})))
        visit.click(*squares.split())
        visit.sees("Black to move" if " w " in fen else "White to move")
        visit.settles()
        assert " ".join(f"{name} {visit.piece(name) or '-'}" for name in expected.split()[::2]) == expected


#: A trackpad's flick: many small turns of the wheel, one after the other.
FLICK = """(board) => { for (let turn = 0; turn < 25; turn++) board.dispatchEvent(
    new WheelEvent("wheel", { deltaY: -3, bubbles: true, cancelable: true })); }"""


def test_right_button_draws_and_wheel_steps(visit: Visit) -> None:
    page = visit.open("#play?moves=e2e4.e7e5")
    page.get_by_label("Arrows on the board").uncheck()
    start, end = (visit.square(name).bounding_box() for name in ("g1", "f3"))
    assert start
    assert end
    page.mouse.move(start["x"] + 9, start["y"] + 9)
    page.mouse.down(button="right")
    page.mouse.move(end["x"] + 9, end["y"] + 9)
    page.mouse.up(button="right")
    expect(page.locator(".arrow.drawn.green")).to_have_count(1)
    visit.square("e5").click(button="right", modifiers=["Shift"])
    expect(page.locator(".circle.drawn.red")).to_have_count(1)
    visit.square("e5").click(button="right", modifiers=["Shift"])
    expect(page.locator(".circle")).to_have_count(0)
    visit.click("a5")
    expect(page.locator(".drawn")).to_have_count(0)
    page.mouse.wheel(0, -100)
    expect(page).to_have_url(re.compile("at=1"))
    page.mouse.wheel(0, 100)
    expect(page).not_to_have_url(re.compile("at="))


@pytest.mark.deep
def test_trackpad_flick_is_one_step(visit: Visit) -> None:
    page = visit.open("#play?moves=e2e4.e7e5")
    page.locator("#board").evaluate(FLICK)
    expect(page).to_have_url(re.compile("at=1"))  # not 0


@pytest.mark.deep
def test_move_slides_unless_reduced_motion(visit: Visit) -> None:
    page = visit.open("#position")
    page.evaluate("""() => { const slide = Element.prototype.animate;
        window.slides = 0;
        Element.prototype.animate = function (...given) { window.slides++; return slide.apply(this, given); }; }""")
    page.emulate_media(reduced_motion="reduce")
    visit.click("e2", "e4")
    visit.sees("Black to move")
    visit.settles()
    assert page.evaluate("window.slides") == 0
    page.emulate_media(reduced_motion="no-preference")
    visit.click("d7", "d5")
    visit.sees("White to move")
    visit.drag("e4", "d5")  # a piece that was dragged is there already
    visit.sees("Black to move")
    visit.settles()
    assert page.evaluate("window.slides") == 1


def test_forecast_sees_hanging_queen(visit: Visit) -> None:
    """The shipped network's own value, which does not look at the replies, is lower."""
    fen = "6k1/5ppp/8/3q4/8/8/5PPP/3R2K1 w - - 0 1"
    page = visit.open()
    visit.turns_to(address(fen, white="2200", black="2200", model="movemask-8"))
    expect(page.locator("#forecast")).to_contain_text(re.compile(r"White wins [7-9]\d"))


def test_bars_play_and_light_arrows(visit: Visit) -> None:
    page = visit.open("#position")
    assert page.locator(".arrow.legal").count() > 1
    first = page.locator(".move").first
    san = first.locator(".san").inner_text()
    first.hover()
    assert page.locator(".arrow.lit").count() == 1
    first.click()
    visit.line(san)
    page.keyboard.press("f")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    visit.settles()
    assert visit.square("h8").bounding_box()["y"] > visit.square("h1").bounding_box()["y"]  # type: ignore[index]
    page.get_by_label("Arrows on the board").uncheck()
    expect(page.locator(".arrow")).to_have_count(0)


@pytest.mark.deep
def test_invalid_texts_are_explained(visit: Visit) -> None:
    visit.refusals = True
    page = visit.open("#play?moves=e2e4")
    for text, words in (
        ("rubbish", "This is neither a FEN nor a PGN."),
        ("8/8/8/8/8/8/8/8 w - - 0 1", "This position cannot be: the board is empty."),
        ("4k3/4R3/8/8/8/8/8/4K3 w - - 0 1", "the side that is not to move is in check"),
        ("rnbqkbnr/pppppppp/8/8", "This FEN cannot be read: 'rnbqkbnr/pppppppp/8/8' is cut short"),
        ("1. e4 e5 2. Nf9 *", "This PGN cannot be read: line 1: 'Nf9' is neither a tag nor a move in SAN."),
        ("1. e4 e5 2. Sf3 *", "Pieces are written K, Q, R, B and N, as in English: Sf3 is Nf3."),
        ("https://lichess.org/abcdefgh", "This page cannot fetch a game from lichess.org."),
        ("<img src=x onerror=alert(1)>", "This is neither a FEN nor a PGN."),
        ("", "paste a FEN or a PGN first"),
    ):
        visit.load(text)
        visit.is_told(words)
        visit.line("e4")
        visit.sees("Black to move")
    for text, words in (
        ("1. e4 e5 2. Ke3 Nc6 *", "'Ke3' is not legal, at White's move 2: it is left out, and what follows it."),
        ("1. Nf3 a6 2. Nd4 a5 3. Nc3 a4 4. Nb5 a3 *", "'Nb5' is ambiguous, at White's move 4: it is left out"),
        ("1. e4 e7e2 2. d4 *", "'e7e2' is not legal, at Black's move 1: it is left out"),
    ):
        visit.load(text)
        expect(page.locator("#notes")).to_contain_text(words)
    visit.load("https://lichess.org/analysis/standard/4k3/8/8/8/8/8/8/R3K2R_b_KQ_-_0_1?color=white")
    visit.sees("Black to move")
    visit.load("4k3/8/8/8/8/8/8/R3K2R")  # a board alone: White to move, no castling
    visit.sees("White to move")
    assert "O-O" not in page.locator("#legal option").all_text_contents()
    for line, words in (
        ("moves=e2e5", "This line cannot be played: 1. e2e5 is not legal."),
        ("moves=e2e4.e4e5", "This line cannot be played: 1… e4e5 is not legal."),
        ("moves=e2e4.xx", "This line cannot be played: 1… xx is not a move in UCI or SAN."),
    ):
        visit.open(f"#play?{line}")
        visit.is_told(words)
    visit.open("#play?model=zz-broken")
    visit.is_told("Model unavailable")


def test_link_with_unknown_model_shows_position(visit: Visit) -> None:
    page = visit.open("#lens?moves=e2e4&model=elsewhere&beside=nowhere")
    visit.is_told("There is no model elsewhere here: the default model answers.")
    visit.line("e4")
    visit.sees("Black to move")
    assert "elsewhere" not in page.url


@pytest.mark.deep
def test_pgn_steps_by_keyboard(visit: Visit) -> None:
    page = visit.open()
    visit.load(PGN)
    expect(page.locator("#line button")).to_have_count(14)
    expect(page.locator("#white-shown")).to_have_text("1900")
    expect(page.locator("#review-moves li")).to_have_count(14)
    page.evaluate("window.jumped = 0")  # from here on all stays in its place
    page.get_by_role("button", name="Flip").click()
    page.locator("header").click(position={"x": 900, "y": 20})
    board = chess.Board()
    for uci in ("e2e4", "e7e5", "f2f4", "e5f4", "f1c4"):
        page.keyboard.press("ArrowRight")
        board.push_uci(uci)
        visit.sees("White to move" if board.turn else "Black to move")
        expect(visit.square(uci[2:])).to_have_attribute("data-piece", re.compile("."))
    visit.settles()
    board_shown = {name: visit.piece(name) or None for name in chess.SQUARE_NAMES}
    pieces = {name: board.piece_at(chess.parse_square(name)) for name in chess.SQUARE_NAMES}
    assert board_shown == {
        name: piece and ("w" if piece.color else "b") + piece.symbol().lower() for name, piece in pieces.items()
    }
    page.get_by_label("Move", exact=True).focus()  # empty, so the keys walk all the same
    page.keyboard.press("Home")
    visit.sees("White to move")
    page.keyboard.press("End")
    expect(page.locator("#line [aria-current]")).to_have_text("Nh5")
    expect(page.locator("#line [aria-current]")).to_be_in_viewport(ratio=0.99)
    assert page.evaluate("window.jumped") < 0.02


@pytest.mark.deep
def test_comments_and_variations_are_shown_and_kept(visit: Visit) -> None:
    page = visit.open()
    visit.load(STUDY)
    visit.line("e4", "e5", "d5", "exd5", "Nf6", "Qxd5", "Nf3", "Nc6")
    expect(page.locator("#line .comment")).to_have_text(["From a study.", "best by test"])
    page.get_by_role("button", name="Nf6").click()
    expect(page).to_have_url(re.compile(r"moves=e2e4\.d7d5\.e4d5\.g8f6&"))
    visit.settles()
    visit.type_move("c4")  # a variation of its own
    visit.sees("Black to move")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    expect(page).to_have_url(re.compile("d8d5"))
    page.reload()
    visit.settles()
    page.get_by_role("button", name="e5", exact=True).click()
    expect(page.locator("#graph .surprise")).to_have_count(4)
    expect(page.locator("#graph")).to_be_visible()
    visit.settles()
    page.locator("#graph svg").click(position={"x": 1, "y": 10})
    expect(page).to_have_url(re.compile("at=0"))
    visit.settles()
    page.get_by_text("Share and export").click()
    page.get_by_role("button", name="Copy FEN").click()
    assert page.evaluate("navigator.clipboard.readText()") == chess.STARTING_FEN
    for button, comments in (("Download PGN", "best by test"), ("Annotated PGN", " P ")):
        text = visit.saved(button)
        assert "Elo" not in text  # the sliders' ratings are not of the game
        assert "{ [%clk 0:05:00] best by test" in text  # whole, as a line's end would be part of it
        game = chess.pgn.read_game(io.StringIO(text))
        assert game
        assert not game.errors
        assert (game.headers["White"], game.headers["Result"], game.comment[:13]) == ("Ann", "1-0", "From a study.")
        assert [move.uci() for move in game.mainline_moves()] == ["e2e4", "e7e5", "g1f3", "b8c6"]
        assert comments in game.variations[0].comment
        other = game.variations[0].variations[1]
        assert (other.san(), other.nags) == ("d5", {chess.pgn.NAG_DUBIOUS_MOVE})
        assert [child.san() for child in other.variations[0].variations] == ["Nf6", "Qxd5"]
        assert other.variations[0].variations[0].variations[0].san() == "c4"


@pytest.mark.deep
def test_stopped_service_is_reported_and_retried(browser: Browser, shipped_alone: Path) -> None:
    port = free_port()
    with served(shipped_alone, "--runs", "1", port=port) as (process, _):
        visit = Visit(browser, f"http://127.0.0.1:{port}")
        visit.refusals = True
        visit.open("#position")
        assert stopped(process) == 0
        visit.click("e2", "e4")
        visit.is_told("The service does not answer. Trying again in 2 s.")
        for stale in ("#bars", "#value"):
            expect(visit.page.locator(stale)).to_be_empty()
        expect(visit.page.locator("#said")).to_have_text("1. e4: Black to move.")
        visit.line("e4")
        expect(visit.square("e4")).to_have_class(re.compile("moved"))
    with served(shipped_alone, "--runs", "1", port=port):
        visit.sees("Black to move. Likeliest: ")
        expect(visit.page.get_by_role("alert")).to_be_hidden()
        visit.line("e4")
        visit.leave()


@pytest.mark.deep
def test_missing_key_and_429_are_handled(browser: Browser, shipped_alone: Path) -> None:
    key = "a-visitor-s-key-0123456789"
    command = ("--runs", "1", "--api-keys", f"{key}:policy", "--client-rate", "2", "--client-burst", "12")
    with served(shipped_alone, *command) as (_, port):
        visit = Visit(browser, f"http://127.0.0.1:{port}")
        visit.refusals = True
        page = visit.open("#position")
        visit.is_told("This service is open to those who have a key.")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Use this key").click()
        visit.sees("White to move. Likeliest: ")
        expect(page.get_by_role("alert")).to_be_hidden()
        visit.click("e2", "e4")
        visit.sees("Black to move")
        again = page.get_by_role("alert").filter(has_text="Trying again in")
        for move in (("e7", "e5"), ("g1", "f3"), ("b8", "c6"), ("f1", "c4"), ("g8", "f6")):
            visit.click(*move)  # a position costs several, and some come back meanwhile
            if not again.is_visible():
                expect(page.locator("#said").filter(has_text="Likeliest").or_(again).first).to_be_visible()
            if again.is_visible():
                break
        expect(again).to_be_visible()
        expect(page.get_by_role("alert")).to_be_hidden(timeout=60_000)
        visit.sees("to move. Likeliest: ")
        page.get_by_text("More", exact=True).click()
        page.get_by_role("link", name="Leakage").click()
        expect(page.get_by_role("alert")).to_contain_text("needs the scope leakage", timeout=60_000)
        visit.leave()


@pytest.mark.deep
def test_key_without_scope_and_wrong_key(browser: Browser, shipped_alone: Path) -> None:
    key = "a-visitor-s-key-0123456789"
    with served(shipped_alone, "--runs", "1", "--api-keys", f"{key}:policy") as (_, port):
        visit = Visit(browser, f"http://127.0.0.1:{port}")
        visit.refusals = True
        page = visit.open()
        for entered in (f"{key}0", key):
            page.get_by_label("API key").fill(entered)
            page.get_by_role("button", name="Use this key").click()
            if entered != key:
                visit.is_told("This API key is not valid. Enter another.")
        visit.sees("White to move. Likeliest: ")
        page.get_by_text("More", exact=True).click()
        page.get_by_role("link", name="Leakage").click()
        expect(page.get_by_role("heading", name="Leakage so far")).to_be_visible()
        visit.settles()
        assert (
            "needs the scope leakage" in page.get_by_role("alert").inner_text()
        )  # not at the next look, in ten seconds
        expect(page.get_by_label("API key")).to_be_focused()  # another key may
        page.get_by_role("link", name="Play", exact=True).click()
        expect(page.get_by_role("alert")).to_be_hidden()
        visit.leave()


def test_cors_page_may_ask(browser: Browser, port: int) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=ROOT / "examples")
    with http.server.ThreadingHTTPServer(("127.0.0.1", int(ORIGIN.rpartition(":")[2])), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        page = browser.new_page()
        page.goto(f"{ORIGIN}/moves.html?service=http://127.0.0.1:{port}")
        expect(page.locator("#moves li")).to_have_count(5)
        best = call(port, "/v1/policy", {"fen": "startpos", "include": ["san"]})["moves"][0]["san"]
        expect(page.locator("#moves li").first).to_contain_text(best)
        page.get_by_label("Position").fill("rubbish")
        expect(page.locator("#status")).to_contain_text("is not a FEN")
        page.close()
        server.shutdown()


def test_shapes_of_a_study_are_drawn(visit: Visit) -> None:
    """Its arrows and circles were once read away."""
    page = visit.open()
    visit.load('[White "Study"]\n\n{ [%csl Rd4] } 1. e4 { [%cal Gd1h5,Yf1c4][%csl Bf7] look } e5 { [%cal x] } 2. Nf3 *')
    expect(page.locator(".circle.drawn.red")).to_have_count(1)
    page.keyboard.press("ArrowRight")
    expect(page.locator(".arrow.drawn.green[data-uci=d1h5]")).to_have_count(1)
    expect(page.locator(".arrow.drawn.yellow[data-uci=f1c4]")).to_have_count(1)
    expect(page.locator(".circle.drawn")).to_have_class("circle drawn blue")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".drawn")).to_have_count(0)
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".drawn")).to_have_count(3)
    visit.click("a5")  # takes them away, as the player's own
    expect(page.locator(".drawn")).to_have_count(0)
