"""The review of a game: marks, key moves, reasons, better lines, and what happens without an engine."""

from __future__ import annotations

import io
import re
from pathlib import Path

import chess.pgn
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.games.engines import program
from tests.page.test_library import listed
from tests.page.test_match import agree, begin
from tests.page.visits import Visit
from tests.parts import part_of
from tests.processes import call, served

#: A game that was played here: White's third move gives the queen for a pawn. Its moves have evaluations up to there.
OWN = (
    '[Event "Casual game"]\n[White "You"]\n[Black "movemask-8"]\n[Result "0-1"]\n[WhiteElo "1500"]\n'
    '[BlackElo "1700"]\n[Termination "Black won by resignation"]\n\n'
    "1. e4 {[%eval 0.2]} e5 {[%eval 0.2]} 2. Qh5 {[%eval -0.2]} Nc6 {[%eval -0.2]} 3. Qxh7 {[%eval -8.0]} "
    "Rxh7 {[%eval -8.0]} 4. Nf3 Nf6 5. Bc4 d6 6. O-O 0-1\n"
)

#: A game of others: White lets Black mate, as most players of that rating would.
KID = (
    '[Event "Club night"]\n[White "kid600"]\n[Black "coach"]\n[WhiteElo "612"]\n[BlackElo "590"]\n[Result "0-1"]\n\n'
    "1. e4 e5 2. Nf3 Nc6 3. Bc4 Nd4 4. Nxe5 Qg5 5. Nxf7 Qxg2 6. Rf1 Qxe4+ 7. Be2 Nf3# 0-1\n"
)

#: A game with two moves that have no alternative, by Morphy.
OPERA = (
    "1. e4 e5 2. Nf3 d6 3. d4 Bg4 4. dxe5 Bxf3 5. Qxf3 dxe5 6. Bc4 Nf6 7. Qb3 Qe7 8. Nc3 c6 9. Bg5 b5 10. Nxb5 cxb5 "
    "11. Bxb5+ Nbd7 12. O-O-O Rd8 13. Rxd7 Rxd7 14. Rd1 Qe6 15. Bxd7+ Nxd7 16. Qb8+ Nxb8 17. Rd8# 1-0"
)

FILL = """async (count) => {
    const { keep } = await import(document.querySelector("script[src]").src.replace("main.js", "shelf.js"));
    await keep([...Array(count).keys()].map((place) => ({ id: [place, 0], played: true, asked: true,
        tags: { White: "You", Event: String(place ? place : "oldest") },
        pgn: `[White "You"]\\n[Event "${place ? place : "oldest"}"]\\n\\n1. e4 *` })));
}"""


def lost(visit: Visit) -> None:
    """A game of three moves against the network, resigned."""
    pending: list[Route] = []
    visit.page.route("**/v1/move", lambda route: pending.append(route))
    begin(visit, "White", clock="5+3")
    for own, reply in (("e2e4", "e5"), ("g1f3", "Nc6"), ("f1c4", "Nf6")):
        visit.settles()
        visit.click(own[:2], own[2:])
        visit.answers(pending, reply)
        visit.sees("Your turn.")
        visit.settles()
    agree(visit, "Resign", "Resign")
    visit.page.unroute("**/v1/move")


def test_finished_game_is_kept_reviewed_and_reopened(visit: Visit) -> None:
    page = visit.open()
    lost(visit)
    expect(page.locator("#result")).to_contain_text("In Games")
    expect(page.locator("#review-sides .chosen")).to_contain_text("You")
    visit.line("e4", "e5", "Nf3", "Nc6", "Bc4", "Nf6")
    page.get_by_role("link", name="movemask", exact=True).click()
    expect(page.get_by_role("button", name=re.compile(r"You \(1500\) .* 0-1"))).to_be_visible()  # to be reviewed
    begin(visit, "Black")
    visit.sees("Your turn.")
    page.go_back()  # to the first screen
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
    page.get_by_role("button", name=players, exact=True).click()
    expect(page.locator("#review-sides .chosen")).to_contain_text("You")
    expect(page.locator("#review-moves li")).to_have_count(3)


