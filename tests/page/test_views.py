"""The views: chart by rating, mask, dashboard; windows of all sizes; accessibility."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Route, expect

from tests.page.test_library import GAMES
from tests.page.test_match import agree, begin
from tests.page.visits import Visit
from tests.parts import part_of
from tests.processes import call, until

RUY = "moves=e2e4.e7e5.g1f3.b8c6.f1b5.a7a6&at=4"
CUT = """all => all.filter(one => { const box = one.getBBox();
    return box.x < 0 || box.x + box.width > one.ownerSVGElement.viewBox.baseVal.width; }).map(one => one.textContent)"""
PAINTED = "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(true))))"
VIEWS = [
    "#start",
    "#new",
    f"#position?{RUY}",
    f"#review?{RUY}&White=Ann",
    f"#ratings?{RUY}",
    f"#lens?{RUY}",
    f"#lens?{RUY}&beside=zz-1900",
]
VIEWS += ["#leakage", "#games"]


def test_chart_shows_likeliest_moves_by_rating(visit: Visit, port: int) -> None:
    page = visit.open(f"#ratings?{RUY}")
    expect(page.locator("#chart text.end").first).to_be_visible()
    query = {"moves": ["e2e4", "e7e5", "g1f3", "b8c6"], "include": ["san"]}
    sweep = call(port, "/v1/policy/sweep", query)
    sans = [move["san"] for move in sweep["moves"][:6]]
    names = page.locator("#chart text.end").all_text_contents()
    assert set(sans) <= set(names)
    assert "Bb5" in names  # was played
    page.get_by_text("As a table").click()
    rows = page.locator("#chart-table tbody tr")
    assert rows.first.locator("td").count() == len(sweep["points"]) == 18
    for index, move in enumerate(sweep["moves"][:3]):
        expect(rows.nth(index).locator("th")).to_have_text(move["san"])
        percent = float(rows.nth(index).locator("td").first.inner_text().removesuffix("%").strip())
        assert percent == pytest.approx(100 * move["probabilities"][0], abs=0.06)
    expect(page.locator("#surprise")).to_contain_text("Bb5 was played: choice")
    page.locator("#chart svg").scroll_into_view_if_needed()
    box = page.locator("#chart svg").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
    expect(page.locator("#chart .told")).to_contain_text(re.compile(r"1[56]00: "))


@pytest.mark.parametrize("line", ["moves=&at=0", RUY])
def test_chart_and_sentence_agree(visit: Visit, line: str) -> None:
    """The chart once asked for two players of one rating, whatever the sliders said."""
    page = visit.open(f"#ratings?{line}&white=800&black=2500")
    expect(page.locator("#chart .axis")).to_have_text("rating of White, against Black rated 2500")
    said = re.search(r"(\w+)(, with| was played:.*, with) ([\d.]+)\s%", page.locator("#surprise").inner_text())
    assert said
    page.get_by_text("As a table").click()
    row = page.locator("#chart-table tbody tr").filter(has=page.locator("th", has_text=said[1]))
    assert row.locator("td").first.inner_text().removesuffix("%").strip() == said[3]


def test_sliders_change_answer_and_address(visit: Visit) -> None:
    page = visit.open("#play?moves=e2e4")
    before = page.locator("#bars").inner_text()
    page.get_by_role("slider", name="Black").focus()
    for _ in range(14):
        page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(re.compile("black=800"))
    expect(page.locator("#bars")).not_to_have_text(before)
    page.get_by_role("link", name="Ratings").click()
    expect(page.locator("#chart .axis")).to_have_text("rating of Black, against White rated 1500")
    page.get_by_role("slider", name="White").click()
    page.keyboard.press("ArrowLeft")  # walks, as the slider was set by the mouse
    expect(page).to_have_url(re.compile("at=0"))
    page.go_back()
    expect(page.get_by_role("heading", name="Likely moves")).to_be_visible()


@pytest.mark.deep
def test_chart_compares_networks_of_one_rating(visit: Visit) -> None:
    page = visit.open("#ratings?moves=e2e4&model=zz-1100")
    expect(page.locator("#chart .axis")).to_have_text("network")
    expect(page.locator("#chart-table thead th")).to_have_text(["Move", "zz-1100", "zz-1900"])
    expect(page.get_by_role("slider", name="White")).to_be_disabled()
    expect(page.locator("#no-ratings")).to_have_text("zz-1100 plays at one rating only.")


def test_mask_shows_illegal_moves_with_probability_and_cause(visit: Visit, port: int) -> None:
    page = visit.open("#lens?model=zz-1900&beside=zz-1100")
    answers = [
        call(port, "/v1/policy", {"fen": "startpos", "model": name, "include": ["illegal", "san"]})
        for name in ("zz-1900", "zz-1100")
    ]
    assert page.locator("#board .arrow.illegal").count() > 0
    kinds = page.locator("#board .arrows .arrow").evaluate_all("all => all.map(one => one.classList[1])")
    assert kinds == sorted(kinds)  # the illegal ones below the legal ones
    assert page.locator("#board .arrows text").count() > 0
    assert page.locator("#board .arrows text").evaluate_all(CUT) == []
    for card, answer in zip(page.locator("#lenses article").all(), answers, strict=True):
        expect(card.get_by_role("heading").first).to_have_text(answer["model"]["name"])
        assert card.locator(".sentence").count() == 2
        worst = answer["illegal"]["moves"][0]["uci"]
        expect(card.locator(".illegal-moves li").first).to_contain_text(f"{worst[:2]}\N{EN DASH}{worst[2:]}")
        last = card.locator(".comparison tr:last-child td").all_inner_texts()
        percents = [float(text.replace("%", "").strip()) for text in last]
        leakage = answer["leakage"]
        assert percents == pytest.approx([0, 100 * leakage["raw"], 100 * leakage["multiplied"]], rel=0.06)
        assert card.locator(".miniature .arrow.illegal").count() > 0


@pytest.mark.deep
def test_dashboard_follows_live_and_leads_to_mask(visit: Visit, port: int) -> None:
    name = call(port, "/v1/policy", {"fen": "startpos"})["model"]["name"]
    call(port, "/v1/policy", {"fen": "startpos", "model": "zz-1900"})
    page = visit.open("#leakage")
    heads = page.locator("#figures thead th")
    for recorded_name in (name, "zz-1900"):
        expect(heads.get_by_text(recorded_name, exact=True)).to_be_visible()
    column = heads.all_text_contents().index(name)

    def figure(row: str) -> str:
        visit.page.wait_for_timeout(100)  # lets the browser's events in
        return page.locator("#figures").get_by_role("row", name=row).locator("th, td").nth(column).inner_text()

    expect(page.get_by_role("article", name=name, exact=True).locator(".normal")).to_have_text("normal")
    before = int(figure("positions").replace(",", ""))
    for move in ("a2a3", "b2b3", "c2c3"):
        call(port, "/v1/policy", {"moves": [move]})
    until(lambda: int(figure("positions").replace(",", "")) >= before + 3, "the dashboard has the new positions")
    expect(page.locator("#fresh")).to_have_text(
        re.compile(r"queue: \d+ positions? · \d+ records? waiting · refreshed every 5 s\.")
    )
    page.get_by_label("Buckets").select_option("days")
    expect(page.locator("#history circle").first).to_be_visible()  # one value is a point
    by_phase = page.get_by_role("region", name="Phase", exact=True)
    expect(by_phase.get_by_role("columnheader", name=name, exact=True)).to_have_attribute("colspan", "2")
    expect(by_phase.locator("tbody tr").first).to_contain_text("opening")
    expect(page.locator("#models")).to_contain_text("not served")
    board = page.locator("#worst a").first
    expect(board.get_by_role("img")).to_have_attribute("aria-label", re.compile("to illegal moves"))
    board.hover()
    board_says = board.inner_text()
    page.mouse.down()
    before = int(figure("positions").replace(",", ""))
    call(port, "/v1/policy", {"fen": "startpos"})  # and the figures are drawn again under the finger
    until(lambda: int(figure("positions").replace(",", "")) > before, "the dashboard has the new position")
    page.mouse.up()
    expect(page.get_by_role("heading", name="Without the mask", exact=True)).to_be_visible()
    expect(page.locator("#lenses article").first).to_be_visible()
    recorded = re.search(r"[\d.]+\s%", board_says)
    assert recorded
    expect(page.locator("#recorded")).to_contain_text(f"The ledger recorded {recorded[0]} here.")


def test_dashboard_ranks_multiplied_within_a_network(visit: Visit, port: int) -> None:
    """A constant added to all logits changes it, so that a rank of two networks together means nothing."""
    name = call(port, "/v1/policy", {"fen": "startpos"})["model"]["name"]
    call(port, "/v1/policy", {"fen": "startpos", "model": "zz-1900"})
    page = visit.open("#leakage")
    kinds, worst = page.locator("#worst-kind"), page.locator("#worst a > span:last-child")
    expect(kinds.locator("option").first).to_have_text("no mask (raw)")
    for network in (name, "zz-1900"):
        expect(kinds.locator("option").get_by_text(f"multiplied mask, {network}", exact=True)).to_have_count(1)
    kinds.select_option("multiplied mask, zz-1900")
    expect(worst.filter(has_not_text=re.compile(r"^zz-1900 "))).to_have_count(0)
    expect(worst).not_to_have_count(0)


@pytest.mark.deep
def test_dashboard_days_are_utc_west_of_greenwich(browser: Browser, port: int) -> None:
    name = call(port, "/v1/policy", {"fen": "startpos"})["model"]["name"]
    visit = Visit(browser, f"http://127.0.0.1:{port}", timezone_id="America/Los_Angeles")
    page = visit.open("#leakage")
    page.get_by_label("Buckets").select_option("days")
    first = call(port, "/v1/leakage/history?bucket=1d")["models"][name]["buckets"][0]["start"]
    day = datetime.fromtimestamp(first, UTC).day
    expect(page.locator("#history text").filter(has_text=re.compile(rf"^{day} \w+$")).first).to_be_visible()
    visit.leave()


@pytest.mark.deep
def test_dashboard_offers_other_files_of_a_model(visit: Visit, port: int) -> None:
    name = call(port, "/v1/policy", {"fen": "startpos"})["model"]["name"]
    other = f"sha256:{'0123456789abcdef' * 4}"

    def replaced(route: Route) -> None:
        """As after another file took the place of the model's."""
        response = route.fetch()
        answer = response.json()
        answer["models"][name]["other_digests"] = [other]
        route.fulfill(response=response, json=answer)

    visit.page.route("**/v1/leakage?", replaced)
    page = visit.open("#leakage")
    with page.expect_request(lambda request: "/v1/leakage/history" in request.url and other in request.url):
        page.get_by_label("Figures of").select_option(f"{name}, file 01234567")
    page.get_by_label("Figures of").select_option("the latest files")
    expect(page.get_by_role("article", name=name, exact=True)).to_be_visible()


