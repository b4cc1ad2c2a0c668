"""The first screen and the navigation: positions with leakage and request, measured strength, installation."""

from __future__ import annotations

import json
import re
import shlex
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from movemask.network.contract import read_contract
from movemask.network.files import shipped_models
from movemask.uci.options import Strengths
from tests.page.test_match import begin
from tests.page.visits import Visit
from tests.processes import call

CHECK = "r2rR2k/1p1P1Qbp/p5p1/5q2/5P2/5N2/P5PP/3R3K b - - 3 25"  # the network misses the check from e8
RUY = "moves=e2e4.e7e5.g1f3.b8c6"


def test_start_offers_three_equal_choices(visit: Visit) -> None:
    page = visit.open()
    names = ["Look at a position", "Play somebody of your rating", "Review games"]
    expect(page.locator(".door h2")).to_have_text(names)
    boxes = [door.bounding_box() for door in page.locator(".door").all()]
    assert len({box["width"] for box in boxes if box}) == 1
    for button in ("Look", "Set up a position", "Start", "Load"):
        expect(page.get_by_role("button", name=button, exact=True)).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("navigation", name="Views").locator("> a")).to_have_text(
        ["Position", "Play", "Games", "Leakage", "API"]
    )
    for place in (page.locator(".tagline"), page.locator("meta[name=description]")):
        words = place.get_attribute("content") or place.inner_text()
        assert "players of a rating would play" in words
        assert "illegal moves a network would play without its mask" in words
    for silent in ("#graph", "#value", "#line", ".step", "#verdict", "#clear"):
        expect(page.locator(silent).locator("visible=true")).to_have_count(0)


def test_move_on_start_shows_position(visit: Visit) -> None:
    page = visit.open()
    visit.click("e1", "e2")  # in the example
    visit.sees("Black to move")
    expect(page.locator("#doors")).to_be_hidden()
    expect(page.locator("#verdict")).to_contain_text("20. Ke2.")  # also where nothing has gone wrong
    expect(page.get_by_role("link", name="Position")).to_have_attribute("aria-current", "page")
    page.get_by_role("button", name="New game").click()
    expect(page.locator(".door h2:visible")).to_have_text("Play somebody of your rating")
    page.get_by_role("link", name="movemask").click()
    expect(page.locator(".door h2:visible")).to_have_count(3)


def test_position_shows_moves_leakage_and_request(visit: Visit, port: int) -> None:
    page = visit.open()
    page.get_by_label("FEN").locator("visible=true").fill(CHECK)
    page.get_by_role("button", name="Look", exact=True).locator("visible=true").click()
    visit.sees("Black to move")
    page.get_by_text("Ask the same over HTTP").click()
    command = shlex.split(page.locator("#curl").inner_text().replace("\\\n", ""))
    assert command[:3] == ["curl", "-s", f"http://127.0.0.1:{port}/v1/policy"]
    answer = call(port, "/v1/policy", json.loads(command[-1]))
    assert answer["fen"] == CHECK
    expect(page.locator("#bars .san")).to_have_text([move["san"] for move in answer["moves"]])
    leaked = page.locator(".leaked b").inner_text().removesuffix("%")
    assert float(leaked) == pytest.approx(100 * answer["leakage"]["raw"], abs=0.06)
    worst = answer["illegal"]["moves"][0]["uci"]
    expect(page.locator("#removed li").first).to_contain_text(f"{worst[:2]}\N{EN DASH}{worst[2:]}")
    page.get_by_role("button", name="Copy", exact=True).click()
    assert shlex.split(page.evaluate("navigator.clipboard.readText()").replace("\\\n", "")) == command
    page.get_by_role("link", name="What a wrong mask would do here").click()
    expect(page.locator("#lenses .comparison")).to_be_visible()
    expect(page.locator("#lenses")).to_contain_text("cannot be compared between networks")
    expect(page.get_by_role("link", name="Mask", exact=True)).to_have_attribute("aria-current", "page")
    expect(page.get_by_role("link", name="Position")).to_have_attribute("aria-current", "page")


def test_start_shows_an_example_and_leads_to_it(visit: Visit) -> None:
    """The board of the first screen once showed the start position, which says nothing of masks."""
    page = visit.open()
    asked = page.evaluate("performance.getEntriesByType('resource').filter(({ name }) => /policy/.test(name)).length")
    assert asked == 1, "the example takes the place of the position that was asked for"
    expect(page.locator("#board .arrow.legal").first).to_be_visible()
    labels = page.locator("#board .arrows > text").all_text_contents()
    assert len(labels) >= 3
    assert all(label.endswith("%") for label in labels)
    page.get_by_role("button", name="Look closer").click()
    visit.sees("White to move")
    share = page.locator(".leaked b").inner_text()
    assert float(share.removesuffix("%")) > 50, "another network: choose a position in which its mask removes more"
    page.go_back()
    expect(page.locator(".door h2:visible")).to_have_count(3)
    page.get_by_role("button", name="Set up a position").click()
    expect(page.locator("#editor [name=fen]")).to_have_value(re.compile("^rnbqkbnr/"))
    page.get_by_role("button", name="Cancel").locator("visible=true").click()


