"""The list of games: reading, keeping, finding and opening them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, FilePayload, Page, Route, expect

from tests.games.engines import program
from tests.games.test_evaluations import LEGAL
from tests.page.test_match import agree, begin
from tests.page.visits import Visit
from tests.processes import call, free_port, served, stopped, until

GAMES = """\ufeff[Event "Open"]
[White "Ann"]
[Black "Bob"]
[Date "2024.05.01"]
[Result "1/2-1/2"]
[WhiteElo "1900"]

1. e4 {[%clk 0:05:00] a comment

with an empty line} e5 2. Nf3 Nc6 3. Bc4 Bc5 1/2-1/2

[Event "Club"]
[White "Eve"]
[Opening "Of their own"]

1. Ke3 e5 2. Nf3 *


1. d4 *
"""


def listed(page: Page, **options: Any) -> list[list[str]]:
    """The cells of the list, without the buttons that remove a game."""
    rows = page.locator("#library-list tbody tr")
    return [row.locator("th, td").all_inner_texts()[:-1] for row in rows.all()]


def all_read(page: Page, count: int) -> None:
    expect(page.locator("#library-count")).to_have_text(re.compile(rf"^{count} of {count} games? read"), timeout=60_000)


def test_games_are_listed_read_kept_and_opened(visit: Visit) -> None:
    page = visit.open()
    visit.load(GAMES)
    expect(page.get_by_role("heading", name="Games", exact=True)).to_be_visible()
    all_read(page, 3)
    first, second, third = listed(page)
    assert first[:5] == ["Ann (1900) \N{EN DASH} Bob", "½-½", "2024.05.01", "Open", "C50 Italian Game: Giuoco Piano"]
    assert second[3:5] == ["Club", "Of their own"]
    assert second[5] == "Cannot be read: White's move 1, Ke3, is not legal"
    assert third[0] == "? \N{EN DASH} ?"
    expect(page.locator("#library-count")).to_contain_text("1 cannot be read")
    page.get_by_label("or text").fill(GAMES)
    page.get_by_role("button", name="Add").click()
    expect(page.locator("#library-added")).to_have_text("0 games added, 3 already in the list.")
    page.get_by_role("button", name="Key move").click()  # the costliest first
    for order in ("descending", "ascending"):
        expect(page.get_by_role("columnheader", name="Key move")).to_have_attribute("aria-sort", order)
        page.get_by_role("button", name="Key move").click()
    page.get_by_role("button", name="Players").click()
    assert [row[0] for row in listed(page)] == ["? \N{EN DASH} ?", "Ann (1900) \N{EN DASH} Bob", "Eve \N{EN DASH} ?"]
    page.reload()
    visit.settles()
    assert listed(page) == [first, second, third]
    page.get_by_label("Find").fill("italian ann")
    expect(page.locator("#library-found")).to_have_text("1 game found")
    visit.refusals = True
    page.get_by_role("button", name="Ann (1900) \N{EN DASH} Bob", exact=True).press("Enter")
    visit.line("e4", "e5", "Nf3", "Nc6", "Bc4", "Bc5")
    expect(page.locator("#white-shown")).to_have_text("1900")
    page.go_back()
    page.get_by_label("Find").fill("eve")
    page.get_by_role("button", name="Eve \N{EN DASH} ?", exact=True).click()
    visit.is_told("This PGN cannot be read: White's move 1, Ke3, is not legal.")
    page.get_by_role("button", name="Remove all").click()
    page.locator("#ask").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("No games yet")).to_be_visible()
    page.reload()
    expect(page.get_by_text("No games yet")).to_be_visible()


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (390, 844)])
def test_reading_shifts_nothing(browser: Browser, port: int, width: int, height: int) -> None:
    """What comes of a game has its place in the list; the bar goes when all are read."""
    visit = Visit(browser, f"http://127.0.0.1:{port}", viewport={"width": width, "height": height})
    page = visit.open("#games")
    games = ["1. f3 e5 2. g4 Qh4# 0-1", "1. e4 e5 2. Nf3 Nc6 3. Bc4 Bc5 *", "1. Ke3 *"]
    page.locator("#library-files").set_input_files(
        FilePayload(name="games.pgn", mimeType="text/plain", buffer="\n\n".join(games).encode())
    )
    all_read(page, 3)
    assert page.evaluate("window.jumped") < 0.005
    expect(page.locator("#library-progress")).to_be_hidden()
    expect(page.get_by_role("button", name="Add")).to_be_hidden()  # there is nothing to add; it once said so in red
    visit.leave()


def test_reading_says_how_long_it_takes(visit: Visit) -> None:
    asked: list[Route] = []
    page = visit.open("#games")

    def answer(route: Route) -> None:
        asked.append(route)
        if len(asked) != 4:
            route.continue_()

    page.route("**/v1/games", answer)
    page.get_by_label("or text").fill("\n\n".join(f'[Round "{number}"]\n\n1. e4 *' for number in range(5)))
    page.get_by_role("button", name="Add").click()
    expect(page.locator("#library-count")).to_have_text("3 of 5 games read; less than a minute left")
    asked[3].continue_()
    all_read(page, 5)
    expect(page.locator("#library-count")).to_have_text("5 of 5 games read")


def test_notes_on_a_game_are_shown(visit: Visit) -> None:
    """Only the API once told them, and a game with an illegal move was not judged."""
    words = (
        "'Ke3' is not legal, at White's move 2: it is left out, and what follows it. "
        "The evaluation 'eval x' after 1. e4 cannot be read."
    )
    page = visit.open("#games")
    page.get_by_label("or text").fill('[White "Fay"]\n\n1. e4 {[%eval x]} e5 2. Ke3 Nc6 3. Nf3 0-1\n')
    page.get_by_role("button", name="Add").click()
    all_read(page, 1)
    assert listed(page)[0][-1].endswith(words)
    page.get_by_role("button", name="Fay \N{EN DASH} ?", exact=True).click()
    visit.line("e4", "e5")
    expect(page.locator("#notes")).to_have_text(words)
    page.reload()
    expect(page.locator("#notes")).to_have_text(words)
    visit.load("1. d4 d5 *")
    visit.line("d4", "d5")
    expect(page.locator("#notes")).to_have_text("")
    visit.load("1. e4 e5 (1... d5 2. Ke3) 2. Nf3 *")
    visit.line("e4", "e5", "Nf3")
    expect(page.locator("#notes")).to_have_text("The variations are left out: White's move 2, Ke3, is not legal.")


def test_game_is_found_by_player_and_removed_alone(visit: Visit) -> None:
    page = visit.open("#games")
    games = [f'[White "Player {number}"]\n[Date "2024.05.12"]\n\n1. e4 *\n' for number in (1, 12, 3)]
    page.get_by_label("or text").fill("\n".join(games))
    page.get_by_role("button", name="Add").click()
    all_read(page, 3)
    page.get_by_label("Find").fill("player 12")
    assert [row[0] for row in listed(page)] == ["Player 12 \N{EN DASH} ?"]  # not all that have a 12 in their date
    page.get_by_label("Find").fill("2024 player")
    assert len(listed(page)) == 3
    page.get_by_role("button", name="Remove Player 12").click()
    page.locator("#ask").get_by_role("button", name="Cancel").click()
    assert len(listed(page)) == 3
    page.get_by_role("button", name="Remove Player 12").click()
    page.locator("#ask").get_by_role("button", name="Remove").click()
    expect(page.locator("#library-count")).to_have_text("2 of 2 games read")
    page.reload()
    visit.settles()
    assert [row[0] for row in listed(page)] == ["Player 1 \N{EN DASH} ?", "Player 3 \N{EN DASH} ?"]


def test_unjudged_games_are_judged_by_a_later_engine(browser: Browser, shipped_alone: Path, tmp_path: Path) -> None:
    """A dash once meant both that no move was a mistake and that nobody had judged the moves."""
    port = free_port()
    with served(shipped_alone, "--runs", "1", port=port) as (process, _):
        visit = Visit(browser, f"http://127.0.0.1:{port}")
        page = visit.open("#games")
        page.get_by_label("or text").fill('[White "Ann"]\n\n1. e4 e5 *\n\n[White "Bob"]\n\n1. d4 d5 2. c4 *\n')
        page.get_by_role("button", name="Add").click()
        all_read(page, 2)
        expect(page.locator("#library-count")).to_contain_text("2 not judged, as the service has no engine")
        assert key_moves(page) == ["not judged", "not judged"]
        page.get_by_label("Coach's view of").select_option(label="Ann (1)")
        expect(page.locator("#coach")).to_contain_text("No move is judged.")
        assert stopped(process) == 0
    with served(shipped_alone, "--runs", "1", "--engine", program(tmp_path, "dies"), port=port) as (process, _):
        page.get_by_role("button", name="Judge the rest").click()
        expect(page.locator("#library-waiting")).to_have_text("The engine has stopped. Trying again in 60 s.")
        assert key_moves(page) == ["1 of 3 positions judged", "not judged"]
        assert stopped(process) == 0
    with served(shipped_alone, "--runs", "1", "--engine", program(tmp_path, "moves"), port=port):
        page.reload()
        expect(page.locator("#library-count")).to_have_text("2 of 2 games read")
        assert key_moves(page) == ["\N{EN DASH}", "\N{EN DASH}"]
        visit.leave()


def key_moves(page: Page) -> list[str]:
    """The last column of the list."""
    return [row[5] for row in listed(page)]


def test_live_game_leaves_the_list_as_it_is(visit: Visit) -> None:
    page = visit.open()
    pending: list[Route] = []
    page.route("**/v1/move", lambda route: pending.append(route))
    begin(visit, "Black")
    page.get_by_role("link", name="Games", exact=True).click()
    visit.load(GAMES)
    all_read(page, 3)
    button = page.locator("#library-list tbody button").first
    button.focus()
    visit.answers(pending, "e4")
    expect(page.locator("#going")).to_contain_text("It is your turn.")
    visit.settles()
    expect(button).to_be_focused()


@pytest.mark.deep
def test_games_of_other_programs_keep_players_and_ratings(visit: Visit) -> None:
    games = '[White "Ann"] [Black "Bob"] [WhiteElo "1800"] [BlackElo "0"] 1. d4 d5 1-0\n'
    games += '[White "The \\"Bear\\""]\n\n\n1. d4 c5 1-0\n\nRound 2\n\n[White "Cid"]\n\n1. c4 *\n\nBest wishes\n'
    page = visit.open()
    visit.load(games)
    all_read(page, 3)
    assert [row[0] for row in listed(page)] == [
        "Ann (1800) \N{EN DASH} Bob",
        'The "Bear" \N{EN DASH} ?',
        "Cid \N{EN DASH} ?",
    ]
    added = "3 games added. Line 7: \N{LEFT DOUBLE QUOTATION MARK}Round\N{RIGHT DOUBLE QUOTATION MARK} stands"
    expect(page.locator("#library-added")).to_contain_text(added)
    page.get_by_role("button", name='The "Bear" \N{EN DASH} ?', exact=True).click()
    visit.line("d4", "c5")
    assert '[White "The \\"Bear\\""]' in page.evaluate(
        """async () => {
            const module = (name) => import(document.querySelector("script[src]").src.replace("main.js", name));
            const [{ pgnOf }, { Tree }] = [await module("pgn.js"), await module("tree.js")];
            return pgnOf(new Tree({ headers: { White: 'The "Bear"' } }));
        }"""
    )


def test_file_is_dropped_anywhere_in_any_encoding(visit: Visit) -> None:
    page = visit.open()
    drop = """([bytes, name]) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([new Uint8Array(bytes)], name));
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
    }"""
    one = '[White "Müller"]\n\n1. e4 *\n'
    page.evaluate(drop, [list(one.encode("latin-1")), "one.pgn"])
    visit.line("e4")
    page.evaluate(drop, [list(b"\x28\xb5\x2f\xfd"), "games.pgn.zst"])
    visit.is_told("games.pgn.zst is compressed")
    page.evaluate(drop, [list(f"{one}\n\n1. d4 *\n".encode("latin-1")), "two.pgn"])
    all_read(page, 2)
    assert [row[0] for row in listed(page)] == ["Müller \N{EN DASH} ?", "? \N{EN DASH} ?"]


def test_slow_split_leaves_a_new_game_on_the_board(visit: Visit) -> None:
    pending: list[Route] = []
    page = visit.open()
    page.route("**/v1/games/split", lambda route: pending.append(route))
    visit.load(GAMES)
    files = {"one.pgn": b"1. c4 *", "two.pgn": b"1. f4 *"}
    page.locator("#paste-files").set_input_files(
        [FilePayload(name=name, mimeType="text/plain", buffer=pgn) for name, pgn in files.items()]
    )
    begin(visit, "White")
    until(lambda: page.locator("#board .movable").count() > 0 and len(pending) == 2, "both are being split")
    page.route("**/v1/games/split", lambda route: route.continue_())
    for route in pending:
        route.continue_()
    all_read(page, 5)  # they are added all the same
    expect(page.get_by_role("button", name="Abort")).to_be_visible()


def test_first_screen_offers_the_last_games(visit: Visit) -> None:
    page = visit.open()
    offered, games = page.locator("#last-games button"), page.get_by_role("link", name="Games", exact=True)
    expect(page.get_by_role("button", name="Start")).to_be_visible()
    games.click()
    page.get_by_label("or text").fill(GAMES)
    page.get_by_role("button", name="Add").click()
    all_read(page, 3)
    page.get_by_role("link", name="movemask", exact=True).click()
    expect(offered).to_have_count(3)
    games.click()
    page.get_by_role("button", name="Remove all").click()
    page.locator("#ask").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("No games yet")).to_be_visible()
    page.get_by_role("link", name="movemask", exact=True).click()
    expect(offered).to_have_count(0)


@pytest.mark.deep
@pytest.mark.parametrize("place", ["#paste", "body"])
def test_long_pgn_is_pasted(visit: Visit, place: str) -> None:
    games = "\n\n".join(f'[White "Player {number}"]\n\n1. e4 {{{"long " * 50}}} *' for number in range(250))
    page = visit.open()
    page.evaluate("(text) => navigator.clipboard.writeText(text)", games)
    page.locator(place).focus()
    page.keyboard.press("Control+v")
    expect(page.locator("#library-added")).to_have_text("250 games added.")
    expect(page.locator("#library-list tbody tr")).to_have_count(200)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("#library-list tbody tr")).to_have_count(250)


@pytest.mark.deep
def test_list_waits_for_service_rate_and_key(browser: Browser, shipped_alone: Path) -> None:
    port, key = free_port(), "a-reader-s-key-0123456789"
    games = "\n\n".join(f'[White "Player {number}"]\n\n1. e4 e5 2. Nf3 *' for number in range(8))
    waiting = "#library-waiting"
    with served(shipped_alone, "--runs", "1", port=port) as (process, _):
        visit = Visit(browser, f"http://127.0.0.1:{port}")
        visit.refusals = True
        page = visit.open("#games")
        page.route("**/v1/games", lambda route: route.abort())  # as if it stopped once the text is split
        page.get_by_label("or text").fill(games)
        page.get_by_role("button", name="Add").click()
        expect(page.locator(waiting)).to_have_text("The service does not answer. Trying again in 2 s.")
        assert len(listed(page)) == 8
        assert stopped(process) == 0
    page.unroute("**/v1/games")
    page.get_by_label("or text").fill('[White "Player 8"]\n\n1. d4 *')
    page.get_by_role("button", name="Add").click()
    visit.is_told("The service does not answer. Trying again in 2 s.")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
    command = ("--runs", "1", "--api-keys", f"{key}:policy", "--client-rate", "5", "--client-burst", "10")
    with served(shipped_alone, *command, port=port):
        page.get_by_role("button", name="Continue").click()
        expect(page.locator(waiting)).to_contain_text("Press Continue to try again.")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Use this key").click()  # and the page goes on by itself
        expect(page.locator(waiting)).to_contain_text("Trying again in")
        all_read(page, 9)  # with the one that was added while the service was away
        expect(page.locator(waiting)).to_be_empty()
        visit.leave()


@pytest.mark.deep
def test_full_storage_is_reported_and_games_are_read(own_visit: Visit) -> None:
    page = own_visit.open("#games")
    session = page.context.new_cdp_session(page)
    session.send("Storage.overrideQuotaForOrigin", {"origin": own_visit.url, "quotaSize": 1})
    page.get_by_label("or text").fill(GAMES)
    page.get_by_role("button", name="Add").click()
    expect(page.locator("#library-refused")).to_contain_text("its storage for this page is full")
    all_read(page, 3)


@pytest.mark.deep
def test_list_follows_another_tab(own_visit: Visit) -> None:
    page = own_visit.open("#games")
    expect(page.locator("#library-empty")).to_be_visible()
    other = own_visit.another_tab()
    other.open()
    begin(other, "White")
    other.click("e2", "e4")
    other.sees("Your turn.")
    agree(other, "Resign", "Resign")
    expect(other.page.locator("#result")).to_contain_text("In Games")
    row = page.locator("#library-list tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(re.compile(r"[A-E]\d\d "))  # its opening, once the other tab has read it
    all_read(page, 1)
    page.get_by_role("button", name="Remove all").click()
    page.locator("#ask").get_by_role("button", name="Remove").click()
    other.page.get_by_role("link", name="Games", exact=True).click()
    expect(other.page.locator("#library-empty")).to_be_visible()


@pytest.mark.deep
def test_key_moves_lead_to_their_positions(visit: Visit, port: int) -> None:
    page = visit.open()
    visit.load(LEGAL)
    moments = call(port, "/v1/games", {"pgn": LEGAL})["games"][0]["moments"]
    buttons = page.locator("#moments button")
    expect(buttons).to_have_text(
        [re.compile(f"{one['mark']}.* cost {int(100 * one['lost'] + 1e-9)} point", re.I) for one in moments]
    )
    assert "blunder" in {one["mark"] for one in moments}
    expect(page.locator("#graph .moment")).to_have_count(len(moments))
    for index, moment in enumerate(moments):
        buttons.nth(index).click()
        expect(page).to_have_url(re.compile(rf"&at={moment['ply']}&"))
        expect(buttons.nth(index)).to_have_attribute("aria-current", "true")
    visit.load("1. e4 e5 2. Nf3 Nc6 *")  # what most people play
    expect(page.locator("#moments")).to_have_text("No move cost 5 points or more.")
    begin(visit, "Black")
    expect(page.locator("#moments")).to_be_hidden()  # it would give the moves away
