"""What a player would lose after a game: the game itself, and what there is to learn from it."""

from __future__ import annotations

import io
import re
from typing import Any

import chess
import chess.pgn
import pytest
from playwright.sync_api import Route, expect

from tests.page.test_library import listed
from tests.page.test_match import agree, begin
from tests.page.visits import Visit
from tests.processes import call

#: A game that was played here: White's third move gives the queen for a pawn.
OWN = (
    '[Event "Casual game"]\n[White "You"]\n[Black "movemask-6"]\n[Result "0-1"]\n[WhiteElo "1500"]\n'
    '[BlackElo "1700"]\n[Termination "Black won by resignation"]\n\n'
    "1. e4 e5 2. Qh5 Nc6 3. Qxh7 Rxh7 4. Nf3 Nf6 5. Bc4 d6 6. O-O 0-1\n"
)
SANS = ["e4", "e5", "Qh5", "Nc6", "Qxh7", "Rxh7", "Nf3", "Nf6", "Bc4", "d6", "O-O"]

FILL = """async (count) => {
    const { keep } = await import(document.querySelector("script[src]").src.replace("main.js", "shelf.js"));
    await keep([...Array(count).keys()].map((place) => ({ id: [place, 0], played: true, asked: true,
        pgn: `[White "You"]\\n[Event "${place ? place : "oldest"}"]\\n\\n1. e4 *` })));
}"""


def lost(visit: Visit) -> None:
    """A game of three moves against the network, resigned."""
    held: list[Route] = []
    visit.page.route("**/v1/move", lambda route: held.append(route))
    begin(visit, "White", clock="5+3")
    for own, reply in (("e2e4", "e5"), ("g1f3", "Nc6"), ("f1c4", "Nf6")):
        visit.settles()
        visit.click(own[:2], own[2:])
        visit.answers(held, reply)
        visit.sees("Your turn.")
        visit.settles()
    agree(visit, "Resign", "Resign")
    visit.page.unroute("**/v1/move")


def test_every_finished_game_is_kept_reviewed_and_comes_back(visit: Visit) -> None:
    page = visit.open()
    lost(visit)
    expect(page.locator("#result")).to_contain_text("Kept under Games")
    expect(page.locator("#review-counts")).to_contain_text("Your moves:")
    visit.line("e4", "e5", "Nf3", "Nc6", "Bc4", "Nf6")
    begin(visit, "Black")  # another game against the network, not an empty board
    visit.sees("Your turn.")
    page.go_back()
    visit.line("e4", "e5", "Nf3", "Nc6", "Bc4", "Nf6")
    visit.sees("Black won by resignation, 0-1.")
    page.get_by_role("link", name="Games", exact=True).click()
    expect(page.locator("#library-count")).to_contain_text("1 of 1 game read")
    page.reload()
    visit.settles()
    ((players, result, date, event, opening, _),) = listed(page)
    assert re.fullmatch(r"You \(1500\) \N{EN DASH} movemask-\d+ \(1500\)", players)
    assert (result, event, opening[:3]) == ("0-1", "Casual game", "C55")
    assert re.fullmatch(r"\d{4}\.\d\d\.\d\d", date)
    game = chess.pgn.read_game(io.StringIO(visit.saved("Download PGN")))
    assert game
    assert not game.errors
    assert [node.san() for node in game.mainline()] == ["e4", "e5", "Nf3", "Nc6", "Bc4", "Nf6"]
    assert game.headers["TimeControl"] == "300+3"
    assert re.fullmatch(r"\d\d:\d\d:\d\d", game.headers["UTCTime"])  # so that the same moves on one day are two games
    assert all(node.clock() is not None for node in game.mainline())
    page.get_by_role("button", name=players).click()
    expect(page.locator("#review-counts")).to_contain_text("Your moves:")
    expect(page.locator("#review-moves li")).to_have_count(3)