def test_verdict_repeats_the_service(visit: Visit, port: int) -> None:
    page = visit.open()
    visit.load(OWN)
    verdicts = page.locator("#review-moves li")
    expect(verdicts).to_have_count(6)
    counts(page, "0 inaccuracies 0 mistakes 1 blunder", "0 inaccuracies 0 mistakes 0 blunders")
    moves = call(port, "/v1/games", {"pgn": OWN, "include": ["evaluations"]})["games"][0]["moves"][::2]
    for place, move in enumerate(moves):
        button = verdicts.nth(place).locator("button")
        expect(button.locator("b")).to_have_text(f"{place + 1}. {move['san']}")
        mark = f"{move['mark'].capitalize()}, " if "mark" in move else ""
        expect(button.locator("span").first).to_have_text(f"{mark}{int(100 * move['lost'] + 1e-9)}")
        human = button.locator("span").last.inner_text()
        assert float(human.split("\N{NO-BREAK SPACE}")[0]) == pytest.approx(
            100 * move["probability"], rel=0.06, abs=0.01
        )
    page.locator("#review-moves button").nth(2).click()
    expect(page).to_have_url(re.compile("at=5"))
    verdict = page.locator("#verdict")
    expect(verdict).to_contain_text("3. Qxh7 · Blunder. It cost 43 points, by the PGN's evaluations.")
    likely = re.compile(r"players rated 1500 play it, at 2000 [\d.]+.%\. a3 was best")
    expect(verdict).to_contain_text(likely)
    expect(page.locator("#line button").nth(4)).to_have_text("Qxh7??")
    expect(page.locator("#moments .shares li")).to_have_count(5)
    expect(page.locator("#board .arrow.best")).to_have_count(1)
    page.locator("#white").fill("2000")  # another rating, another share
    expect(verdict).to_contain_text("rated 2000")
    expect(page.locator("#review-moves [aria-current]")).to_be_in_viewport()
    page.locator("header").click(position={"x": 900, "y": 20})
    page.keyboard.press("Home")
    expect(verdict).to_contain_text("Step through the game")


def test_better_line_is_played_through(visit: Visit) -> None:
    page = visit.open()
    visit.load(OWN)
    page.locator("#moments button").first.click()
    page.get_by_role("button", name="a3 was best").click()
    visit.sees("3. a3: Black to move.")
    page.locator("header").click(position={"x": 900, "y": 20})
    page.keyboard.press("ArrowRight")
    visit.sees("3\N{HORIZONTAL ELLIPSIS} a5: White to move.")
    expect(page.locator("#line .variation")).to_contain_text("a3 a5")
    expect(page.locator("#moments")).to_contain_text("3. Qxh7")  # the review stays


def test_try_again_is_judged_by_the_engine(visit: Visit) -> None:
    page = visit.open()
    visit.load(OWN)
    page.locator("#moments button").first.click()
    page.get_by_role("button", name="Try again").click()
    verdict = page.locator("#verdict")
    expect(verdict).to_contain_text("Find a better move than 3. Qxh7.")
    moves, review = (page.get_by_role("link", name=name, exact=True) for name in ("Moves", "Review"))
    moves.click()
    expect(page.locator("#bars")).to_have_text("Hidden while you look for a better move.")
    expect(page.locator("#said")).not_to_contain_text("Likeliest")
    expect(page.locator("#board .arrow")).to_have_count(0)
    review.click()
    visit.settles()
    visit.click("g1", "f3")
    expect(verdict).to_contain_text(
        "3. Nf3. Better than Qxh7, which cost 43 points. It cost nothing, by the engine at 5,000 nodes."
    )
    page.locator("#moments button").first.click()
    page.get_by_role("button", name="Try again").click()
    page.get_by_role("button", name="Show the answer").click()
    expect(verdict).to_contain_text("3. Qxh7")  # not the verdict on the move before
    expect(verdict.get_by_role("button", name="was best")).to_be_visible()
    expect(page.locator("#board .arrow.best")).to_have_count(1)
    moves.click()
    expect(page.locator("#bars button").first).to_be_visible()