def test_play_tells_measured_strength(visit: Visit) -> None:
    """A rating was once offered without a word of what it measures."""
    (contract,) = shipped_models().glob("*.toml")
    rows = read_contract(contract).card["strength"]
    page = visit.open()
    slider = page.get_by_role("slider", name="Rating", exact=True)
    expect(page.locator("#human-words")).to_contain_text("imitates players")
    human = [row for row in rows if row["temperature"] == 1]
    for row in human:
        slider.fill(str(row["rating"]))
        expect(page.get_by_label(f"plays like players rated {row['rating']}")).to_be_checked()
        words = f"is {row['elo']} ± {row['error']}." if row["error"] else f"is set here: it counts as {row['elo']}."
        expect(page.locator("#strength-words")).to_contain_text(words)
    for below, above in pairwise(human):
        slider.fill(str((below["rating"] + above["rating"]) // 100 * 50))
        error = max(below["error"], above["error"])  # a mean would fall towards 0 where the scale is set
        expect(page.locator("#strength-words")).to_contain_text(f" ± {error}.")
    page.get_by_label("as strong as").check()
    page.get_by_role("slider", name="Strength").fill("1500")
    words = "The scale of strength is set here. It imitates players rated 1500."
    expect(page.locator("#strength-words")).to_have_text(words)
    page.get_by_role("slider", name="Strength").fill("1800")
    prefers = re.compile(r"± \d\d\. It imitates players rated 2500 and prefers its likelier moves\.")
    expect(page.locator("#strength-words")).to_have_text(prefers)
    page.get_by_role("button", name="Start").click()
    visit.sees("Your turn.")
    with page.expect_request("**/v1/move") as request:
        visit.click("e2", "e4")
    sent: Any = request.value.post_data_json
    rating, temperature = Strengths.of({"card": {"strength": rows}}).at(1800)
    assert sent["elo"]["self"] == round(rating)
    assert sent["temperature"] == pytest.approx(temperature, abs=0.001)


def test_play_link_leads_to_game_in_progress(visit: Visit) -> None:
    page = visit.open()
    begin(visit, "White")
    visit.click("e2", "e4")
    visit.sees("Your turn.")
    page.get_by_role("link", name="movemask").click()
    expect(page.locator(".door h2:visible")).to_have_text(["Look at a position", "Review games"])
    page.get_by_role("link", name="Play", exact=True).click()
    visit.sees("Your turn.")
    expect(page.locator("#line button").first).to_have_text("e4")
    expect(page.get_by_role("link", name="Play", exact=True)).to_have_attribute("aria-current", "page")


@pytest.mark.parametrize("view", ["play", "new", "start"])
def test_link_of_a_view_without_content_shows_position(visit: Visit, view: str) -> None:
    """Links from before had a position under #play."""
    page = visit.open(f"#{view}?{RUY}")
    visit.line("e4", "e5", "Nf3", "Nc6")
    heading = "Play from this position" if view == "new" else "Likely moves"
    expect(page.get_by_role("heading", name=heading)).to_be_visible()


def test_title_names_the_view(visit: Visit) -> None:
    page = visit.open()
    expect(page).to_have_title("movemask")
    for view, title in (("new", "Play"), ("games", "Games"), (f"ratings?{RUY}", "Ratings"), (f"lens?{RUY}", "Mask")):
        visit.turns_to(f"#{view}")
        expect(page).to_have_title(f"{title} · movemask")


def test_dashboard_does_not_compare_multiplied(visit: Visit) -> None:
    page = visit.open("#leakage")
    expect(page.locator("#dashboard > p").first).to_contain_text("do not compare it between networks")


def test_help_begins_with_policy_and_mask(visit: Visit) -> None:
    page = visit.open()
    page.get_by_text("More", exact=True).click()
    for name in ("Sound", "Help", "Shortcuts"):
        expect(page.locator("#more").get_by_role("button", name=name)).to_be_visible()
    page.get_by_role("button", name="Help").click()
    first = page.locator("#help p").first.inner_text()
    assert re.match(r"A policy says how likely each move is", first)
    assert "The mask says which moves are legal" in first
    assert len(re.findall(r"\.(\s|$)", first)) == 4  # sentences


def test_page_can_be_installed(browser: Browser, port: int) -> None:
    visit = Visit(browser, f"http://127.0.0.1:{port}")
    page = visit.open()
    session = page.context.new_cdp_session(page)
    manifest = session.send("Page.getAppManifest")
    assert manifest["errors"] == []
    content = json.loads(manifest["data"])
    assert content["start_url"] == content["scope"] == "../../"  # of the page's files: also behind a proxy's prefix
    errors = session.send("Page.getInstallabilityErrors")["installabilityErrors"]
    assert [error["errorId"] for error in errors if error["errorId"] != "in-incognito"] == []
    icon = page.request.get(page.locator("link[rel=apple-touch-icon]").evaluate("link => link.href"))
    assert (icon.status, icon.headers["content-type"]) == (200, "image/png")
    visit.leave()
