"""The board editor: setting up, analysing and playing a position."""

from __future__ import annotations

import chess
import pytest
from playwright.sync_api import Page, expect

from tests.page.test_match import begin
from tests.page.test_play import address
from tests.page.visits import Visit


def tool(page: Page, name: str) -> None:
    page.locator("#editor-tools").get_by_label(name).check(force=True)  # the piece lies over its button


def put(page: Page, piece: str, *squares: str) -> None:
    tool(page, piece)
    for square in squares:
        page.locator(f'#editor-board [data-square="{square}"]').click()


def drag(page: Page, source: str, target: tuple[float, float] | str) -> None:
    box = page.locator(f'#editor-board [data-square="{source}"]').bounding_box()
    assert box
    page.mouse.move(box["x"] + 9, box["y"] + 9)
    page.mouse.down()
    if isinstance(target, str):
        end = page.locator(f'#editor-board [data-square="{target}"]').bounding_box()
        assert end
        target = (end["x"] + 9, end["y"] + 9)
    page.mouse.move(target[0] - 3, target[1])
    page.mouse.move(*target)
    page.mouse.up()


def test_position_by_mouse_is_analysed_and_played(visit: Visit) -> None:
    visit.refusals = True
    page = visit.open()
    page.get_by_role("button", name="Set up a position").click()
    editor, fen = (
        page.get_by_role("dialog", name="Set up a position"),
        page.get_by_role("dialog").get_by_label("FEN", exact=True),
    )
    expect(fen).to_have_value(chess.STARTING_FEN)
    editor.get_by_role("button", name="Empty board").click()
    put(page, "white king", "e1")
    editor.get_by_role("button", name="Analyse").click()
    expect(editor.get_by_role("alert")).to_have_text("This position cannot be: Black has no king.")
    put(page, "black king", "e8")
    put(page, "white rook", "a1", "b3")
    put(page, "white rook", "b3")  # the same again takes it away
    put(page, "black pawn", "d5")
    put(page, "white pawn", "e5", "c7")
    put(page, "take pieces away", "c7")
    tool(page, "move pieces")
    drag(page, "a1", "h1")
    editor.get_by_label("White O-O", exact=True).check()
    expect(editor.get_by_label("O-O-O").first).to_be_disabled()
    page.get_by_label("En passant").select_option("d6")
    expect(fen).to_have_value("4k3/8/8/3pP3/8/8/8/4K2R w K d6 0 1")
    put(page, "black queen", "a8")
    tool(page, "move pieces")
    drag(page, "a8", (5, 5))  # off the board
    editor.get_by_role("button", name="Analyse").click()
    expect(editor).to_be_hidden()
    for san in ("O-O", "exd6"):
        expect(page.locator("#legal option").get_by_text(san, exact=True)).to_be_attached()
    begin(visit, "White", onto=True)
    visit.click("e1", "g1")
    expect(page.locator("#line button").first).to_have_text("O-O")


@pytest.mark.deep
def test_position_by_keyboard_or_fen(visit: Visit) -> None:
    page = visit.open("#play?moves=e2e4&flip=1")
    page.get_by_role("button", name="Set up a position").click()
    fen = page.get_by_role("dialog").get_by_label("FEN", exact=True)
    page.locator('#editor-board [data-square="e4"]').focus()
    page.locator('#editor-board [data-square="e2"]').focus()
    page.locator("#editor-board [tabindex='0']").focus()  # e2
    page.keyboard.press("ArrowUp")  # Black's side is below
    page.keyboard.press("Enter")  # e1: the king is picked up
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Delete")  # f2
    expect(fen).to_have_value("rnbqkbnr/pppppppp/8/8/4P3/8/PPPPK1PP/RNBQ1BNR b kq - 0 1")
    fen.fill("8/8/8/4k3/8/8/4P3/4K3 b")
    expect(page.locator('#editor-board [data-square="e5"]')).to_have_attribute("data-piece", "bk")
    page.get_by_role("dialog").get_by_role("button", name="Play from here").click()
    panel = page.get_by_role("form", name="Play from this position")
    expect(panel.get_by_label("Black", exact=True)).to_be_checked()  # whose turn it is
    panel.get_by_role("button", name="Start").click()
    visit.sees("Your turn.")
    visit.click("e5", "d4")
    expect(page.locator("#line button").first).to_have_text("Kd4")


@pytest.mark.deep
def test_chess960_by_castling_rights(visit: Visit) -> None:
    page = visit.open()
    visit.load("1k6/8/8/8/8/8/8/RK2R3 w KQ - 0 1")  # no rook of standard chess castles there
    expect(page.locator("#legal option").get_by_text("O-O", exact=True)).to_be_attached()
    page.get_by_role("button", name="Set up a position").click()
    expect(page.get_by_role("dialog").get_by_label("White O-O-O")).to_be_checked()  # and may stay


@pytest.mark.deep
def test_piece_is_dragged_from_box(visit: Visit) -> None:
    page = visit.open()
    page.get_by_role("button", name="Set up a position").click()
    start = page.locator("#editor-tools label").filter(has_text="black queen").bounding_box()
    end = page.locator('#editor-board [data-square="d5"]').bounding_box()
    assert start
    assert end
    page.mouse.move(start["x"] + 9, start["y"] + 9)
    page.mouse.down()
    page.mouse.move(end["x"] + 9, end["y"] + 9)
    page.mouse.up()
    fen = page.locator("#editor [name=fen]")
    expect(fen).to_have_value("rnbqkbnr/pppppppp/8/3q4/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1")


def test_editor_opens_fresh(visit: Visit) -> None:
    page = visit.open()
    editor, fen = (
        page.get_by_role("dialog", name="Set up a position"),
        page.get_by_role("dialog").get_by_label("FEN", exact=True),
    )
    page.get_by_role("button", name="Set up a position").click()
    page.locator('#editor-board [data-square="d1"]').click()  # picks the queen up
    editor.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Set up a position").click()
    page.locator('#editor-board [data-square="e2"]').click()
    page.locator('#editor-board [data-square="e4"]').click()
    expect(fen).to_have_value("rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 1")


def test_chess960_only_with_its_castling(visit: Visit) -> None:
    page = visit.open(address("1k6/8/8/8/8/8/8/RK2R3 w EA - 0 1", chess960="1"))
    editor, fen = (
        page.get_by_role("dialog", name="Set up a position"),
        page.get_by_role("dialog").get_by_label("FEN", exact=True),
    )

    def analysed() -> str:
        editor.get_by_role("button", name="Analyse").click()
        expect(editor).to_be_hidden()
        visit.settles()
        url = page.url
        page.get_by_role("button", name="Set up a position").click()
        return url

    page.get_by_role("button", name="Set up a position").click()
    assert "chess960=1" in analysed()  # as it came
    editor.get_by_role("button", name="Start position").click()
    assert "chess960" not in analysed()
    fen.fill("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKNR w KQkq - 0 1")  # on the way to the next
    fen.fill("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQK1NR w KQkq - 0 1")
    assert "chess960" not in analysed()


def test_finished_position_is_not_played(visit: Visit) -> None:
    page = visit.open("#position?moves=e2e4")
    page.get_by_role("button", name="Set up a position").click()
    editor = page.get_by_role("dialog", name="Set up a position")
    page.get_by_role("dialog").get_by_label("FEN", exact=True).fill("k6R/8/1K6/8/8/8/8/8 b - - 0 1")
    editor.get_by_role("button", name="Play from here").click()
    expect(editor.get_by_role("alert")).to_have_text("The game is over in this position.")
    assert page.url.endswith("#position?moves=e2e4")