def test_a_verdict_says_what_the_service_says(visit: Visit, port: int) -> None:
    page = visit.open()
    visit.load(OWN)
    verdicts = page.locator("#review-moves li")
    expect(verdicts).to_have_count(6)
    moves: list[str] = []
    board = chess.Board()
    for ply, san in enumerate(SANS):
        if ply % 2 == 0:
            asked: dict[str, Any] = {"fen": "startpos", "moves": moves, "include": ["san"]}
            elo = {"self": 1500, "opponent": 1700}
            usual = call(port, "/v1/policy", {**asked, "elo": elo, "include": ["san", "forecast"]})
            stronger = call(port, "/v1/policy", {**asked, "elo": {**elo, "self": 1900}})
            text = verdicts.nth(ply // 2).inner_text().replace("\N{NO-BREAK SPACE}", " ")
            share = next(move["probability"] for move in usual["moves"] if move["san"] == san)
            best = stronger["moves"][0]
            assert text.startswith(f"{ply // 2 + 1}. {san} ")
            if share >= 0.001:
                found = re.search(r"([\d.]+) % of players rated 1500 would play it", text)
                assert found
                assert float(found[1]) == pytest.approx(100 * share, rel=0.06, abs=0.01)
            else:
                assert "Hardly any players rated 1500 would play it" in text
            rather = best["san"] != san
            assert (f"Players rated 1900 would rather play {best['san']} (" in text) == rather
            assert ("So would players rated 1900 (" in text) != rather
            before = round(100 * usual["forecast"]["score"])
            assert f"The forecast stayed at {before} %" in text or f" from {before} to " in text
        moves.append(board.parse_san(san).uci())
        board.push_san(san)
    expect(verdicts.nth(2)).to_contain_text("Mistake")
    page.locator("#review-moves button").nth(2).click()
    expect(page).to_have_url(re.compile("at=5"))
    expect(page.locator("#verdict")).to_contain_text("3. Qxh7 · Mistake.")
    expect(page.locator("#line button").nth(4)).to_have_text("Qxh7?")
    page.locator("#white").fill("2000")  # another rating, another verdict
    expect(page.locator("#verdict")).to_contain_text("rated 2000")
    expect(page.locator("#review-moves [aria-current]")).to_be_in_viewport()
    page.locator("h1").click()
    page.keyboard.press("Home")
    expect(page.locator("#verdict")).to_contain_text("Step through the game")


def test_a_link_to_a_finished_game_gives_the_verdicts_of_a_reload(visit: Visit) -> None:
    """The moves of a link are UCI, and get their names from the service while the verdicts are asked for."""
    moves = "e2e4.g7g6.g1f3.f8g7.f1c4.b7b6"
    page = visit.open(f"#play?moves={moves}&you=white&result=0-1&how=resignation")
    verdicts = page.locator("#review-moves li")
    expect(verdicts).to_have_text([re.compile(rf"^\d\. {san} ") for san in ("e4", "Nf3", "Bc4")])
    first = verdicts.all_inner_texts()
    assert not re.search("|".join(moves.split(".")), " ".join(first))
    page.reload()
    expect(verdicts).to_have_count(3)
    assert verdicts.all_inner_texts() == first


def test_a_player_is_known_by_the_side_that_was_chosen_once(visit: Visit) -> None:
    page = visit.open()
    visit.load('[White "Ann"]\n[Black "Bob"]\n\n1. e4 e5 2. Nf3 Nc6 *\n')
    whose = page.get_by_label("Verdicts on")
    expect(whose).to_have_value("")
    expect(page.locator("#verdict")).to_be_hidden()
    whose.select_option("Black's moves")
    expect(page.locator("#review-moves li")).to_have_count(2)
    expect(page.locator("#review-counts")).to_contain_text("Black's moves:")
    visit.load('[White "Bob"]\n[Black "Eve"]\n\n1. d4 d5 2. c4 e6 *\n')
    expect(whose).to_have_value("white")
    expect(page.locator("#review-moves li")).to_have_text([re.compile("d4"), re.compile("c4")])


def test_a_network_of_one_rating_or_without_forecasts_judges_as_far_as_it_can(visit: Visit) -> None:
    page = visit.open("#play?model=zz-1900")
    visit.load(OWN)
    expect(page.locator("#review-moves li")).to_have_count(6)
    text = page.locator("#review-moves li").first.inner_text()
    assert "players would play it" in text
    assert "rated" not in text


def test_the_oldest_game_goes_when_a_thousand_are_kept(visit: Visit) -> None:
    page = visit.open()
    page.evaluate(FILL, 1000)
    page.reload()
    lost(visit)
    expect(page.locator("#result")).to_contain_text("Kept under Games")
    page.get_by_role("link", name="Games", exact=True).click()
    expect(page.locator("#library-count")).to_contain_text("1,000 of 1,000 games read")
    page.reload()
    visit.settles()
    assert listed(page)[0][0].startswith("You (1500)")  # the latest first
    page.get_by_label("Find").fill("oldest")
    expect(page.locator("#library-found")).to_have_text("0 games found")


def test_a_browser_that_stores_nothing_is_reported_after_the_game(own_visit: Visit) -> None:
    page = own_visit.open()
    session = page.context.new_cdp_session(page)
    session.send("Storage.overrideQuotaForOrigin", {"origin": own_visit.url, "quotaSize": 1})
    lost(own_visit)
    expect(page.locator("#result")).to_contain_text("Your browser does not store it. Copy the PGN to keep it.")