def test_new_game_is_offered_in_every_view(visit: Visit) -> None:
    page = visit.open()
    for view in ("ratings", "lens"):
        visit.turns_to(f"#{view}?moves=e2e4")
        page.get_by_role("button", name="New game").click()
        expect(page.get_by_role("heading", name="Play somebody of your rating")).to_be_focused()


@pytest.mark.deep
def test_views_fit_without_scrolling(browser: Browser, port: int) -> None:
    visit = Visit(browser, f"http://127.0.0.1:{port}", viewport={"width": 1280, "height": 800})
    page = visit.open()
    for view, what in (("ratings", "#chart svg"), ("lens", "#lenses .comparison")):
        visit.turns_to(f"#{view}?{RUY}")
        box = page.locator(what).bounding_box()
        assert box
        assert box["y"] + box["height"] <= 800, view
    visit.turns_to(f"#play?{RUY}")
    box = page.locator("#line").bounding_box()
    assert box
    assert box["height"] >= 15 * 26  # rows
    expect(page.locator("#bars li").last).to_be_in_viewport()
    assert page.locator(".graph-legend").evaluate("(legend) => legend.scrollWidth <= legend.clientWidth")
    page.set_viewport_size({"width": 390, "height": 844})
    visit.turns_to(f"#ratings?{RUY}")
    box = page.locator("#chart svg").bounding_box()
    assert box
    assert box["y"] < 1000
    assert all(box["width"] >= 44 for box in (one.bounding_box() for one in visit.page.locator(".step").all()) if box)
    visit.leave()