def test_better_move_stands_alone_on_the_board(visit: Visit) -> None:
    """Arrows of two positions once lay on one board."""
    page = visit.open()
    visit.load(OWN)
    page.locator("#moments button").first.click()
    expect(page.locator("#board .arrow.best")).to_have_count(1)
    expect(page.locator("#board .arrow")).to_have_count(1)
    page.get_by_role("link", name="Moves", exact=True).click()
    expect(page.locator("#board .arrow.best")).to_have_count(0)
    expect(page.locator("#board .arrow").first).to_be_visible()


def test_marks_of_the_file_are_told_apart(visit: Visit) -> None:
    page = visit.open()
    visit.load("1. e4 e5 2. Nf3 $6 Nc6 *")
    expect(page.locator("#marks-file")).to_be_visible()
    visit.load(OWN)
    expect(page.locator("#marks-file")).to_be_hidden()


def test_move_after_the_end_leaves_the_review(visit: Visit) -> None:
    page = visit.open()
    visit.load(OWN)
    judged = ("0 inaccuracies 0 mistakes 1 blunder", "0 inaccuracies 0 mistakes 0 blunders")
    counts(page, *judged)
    page.locator("header").click(position={"x": 900, "y": 20})
    page.keyboard.press("End")
    visit.sees("6. O-O: Black won by resignation, 0-1.")
    visit.type_move("a6")
    visit.sees("6\N{HORIZONTAL ELLIPSIS} a6: White to move.")
    visit.settles()
    expect(page.locator("#line button").nth(4)).to_have_text("Qxh7??")
    counts(page, *judged)
    page.get_by_role("button", name="Previous position").click()
    expect(page.locator("#review-moves [aria-current]")).to_contain_text("6. O-O")
    visit.sees("6. O-O: Black won by resignation, 0-1.")


@pytest.mark.deep
def test_focus_and_scrolling_stay(visit: Visit) -> None:
    page = visit.open()
    visit.load(OWN)
    expect(page.locator("#review-sides")).to_contain_text("1 blunder")
    for button, words in (
        (page.locator("#line button").nth(1), "1\N{HORIZONTAL ELLIPSIS} e5: White to move."),
        (page.locator("#review-moves button").nth(1), "2. Qh5: Black to move."),
        (page.locator("#moments button").first, "3. Qxh7: Black to move."),
    ):
        button.press("Enter")
        visit.sees(words)
        visit.settles()
        expect(button).to_be_focused()
    verdict = page.locator("#verdict")
    for name, words in (
        ("Try again", "2\N{HORIZONTAL ELLIPSIS} Nc6"),
        ("Show the answer", "3. Qxh7"),
        ("a3 was best", "3. a3"),
    ):
        verdict.get_by_role("button", name=name).press("Enter")
        visit.sees(words)
        visit.settles()
        expect(page.locator("#verdict:focus, #verdict :focus")).to_have_count(1)
    page.get_by_role("link", name="Moves", exact=True).click()
    visit.settles()
    page.locator("#bars button").nth(1).press("Enter")
    visit.sees("3\N{HORIZONTAL ELLIPSIS}")
    visit.settles()
    expect(page.locator("#bars button").nth(1)).to_be_focused()
    page.get_by_role("link", name="Review", exact=True).click()
    page.locator("#moments button").first.focus()
    visit.load(f"1. {' '.join(['Nf3 Nf6 Ng1 Ng8'] * 20)} *")
    expect(page.locator("#line button")).to_have_count(80)
    expect(page.locator("#moments")).to_be_focused()  # it has no key moves
    visit.settles()
    page.locator("#line").evaluate("list => { list.scrollTop = 200; }")
    page.locator("#white").fill("2000")
    visit.settles()
    expect(page.locator("#white-shown")).to_have_text("2000")
    assert page.locator("#line").evaluate("list => list.scrollTop") == 200


#: Notes which live regions are written.
LISTEN = """() => {
    window.said = [];
    const watch = new MutationObserver((changes) => window.said.push(...changes.map(({ target }) => target.id)));
    for (const one of document.querySelectorAll("[role=status]")) watch.observe(one, { childList: true });
}"""


