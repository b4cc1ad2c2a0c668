"""The coach's view: one player over many games, positions to try again, and what is exported."""

from __future__ import annotations

import io
import re

import chess.pgn
import pytest
from playwright.sync_api import Page, expect

from tests.page.test_library import all_read
from tests.page.visits import Visit

SANS = "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 6. Re1 b5 7. Bb3 d6 8. c3 O-O"
MOVES = re.sub(r"(\b[a-hNBRO]\S+)", r"\1 {[%eval 0.3]}", SANS) + " 9. Ng5 {[%eval -3.0]} h6 {[%eval -3.0]}"


def game(white: str, black: str, result: str = "1-0", moves: str = MOVES) -> str:
    return f'[White "{white}"]\n[Black "{black}"]\n[Date "2024.05.12"]\n[Result "{result}"]\n\n{moves} {result}\n\n'


def coached(visit: Visit, games: str, count: int, player: str) -> Page:
    """The coach's view of a player."""
    page = visit.open("#games")
    page.get_by_label("or text").fill(games)
    page.get_by_role("button", name="Add").click()
    all_read(page, count)
    page.get_by_label("Coach's view of").select_option(label=player)
    expect(page.locator("#coach")).to_be_visible()
    return page


def rows(page: Page, section: str) -> list[list[str]]:
    table = page.locator("#coach section").filter(has_text=section).first.locator("tbody tr")
    return [row.locator("th, td").all_inner_texts() for row in table.all()]


def test_coach_sums_up_a_player(visit: Visit) -> None:
    """Names are matched whatever their spelling, and another is merged by hand."""
    games = "".join(game("Pupil, Anna", f"Bob {number}") for number in range(4))
    games += game("Cid", "anna pupil", "0-1") + game("annap99", "Bob", "1/2-1/2")
    page = coached(visit, games, 6, "Pupil, Anna (5)")
    body = page.locator("#coach-body")
    expect(body).to_contain_text("5 games, 5 of them judged.")
    expect(body).to_contain_text("Accuracy by lichess's formula: ")
    expect(body).to_contain_text(re.compile(r"likeliest among players rated (\d+ ± \d+|\d+ or (less|more))"))
    expect(body).not_to_contain_text("has not been calibrated")  # the shipped network's card has it
    opening, *_, whole = rows(page, "By phase")
    assert (opening[0], opening[1]) == ("opening", "45 of 45")
    assert opening[5] == "4"  # 9. Ng5 is a blunder of White's
    assert re.fullmatch(r"\d+ ± \d+|\d+ or (less|more)", whole[6])
    assert [(row[0], row[1], row[2]) for row in rows(page, "By opening")] == [
        ("Ruy Lopez, White", "4", "100\N{NO-BREAK SPACE}%"),
        ("Ruy Lopez, Black", "1", "100\N{NO-BREAK SPACE}%"),
    ]
    page.locator("#coach summary").click()
    names = ["annap99", "Bob", "Bob 0", "Bob 1", "Bob 2", "Bob 3", "Cid"]  # the likest, then by the alphabet
    assert [text.strip() for text in page.locator("#coach details label").all_inner_texts()] == names
    page.locator("#coach").get_by_label("annap99").check()
    expect(body).to_contain_text("6 games, 6 of them judged.")
    expect(page.locator("#coach").get_by_label("annap99")).to_be_visible()  # the names stay open
    page.reload()
    visit.settles()
    expect(page.locator("#coach-heading")).to_have_text("Pupil, Anna")
    expect(body).to_contain_text("6 games, 6 of them judged.")
    expect(body).not_to_contain_text("has not been calibrated")


def test_coach_names_all_openings(visit: Visit) -> None:
    firsts = [f"{file}{rank}" for file in "abcdefgh" for rank in (3, 4)]
    page = coached(visit, "".join(game("Ann", "Bob", moves=f"1. {move}") for move in firsts), 16, "Ann (16)")
    count = len(rows(page, "By opening"))
    assert count > 12
    expect(page.get_by_role("heading", name=f"By opening ({count})")).to_be_visible()


def test_coach_guesses_no_rating_below_five_games(visit: Visit) -> None:
    page = coached(visit, "".join(game("Ann", f"Bob {number}") for number in range(3)), 3, "Ann (3)")
    expect(page.locator("#coach-body")).to_contain_text("A resembled rating needs five games")
    assert [row[6] for row in rows(page, "By phase")] == ["\N{EN DASH}"] * 4


def test_coach_position_is_tried_again_and_exported(visit: Visit) -> None:
    page = coached(visit, game("Bob", "Ann", moves="1. d4 d5 *") + game("Ann", "Bob"), 2, "Ann (2)")
    card = page.locator("#coach .again li")
    expect(card).to_have_count(1)
    expect(card).to_contain_text("9. Ng5 cost 27 points.")
    page.get_by_role("button", name="Positions as PGN").focus()
    position = chess.pgn.read_game(io.StringIO(visit.saved("Positions as PGN")))
    assert position is not None
    assert not position.errors
    assert position.board().fullmove_number == 9
    assert "9. Ng5 cost 27 points." in position.comment
    assert len(list(position.mainline())) == 1  # the better move
    card.get_by_role("button", name="Try again").click()
    expect(page.locator("#verdict")).to_contain_text("Find a better move than 9. Ng5.")


@pytest.mark.deep
def test_coach_page_prints_alone(visit: Visit) -> None:
    page = coached(visit, game("Ann", "Bob"), 1, "Ann (1)")
    page.emulate_media(media="print")
    for hidden in ("header", "#library-list", "#library-tools", "#coach .unprinted >> nth=0"):
        expect(page.locator(hidden)).to_be_hidden()
    expect(page.locator("#coach-heading")).to_be_visible()
    page.emulate_media(media="screen")
