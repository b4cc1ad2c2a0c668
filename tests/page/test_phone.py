"""The page on a phone: the steps under the board, swipes, scrolling over the board, promotion by tapping."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.page.visits import Visit

GAME = """[White "Ann"]
[Black "Bob"]

1. e4 e5 2. Nf3 Nc6 3. Bc4 Nf6 4. Ng5 d5 5. exd5 Nxd5 6. Nxf7 Kxf7 7. Qf3+ Ke6 8. Nc3 Nb4 9. a3 Nxc2+ 10. Kd1 Nxa1 *
"""


@pytest.fixture(scope="module")
def phone(browser: Browser, port: int) -> Iterator[Visit]:
    """A phone held upright."""
    visit = Visit(
        browser, f"http://127.0.0.1:{port}", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    yield visit
    visit.leave()


def swipe(visit: Visit, square: str, x: int, y: int) -> None:
    """Moves a finger from a square by so many pixels."""
    box = visit.square(square).bounding_box()
    assert box
    start = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    session = visit.page.context.new_cdp_session(visit.page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        at = [{"x": left, "y": top} for left, top in points]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})

    touch("touchStart", start)
    for part in range(1, 11):
        touch("touchMove", (start[0] + x * part / 10, start[1] + y * part / 10))
    touch("touchEnd")
    session.detach()


def test_swipe_steps_and_scroll_does_not(phone: Visit) -> None:
    page = phone.open("#position?moves=e2e4.e7e5.g1f3")
    swipe(phone, "d5", 120, 10)
    expect(page).to_have_url(re.compile("at=2"))
    swipe(phone, "d4", -120, 10)
    expect(page).not_to_have_url(re.compile("at="))
    swipe(phone, "d5", 5, -200)  # scrolls the page
    page.wait_for_function("() => scrollY > 100")
    expect(page).not_to_have_url(re.compile("at="))
    expect(page.locator("#board")).to_be_in_viewport(ratio=1)


def test_swipe_of_a_piece_moves_it(phone: Visit) -> None:
    phone.open("#position?moves=e2e4.e7e5")
    phone.page.evaluate("scrollTo(0, 0)")
    box = phone.square("d1").bounding_box()
    assert box
    swipe(phone, "d1", round(4 * box["width"]), round(-4 * box["height"]))
    phone.sees("2. Qh5")


@pytest.mark.parametrize(("width", "height"), [(390, 844), (360, 640), (844, 390)])
def test_steps_stay_in_sight_while_reading(phone: Visit, width: int, height: int) -> None:
    page = phone.page
    page.set_viewport_size({"width": width, "height": height})
    phone.open()
    phone.load(GAME)
    expect(page.locator("#review-moves li")).to_have_count(20)
    page.locator("#panel-review").evaluate("panel => panel.scrollIntoView(false)")
    for name in ("First position", "Next position", "Last position"):
        expect(page.get_by_role("button", name=name)).to_be_in_viewport(ratio=1)
    expect(page.locator("#board")).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="Next position").tap()
    expect(page).to_have_url(re.compile("at=1"))
    page.set_viewport_size({"width": 390, "height": 844})


def test_steps_cover_clock_and_tabs_wholly_or_not(phone: Visit) -> None:
    """The bar of steps once lay over a part of the lower player's clock, and let a strip of the tabs look out."""
    page = phone.open()
    phone.load("1. f3 {[%clk 0:03:00] [%eval 0.3]} e5 {[%clk 0:03:00]} 2. g4 {[%clk 0:03:00]} a6 *")  # no mate
    page.locator("#moments button").last.tap()
    expect(page.get_by_role("button", name="Next position")).to_be_in_viewport(ratio=1)
    clock, steps, tabs = (page.locator(place).bounding_box() for place in ("#below .clock", ".steps", ".tabs"))
    assert clock
    assert steps
    assert tabs
    assert clock["y"] + clock["height"] <= steps["y"] + 0.1
    bottom = steps["y"] + steps["height"]
    assert tabs["y"] >= bottom or tabs["y"] + tabs["height"] <= bottom


def test_pawn_is_promoted_by_tapping(phone: Visit) -> None:
    phone.open("#position?fen=7k/P7/8/8/8/8/8/4K3+w+-+-+0+1")
    phone.page.evaluate("scrollTo(0, 0)")
    for square in ("a7", "a8"):
        phone.square(square).tap()
    phone.page.get_by_role("dialog", name="Promote to").get_by_role("button", name="knight").tap()
    phone.sees("1. a8=N")


def test_start_shows_choices_first(phone: Visit) -> None:
    page = phone.open()
    expect(page.locator(".tagline")).to_be_in_viewport(ratio=1)
    expect(page.locator("#board")).not_to_be_in_viewport()  # it comes below them
    page.locator("#example").scroll_into_view_if_needed()
    expect(page.locator("#board")).to_be_in_viewport()
    page.evaluate("scrollTo(0, 0)")
    for name in ("Look", "Start", "Load"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_in_viewport(ratio=1)
    for name in ("Position", "Play", "Games", "Leakage", "API"):
        expect(page.get_by_role("link", name=name, exact=True)).to_be_in_viewport(ratio=1)