def test_live_regions_repeat_nothing(visit: Visit) -> None:
    page = visit.open()
    visit.load(OWN)
    expect(page.locator("#review-sides")).to_contain_text("1 blunder")
    page.locator("#moments button").first.click()
    expect(page.locator("#verdict")).to_contain_text("a3 was best")
    visit.settles()
    page.evaluate(LISTEN)
    page.get_by_role("link", name="Moves", exact=True).click()  # the same game is drawn again
    visit.settles()
    page.get_by_role("button", name="Flip").click()
    visit.settles()
    assert page.evaluate("window.said") == []


def test_bar_shows_evaluations_and_words_the_forecast(visit: Visit) -> None:
    page = visit.open("#position")
    expect(page.locator("#forecast")).to_contain_text(
        "Between White rated 1500 and Black rated 1500, the network expects of 100"
    )
    expect(page.locator("#value")).to_be_hidden()
    expect(page.locator("#graph")).to_be_hidden()
    visit.load(OWN)
    page.locator("#review-moves button").nth(2).click()
    expect(page.locator("#value b")).to_have_text("5")  # White's chances, whoever leads
    expect(page.locator("#graph .score")).to_have_count(1)
    expect(page.locator(".graph-legend")).to_contain_text("White's chances: the engine or the PGN")


def test_without_engine_only_rules_mark(browser: Browser, shipped_alone: Path) -> None:
    with served(shipped_alone, "--runs", "1") as (_, port):
        visit = Visit(browser, f"http://127.0.0.1:{port}")
        page = visit.open()
        visit.load(KID)
        expect(page.locator("#engine-said")).to_contain_text("The service has no engine")
        expect(page.locator("#moments ol > li")).to_have_count(1)
        expect(page.locator("#moments")).to_contain_text("7. Be2. It allows mate in one.")
        for place in ("#review-sides", "#value", ".graph-legend > :first-child"):
            expect(page.locator(place)).to_be_hidden()
        expect(page.locator("#line")).not_to_contain_text("?")
        expect(page.locator("#graph .surprise")).to_have_count(14)
        heads = page.locator("#panel-review .heads")
        assert heads.inner_text().split("\n") == ["How human it was"]
        visit.load("""[White "Ann"]\n\n1. e4 e5 2. Nf3 Nc6 *""")
        expect(page.locator("#review-moves li")).to_have_count(4)
        for heading in ("Key moves", "Surprising moves"):
            expect(page.get_by_role("heading", name=heading)).to_be_hidden()
        # Two moves without alternative and a mate, which the rules judge, once made this a clean bill.
        visit.load(OPERA)
        named = page.locator("#surprising li")
        expect(named).to_have_count(5)
        for place in ("#review-sides", "#key-moves"):
            expect(page.locator(place)).to_be_hidden()
        expect(page.locator("#review-counts")).to_be_empty()
        shares = page.locator("#review-moves button > span:last-child").all_inner_texts()
        rarest = sorted(float(share.split("\N{NO-BREAK SPACE}")[0]) for share in shares)[:5]
        said = [re.search(r"([\d.]+).% of players rated 1500 play it\.$", one) for one in named.all_inner_texts()]
        assert sorted(float(one[1]) for one in said if one) == rarest
        page.get_by_label("Whose moves").select_option("Black")
        expect(named.first).to_contain_text("\N{HORIZONTAL ELLIPSIS} ")
        assert all("\N{HORIZONTAL ELLIPSIS} " in one for one in named.all_inner_texts())
        named.last.get_by_role("button").click()
        expect(page.locator("#surprising [aria-current]")).to_have_count(1)
        visit.leave()


def test_key_moves_are_those_of_the_chosen_side(visit: Visit) -> None:
    page = visit.open()
    visit.load(OWN)
    expect(page.locator("#moments")).to_contain_text("3. Qxh7")
    page.get_by_label("Whose moves").select_option("Black")
    expect(page.locator("#moments")).to_have_text("No move of Black's cost 5 points or more.")
    expect(page.locator("#graph .moment")).to_have_count(0)