@pytest.mark.parametrize(("width", "height"), part_of([(390, 844), (844, 390), (360, 640), (667, 375)], 2))
def test_phone_shows_board_and_both_clocks_at_start(browser: Browser, port: int, width: int, height: int) -> None:
    visit = Visit(browser, f"http://127.0.0.1:{port}", viewport={"width": width, "height": height}, has_touch=True)
    page = visit.open()
    expect(page.get_by_role("button", name="Start")).to_be_in_viewport(ratio=1)
    begin(visit, "White", clock="3+2")
    visit.sees("Your turn.")
    for what in ("#above .clock", "#board", "#below .clock"):
        expect(page.locator(what)).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width > height:
        page.get_by_role("button", name="Show hints").click()
        page.get_by_text("Share and export").scroll_into_view_if_needed()
        expect(page.locator("#board")).to_be_in_viewport(ratio=1)
    visit.leave()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
@pytest.mark.parametrize("view", part_of(["start", "ratings", "games"], 3))
def test_slow_loading_shifts_nothing(browser: Browser, port: int, view: str, width: int, height: int) -> None:
    """What is painted before the code or the models have come stays where it is."""
    visit = Visit(browser, f"http://127.0.0.1:{port}", viewport={"width": width, "height": height})
    page, pending = visit.page, []
    page.route("**/main.js", lambda route: pending.append(route))
    page.route("**/v1/models", lambda route: pending.append(route))
    page.goto(f"{visit.url}/#{view}", wait_until="commit")
    for _ in ("the code", "the models"):
        until(lambda: page.evaluate(PAINTED) and bool(pending), "the page waits")
        pending.pop().continue_()
    visit.settles()
    page.evaluate(PAINTED)
    assert page.evaluate("window.jumped") < 0.005
    visit.leave()


@pytest.mark.parametrize(
    ("width", "height", "scheme"),
    part_of([(1024, 768, "light"), (360, 800, "dark"), (1920, 1080, "light"), (3840, 2160, "dark")], 4),
)
def test_views_fit_window_and_pass_axe(browser: Browser, port: int, width: int, height: int, scheme: str) -> None:
    options: dict[str, Any] = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
    visit = Visit(browser, f"http://127.0.0.1:{port}", bypass_csp=True, **options)
    page = visit.page

    def breaks_no_rule(view: str) -> None:
        if width in (360, 1920):
            violations = Axe().run(page).response["violations"]
            assert [(one["id"], [node["html"][:150] for node in one["nodes"]]) for one in violations] == [], view

    visit.open()
    for view in VIEWS:
        visit.turns_to(view)
        if view == "#games":
            page.get_by_label("or text").fill(GAMES)
            page.get_by_role("button", name="Add").click()
            expect(page.locator("#library-count")).to_contain_text("3 of 3 games read")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        assert page.locator(".chart text").evaluate_all(CUT) == [], view
        if width > 1000 and view not in ("#leakage", "#games"):
            assert page.evaluate("document.documentElement.scrollHeight") <= height, view
            box = page.locator("#board").bounding_box()
            assert box
            assert box["height"] > 0.75 * height, view
        breaks_no_rule(view)
    if width != 360:
        return visit.leave()
    visit.open()
    for opener, view in (("More: ", "a new game"), ("Set up a position", "the editor")):
        page.get_by_text(opener).first.click()
        breaks_no_rule(view)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
    page.keyboard.press("Escape")
    begin(visit, "White", clock="5+3")
    visit.click("e2", "e4")
    visit.sees("Your turn.")
    visit.click("d2", "d3")
    expect(page.locator("#line button")).to_have_count(4)
    breaks_no_rule("a game")
    agree(visit, "Resign", "Resign")
    expect(page.locator("#review-sides")).to_contain_text(re.compile(r"You.*0 mistakes", re.DOTALL))
    breaks_no_rule("a review")
    return visit.leave()