@pytest.mark.parametrize(("width", "height"), part_of([(1366, 768), (360, 740)], 1))
def test_verdict_keeps_its_height(browser: Browser, port: int, width: int, height: int) -> None:
    """A blunder's verdict once moved the graph and the tabs down."""
    visit = Visit(browser, f"http://127.0.0.1:{port}", viewport={"width": width, "height": height})
    page = visit.open()
    visit.load(OWN)
    verdict = page.locator("#verdict")
    expect(page.locator("#moments")).to_contain_text("3. Qxh7")
    before = verdict.bounding_box()
    page.locator("#moments button").first.click()
    expect(verdict).to_contain_text("a3 was best Try again")
    after = verdict.bounding_box()
    assert before
    assert after
    assert after["height"] == before["height"]
    assert verdict.evaluate("one => one.scrollHeight <= one.clientHeight")
    visit.leave()


def test_annotated_pgn_says_that_it_is_being_written(visit: Visit) -> None:
    page = visit.open()
    visit.load(OWN)
    expect(page.locator("#review-sides")).to_contain_text("1 blunder")
    page.get_by_text("Share and export").click()
    pending: list[Route] = []
    page.route("**/v1/games", lambda route: pending.append(route))
    button = page.locator("#save-annotated")
    with page.expect_request("**/v1/games"):
        button.click()
    expect(button).to_have_text("Being written\N{HORIZONTAL ELLIPSIS}")
    expect(button).to_be_disabled()
    with page.expect_download():
        pending[0].continue_()
    expect(button).to_have_text("Annotated PGN")
    expect(button).to_be_enabled()


@pytest.mark.deep
def test_clocks_of_each_position(visit: Visit) -> None:
    page = visit.open()
    moves = "1. e4 {[%clk 0:04:58]} e5 {[%clk 0:04:40]} 2. Nf3 {[%clk 0:04:31]} *"
    visit.load(f'[White "You"]\n[TimeControl "300+3"]\n\n{moves}')

    def shown(white: str, black: str) -> None:
        expect(page.get_by_label("White's clock")).to_have_text(white)
        expect(page.get_by_label("Black's clock")).to_have_text(black)

    shown("5:00", "5:00")
    page.locator("header").click(position={"x": 900, "y": 20})
    page.keyboard.press("ArrowRight")
    shown("4:58", "5:00")
    page.keyboard.press("End")
    shown("4:31", "4:40")
    visit.load("1. e4 e5 *")
    expect(page.locator("#table .clock")).to_have_count(0)


@pytest.mark.deep
def test_common_blunder_is_still_a_blunder(visit: Visit) -> None:
    """Allowing a mate in one is a blunder, whatever its probability."""
    visit.open()
    visit.load(KID)
    page = visit.page
    page.locator("#review-moves button").filter(has_text="7. Be2").click()
    expect(page.locator("#verdict")).to_contain_text(
        "Blunder. It allows mate in one. It cost 50 points, by the engine at 120,000 nodes."
    )
    expect(page.locator("#moments")).to_contain_text("7. Be2 · Blunder. It allows mate in one.")


@pytest.mark.deep
def test_stepping_through_a_review_asks_nothing(visit: Visit) -> None:
    page = visit.open()
    with page.expect_response("**/v1/policy/batch", timeout=60_000):
        visit.load(KID)
    expect(page.locator("#review-moves li")).to_have_count(14)
    visit.settles()
    page.locator("header").click(position={"x": 900, "y": 20})
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url) if "/v1/" in request.url else None)
    for _ in range(14):
        page.keyboard.press("ArrowRight")
        visit.settles()
    visit.sees("7\N{HORIZONTAL ELLIPSIS} Nf3#")
    page.keyboard.press("Home")
    visit.settles()
    visit.sees("White to move. Likeliest: e4")
    assert requests == []


@pytest.mark.deep
def test_link_to_a_finished_game_gives_its_verdicts(visit: Visit) -> None:
    """The moves of a link are UCI, and get their names from the service while the verdicts are asked for."""
    moves = "e2e4.g7g6.g1f3.f8g7.f1c4.b7b6"
    page = visit.open(f"#play?moves={moves}&you=white&White=Ann&Result=0-1&Termination=Black+won+by+resignation")
    verdicts, judged = (
        page.locator("#review-moves li"),
        [re.compile(rf"^\d\. {san} 0 ") for san in ("e4", "Nf3", "Bc4")],
    )
    expect(verdicts).to_have_text(judged)
    first = verdicts.all_inner_texts()
    assert not re.search("|".join(moves.split(".")), " ".join(first))
    page.reload()
    expect(verdicts).to_have_text(judged)
    assert verdicts.all_inner_texts() == first


@pytest.mark.deep
def test_side_under_review_belongs_to_the_game(visit: Visit) -> None:
    page = visit.open()
    visit.load(KID)
    expect(page.locator("#review-moves li")).to_have_count(14)
    page.get_by_label("Whose moves").select_option("Black")
    expect(page.locator("#review-moves li")).to_have_count(7)
    expect(page.get_by_label("Whose moves")).to_be_in_viewport()  # the choice moves nothing
    visit.load(OWN)
    expect(page.get_by_label("Whose moves")).to_have_value("white")
    expect(page.locator("#review-sides .chosen")).to_contain_text("You")


@pytest.mark.deep
def test_loaded_game_is_seen_with_its_review(browser: Browser, port: int) -> None:
    """Also after a tap far below the board of a phone. The game is of others, as a coach's is."""
    for width, height, visible in (
        (1366, 768, ("#board", "#review-sides", "#moments button >> nth=0")),
        (360, 740, ("#board", ".step >> nth=0", "#tab-review")),
        (740, 360, ("#board", ".step >> nth=0", "#tab-review")),
    ):
        visit = Visit(browser, f"http://127.0.0.1:{port}", viewport={"width": width, "height": height})
        page = visit.open()
        visit.load(KID)  # from a field below
        expect(page.locator("#review-moves li")).to_have_count(14)
        for what in visible:
            expect(page.locator(what)).to_be_in_viewport(ratio=1)
        page.locator("#review-moves button").last.click()
        expect(page.locator("#review-moves button").last).to_have_attribute("aria-current", "true")
        expect(page.locator("#board")).to_be_in_viewport(ratio=1)
        page.locator("#verdict").evaluate("one => one.scrollIntoView()")
        page.get_by_role("link", name="Moves", exact=True).click()
        expect(page.locator("#line [aria-current]")).to_have_text("Nf3#")
        page.get_by_role("link", name="Review", exact=True).click()
        expect(page.locator("#moments")).to_be_visible()
        visit.leave()


#: Holds what the engine finds back: the report, then the first half, then the rest, each until `goOn` is called.
HOLD = """() => {
    const asked = window.fetch;
    window.fetch = async (address, options) => {
        const answer = await asked(address, options);
        if (!JSON.parse(options?.body ?? "{}").include?.includes("evaluations")) return answer;
        const lines = (await answer.text()).split(/(?<=\\n)/), pauses = [0, 1, Math.ceil(lines.length / 2)];
        return new Response(new ReadableStream({ async start(stream) {
            for (const [place, line] of lines.entries()) {
                if (pauses.includes(place)) await new Promise((done) => {
                    window.goOn = done;
                    document.body.dataset.held = "true";
                });
                stream.enqueue(new TextEncoder().encode(line));
            }
            stream.close();
        } }), answer);
    };
}"""


def goes_on(page: Page) -> None:
    """Lets the next part of what `HOLD` holds back through."""
    expect(page.locator("body")).to_have_attribute("data-held", "true")
    page.evaluate("() => { delete document.body.dataset.held; window.goOn(); }")


@pytest.mark.parametrize(("width", "height"), part_of([(1366, 768), (360, 740)], 2))
def test_layout_stands_still_beside_the_engine(browser: Browser, port: int, width: int, height: int) -> None:
    """Who clicks on a move gets it, not another that has come under the pointer meanwhile."""
    visit = Visit(browser, f"http://127.0.0.1:{port}", viewport={"width": width, "height": height})
    page = visit.open()
    page.evaluate(HOLD)
    visit.load(KID)
    expect(page.locator("#line button")).to_have_count(14)
    expect(page.locator("#moments")).to_have_text("The game is being read.")
    before = places(page)
    goes_on(page)
    expect(page.locator("#review-moves li")).to_have_count(14)
    visit.settles()
    assert places(page) == before
    expect(page.locator("#review-counts")).to_have_text("0 of 14 positions judged.")
    goes_on(page)
    expect(page.locator("#graph .known")).to_have_attribute("d", re.compile(r"^M0,0H\d"))  # it begins at the start
    assert places(page) == before
    expect(page.locator("#review-counts")).to_have_text(re.compile(r"^\d of 14 positions judged\.$"))
    expect(page.locator("#moments")).to_contain_text("7. Be2. It allows mate in one.")  # by the rules
    goes_on(page)
    counts(page, "0 inaccuracies 0 mistakes 1 blunder", "0 inaccuracies 0 mistakes 0 blunders")
    expect(page.locator("#review-sides .figure")).to_have_text([re.compile(r"^\d\d.%$"), re.compile(r"^100.%$")])
    expect(page.locator("#review-summary")).to_have_text(re.compile(r"^7\. Be2 cost most, "))
    expect(page.locator("#moments")).to_contain_text("7. Be2 · Blunder.")
    assert places(page) == before
    visit.leave()


#: Cuts what the engine finds after the first half, as when it dies; once.
CUT = """() => {
    const asked = window.fetch;
    window.fetch = async (address, options) => {
        const answer = await asked(address, options);
        if (!JSON.parse(options?.body ?? "{}").include?.includes("evaluations")) return answer;
        window.fetch = asked;
        const lines = (await answer.text()).split(/(?<=\\n)/);
        return new Response(lines.slice(0, Math.ceil(lines.length / 2)).join(""), answer);
    };
}"""


def test_review_counts_only_what_was_judged(visit: Visit) -> None:
    """A dead engine once gave a game full of blunders a clean bill."""
    page = visit.open()
    page.evaluate(CUT)
    visit.load(KID)
    expect(page.locator("#review-counts")).to_have_text("9 of 14 positions judged.")
    counts(page, *["0 inaccuracies 0 mistakes 0 blunders"] * 2)
    expect(page.locator("#engine-said")).to_have_text("The engine has stopped. It is asked again in a minute.")
    expect(page.locator("#review-moves")).to_contain_text("not judged")
    page.get_by_role("button", name="Judge the rest").click()
    counts(page, "0 inaccuracies 0 mistakes 1 blunder", "0 inaccuracies 0 mistakes 0 blunders")
    expect(page.locator("#review-counts")).to_be_empty()
    expect(page.get_by_role("button", name="Judge the rest")).to_be_hidden()
    expect(page.locator("#panel-review")).not_to_contain_text("not judged")


def test_review_of_a_dead_engine_claims_nothing(browser: Browser, shipped_alone: Path, tmp_path: Path) -> None:
    with served(shipped_alone, "--runs", "1", "--engine", program(tmp_path, "dies")) as (_, port):
        visit = Visit(browser, f"http://127.0.0.1:{port}")
        page = visit.open()
        visit.load("1. e4 e5 2. Qh5 Ke7 3. Qxe5# 1-0")  # the rules judge the mate
        expect(page.locator("#review-counts")).to_have_text("1 of 5 positions judged.")
        expect(page.locator("#moments")).to_contain_text("2… Ke7. It allows mate in one.")
        again = page.get_by_role("button", name="Judge the rest")
        again.click()
        expect(page.locator("#engine-said")).to_have_text(
            "The engine is resting, or busy. It is asked again in a minute."
        )
        expect(again).to_be_disabled()
        expect(page.locator("#review-counts")).to_have_text("1 of 5 positions judged.")  # what was judged stays
        visit.leave()


def counts(page: Page, white: str, black: str) -> None:
    """Waits for the marks of both sides."""
    expect(page.locator("#review-sides .counts")).to_have_text([white, black])


def places(page: Page) -> list[tuple[float, float] | None]:
    """Where what is clicked on stands: the moves, the steps, the tabs and the key moves."""
    boxes = [page.locator(what).bounding_box() for what in ("#line", "#back", "#tab-review", "#moments")]
    return [box and (box["x"], box["y"]) for box in boxes]


def test_next_game_keeps_nothing_of_the_last(visit: Visit) -> None:
    page = visit.open()
    black = OWN.replace('"You"', '"x"').replace('"movemask-8"', '"You"')
    visit.load(black)
    expect(page.locator("#below .player")).to_contain_text("You")  # Black is below
    visit.load(OWN)
    expect(page.locator("#above .player")).to_contain_text("movemask-8")
    expect(page.locator("#below .player")).to_contain_text("You")  # now White is
    expect(page.locator("#black-shown")).to_have_text("1700")
    page.get_by_role("button", name="New game").click()
    expect(page.locator("#black-shown")).to_have_text("1500")
    expect(page.get_by_label("PGN", exact=True)).to_have_value("")
    expect(page.locator("#below .player")).to_have_text("White")


@pytest.mark.parametrize("question", part_of(["games", "games/split"], 2))  # what is asked about a pasted text
def test_slow_reading_leaves_the_board_to_later_games(visit: Visit, question: str) -> None:
    page = visit.open()
    pending: list[Route] = []
    address = f"**/v1/{question}"
    page.route(address, lambda route: route.continue_() if pending else pending.append(route))
    with page.expect_request(address):
        visit.load(OWN)
    visit.load(KID)
    expect(page.locator("#above .player")).to_contain_text("coach")
    with page.expect_response(address):
        pending[0].continue_()
    page.wait_for_timeout(1000)  # for what should not happen
    expect(page.locator("#above .player")).to_contain_text("coach")


def test_link_keeps_names_result_and_event(visit: Visit, browser: Browser) -> None:
    page = visit.open()
    visit.load(KID)
    expect(page).to_have_url(re.compile("Event=Club"))
    other = Visit(browser, visit.url)
    theirs = other.open(page.url.removeprefix(visit.url + "/"))
    expect(theirs.locator("#below .player")).to_contain_text("kid600612")
    expect(theirs.locator("#above .player")).to_contain_text("coach590")
    theirs.get_by_text("Share and export").click()
    text = other.saved("Download PGN")
    assert '[Event "Club night"]' in text
    assert '[Result "0-1"]' in text
    other.leave()


@pytest.mark.deep
def test_review_by_a_network_of_one_rating(visit: Visit) -> None:
    page = visit.open("#play?model=zz-1900")
    visit.load(OWN)
    expect(page.locator("#review-moves li")).to_have_count(6)
    page.locator("#review-moves button").first.click()
    expect(page.locator("#verdict")).to_contain_text("players play it.")
    expect(page.locator("#moments .shares")).to_have_count(0)


@pytest.mark.deep
def test_oldest_of_a_thousand_games_is_dropped(visit: Visit) -> None:
    page = visit.open()
    page.evaluate(FILL, 1000)
    page.reload()
    lost(visit)
    expect(page.locator("#result")).to_contain_text("In Games")
    page.get_by_role("link", name="Games", exact=True).click()
    expect(page.locator("#library-count")).to_contain_text("1,000 of 1,000 games read")
    page.reload()
    visit.settles()
    assert listed(page)[0][0].startswith("You (1500)")  # the latest first
    page.get_by_label("Find").fill("oldest")
    expect(page.locator("#library-found")).to_have_text("0 games found")


@pytest.mark.deep
def test_full_storage_is_reported_after_the_game(own_visit: Visit) -> None:
    page = own_visit.open()
    session = page.context.new_cdp_session(page)
    session.send("Storage.overrideQuotaForOrigin", {"origin": own_visit.url, "quotaSize": 1})
    lost(own_visit)
    expect(page.locator("#result")).to_contain_text("Your browser does not store it. Copy the PGN to keep it.")
