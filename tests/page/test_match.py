"""A game against the network: moves, clocks, end, tabs and reloads."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from typing import Any

import chess
import chess.pgn
import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from tests.page.test_play import address
from tests.page.visits import Visit
from tests.processes import until

#: Events as the page's reducer gets them, in any number of games; `key: true` stands for the position of the game.
RUN = """async (games) => {
    const from = (name) => import(document.querySelector("script[src]").src.replace("main.js", name));
    const [{ reduce }, { START }, match, { readHash }, { Tree }] =
        await Promise.all(["reducer.js", "state.js", "match.js", "address.js", "tree.js"].map(from));
    const whole = (event, state) => ({ ...event, ...(event.key ? { key: match.keyOf(state.match) } : {}),
        ...(event.hash ? readHash(event.hash) : {}), ...(event.match ? { match: match.newMatch(event.match) } : {}),
        ...(event.pgn ? { tree: new Tree().grown(event.pgn) } : {}) });
    return games.map((events) => events.reduce((state, event) => reduce(state, whole(event, state)), START).match);
}"""


def opened(visit: Visit, *, onto: bool = False) -> Locator:
    """The form of a new game; `onto` the position on the board."""
    button = visit.page.get_by_role("button", name="Play from here" if onto else "New game")
    if button.is_visible():
        button.click()
    return visit.page.get_by_role("form", name="Play from this position" if onto else "Play somebody of your rating")


def begin(visit: Visit, side: str, *, rating: int = 1500, clock: str = "None", onto: bool = False) -> None:
    """Begins a game against the network; `onto` the position on the board."""
    door = opened(visit, onto=onto)
    door.get_by_label(side, exact=True).check()
    door.get_by_role("slider", name="Rating").fill(str(rating))
    if clock != "None":
        choice = door.get_by_label(clock, exact=True)
        if not choice.is_visible():
            door.get_by_text("More:").click()
        choice.check()
    door.get_by_role("button", name="Start").click()
    expect(door).to_be_hidden()
    visit.settles()


def time_passes(visit: Visit, until: Callable[[], bool]) -> None:
    """Lets the browser's clock run until something has come; the service answers meanwhile, in its own time."""
    for _ in range(2000):
        if until():
            return
        visit.page.clock.run_for(500)
    raise AssertionError("it has not come in a thousand seconds of the browser's clock")


def agree(visit: Visit, button: str, yes: str) -> None:
    """Presses a button that ends the game, and confirms it."""
    visit.page.get_by_role("button", name=button, exact=True).click()
    visit.page.locator("#ask").get_by_role("button", name=yes).click()


def test_game_hides_hints_until_asked(visit: Visit) -> None:
    page = visit.open()
    begin(visit, "Black", rating=1700)
    expect(page.locator("#line button")).to_have_count(1)
    visit.settles()
    assert visit.square("h8").bounding_box()["y"] > visit.square("h1").bounding_box()["y"]  # type: ignore[index]
    visit.sees("Your turn.")
    for hidden in (".arrow", ".move:visible", "#value span", "#graph .score", "#line [title]", ".value:visible"):
        expect(page.locator(hidden)).to_have_count(0)
    page.get_by_role("button", name="Show hints").click()
    expect(page.get_by_role("button", name="Hide hints")).to_be_visible()
    expect(page.locator(".arrow").first).to_be_visible()
    page.locator(".move").first.click()
    expect(page.locator("#line button")).to_have_count(3)
    visit.settles()
    moves = re.findall(r"moves=([\w.]+)", page.url)[0].split(".")
    board = chess.Board()
    for uci in moves:
        board.push_uci(uci)  # raises for a move that is not legal
    page.keyboard.press("u")
    expect(page.locator("#line button")).to_have_count(1)
    expect(page.get_by_role("button", name="Take back")).to_be_disabled()  # that move is the network's
    page.get_by_role("button", name="Abort").click()
    visit.sees("Likeliest")
    visit.open(address("8/8/4k3/8/8/4K3/8/8 w - - 0 1"))
    visit.sees("Draw by insufficient material, ½-½.")


@pytest.mark.deep
def test_every_view_hides_hints_until_asked(visit: Visit) -> None:
    page = visit.open()
    begin(visit, "White")
    visit.sees("Your turn.")
    hints = page.locator(
        "#board .arrow, #chart svg, #chart-table table, #surprise:not(:empty), #lenses article, #value span"
    )
    for view, hint in (("ratings", "#chart svg"), ("lens", "#lenses article")):
        visit.turns_to(page.url.removeprefix(visit.url + "/").replace("play", view))
        expect(page.locator(f"#panel-{view}")).to_contain_text("Hidden while you play.")
        expect(hints).to_have_count(0)
        visit.click("e2", "e4")  # the game goes on
        visit.sees("Your turn.")
        page.keyboard.press("u")
        page.get_by_role("button", name="Show hints").click()
        expect(page.locator(hint)).to_be_visible()
        expect(page.locator("#board .arrow").first).to_be_visible()
        page.get_by_role("button", name="Hide hints").click()
        expect(hints).to_have_count(0)
        visit.turns_to(page.url.removeprefix(visit.url + "/").replace(view, "play"))


def test_won_game_is_kept_reviewed_and_repeated(visit: Visit) -> None:
    page = visit.open(address("k7/8/1K6/8/8/8/8/7R w - - 0 1", flip="1"))
    begin(visit, "White", onto=True)
    page.locator("#board .movable").first.wait_for()
    visit.click("h1", "h8")
    expect(page.locator("#result")).to_contain_text("You won")
    expect(page.locator("#result")).to_contain_text("White won by checkmate")
    page.reload()
    visit.settles()
    expect(page.locator("#result")).to_be_visible()
    page.locator("#result").get_by_role("button", name="Copy PGN").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    played = chess.pgn.read_game(io.StringIO(page.evaluate("navigator.clipboard.readText()")))
    assert played
    headers = played.headers
    assert headers["Result"] == "1-0"
    assert (headers["White"], headers["BlackElo"]) == ("Player", "1500")
    assert headers["Termination"] == "White won by checkmate"
    assert re.fullmatch(r"movemask-\d+", headers["Black"])
    assert re.fullmatch(r"\d{4}\.\d\d\.\d\d", headers["Date"])
    assert played.end().board().is_checkmate()
    expect(page.locator("#value b")).to_have_text("100")
    expect(page.locator("#above .player")).to_have_text(re.compile("movemask-.*1500"))
    expect(page.locator("#below .player")).to_contain_text("You")
    begin(visit, "White")
    visit.click("e2", "e4")
    expect(page.locator("#line button")).to_have_count(2)
    agree(visit, "Resign", "Resign")
    expect(page.locator("#result")).to_contain_text("You lost")
    page.get_by_role("button", name="Rematch").click()  # with the sides changed
    expect(page.locator("#line button")).to_have_count(1)
    visit.sees("Your turn.")


def test_premove_is_played_once_legal(visit: Visit) -> None:
    pending: list[Route] = []
    page = visit.open()
    begin(visit, "White")
    page.route("**/v1/move", lambda route: pending.append(route))  # the network thinks for as long as the test wants
    visit.click("e2", "e4")
    visit.sees("You play e4.")
    visit.drag("d2", "d4")
    visit.sees("Next: d4, if it is legal.")
    assert page.locator(".premove").evaluate_all("all => all.map(one => one.dataset.square).sort()") == ["d2", "d4"]
    visit.answers(pending, "e5")
    visit.line("e4", "e5", "d4")
    visit.sees("You play d4.")
    visit.click("b1", "c3")
    visit.sees("Next: Nc3, if it is legal.")
    visit.click("a5")  # an empty square takes it back
    expect(page.locator(".premove")).to_have_count(0)
    visit.click("d4", "c5")  # only if there is something to take
    visit.answers(pending, "exd4")
    visit.sees("The move that you made ahead is not legal here.")
    visit.line("e4", "e5", "d4", "exd4")
    expect(page.locator("#above .material")).to_have_text("+1")
    page.unroute("**/v1/move")


def test_clock_runs_out_and_reload_gives_no_time(own_visit: Visit) -> None:
    page = own_visit.open()
    page.clock.install()
    begin(own_visit, "White", clock="3+2")
    yours, its = page.get_by_role("timer", name="White's clock"), page.get_by_role("timer", name="Black's clock")
    expect(yours).to_have_text("3:00")
    own_visit.click("e2", "e4")
    time_passes(own_visit, lambda: page.locator("#line button").count() == 2)
    expect(its).to_have_text("3:00")  # the first move of each side is free
    own_visit.sees("Your turn.")
    own_visit.settles()
    page.clock.run_for(61_000)
    expect(yours).to_have_text(re.compile(r"1:5\d"))
    page.reload()
    own_visit.settles()
    expect(yours).to_have_text(re.compile(r"1:5\d"))
    page.clock.run_for(120_000)
    expect(page.locator("#result")).to_contain_text("Black won on time")
    expect(yours).to_have_text("0:00.0")


@pytest.mark.deep
def test_draw_offer_is_accepted_only_at_half_a_point(visit: Visit) -> None:
    pending: list[Route] = []
    page = visit.open()
    begin(visit, "White")
    page.route("**/v1/move", lambda route: pending.append(route))
    agree(visit, "Offer draw", "Offer draw")
    visit.sees("The network declines: it is too early for a draw.")
    for own, reply in (("g1f3", "Nf6"), ("f3g1", "Ng8")) * 2:
        visit.settles()  # a click before the legal moves are known chooses nothing
        visit.click(own[:2], own[2:])
        visit.answers(pending, reply)
        visit.sees("Your turn.")
    agree(visit, "Claim draw", "Claim draw")
    expect(page.locator("#result")).to_contain_text("Draw by threefold repetition")
    page.unroute("**/v1/move")


@pytest.mark.deep
def test_strength_interpolates_rating_and_temperature(visit: Visit) -> None:
    page = visit.open("#play?model=zz-1900")
    door = opened(visit)
    expect(door.get_by_label("as strong as")).to_be_hidden()  # of this network nobody has measured it
    expect(page.get_by_role("slider", name="Rating", exact=True)).to_be_hidden()  # and it takes no ratings
    expect(page.locator("#human-words")).to_have_text("Plays as zz-1900 does, which knows one rating only.")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#above .player")).to_have_text("zz-1900")
    page.get_by_role("button", name="Abort").click()
    visit.open("#play?model=zz-strength")
    expect(door.get_by_role("slider", name="Rating")).to_have_value("1500")  # which the hidden slider says nothing of
    door.get_by_text("More:").click()
    page.get_by_label("as strong as").check()
    expect(page.get_by_role("slider", name="Strength")).to_have_attribute("max", "1400")
    page.get_by_role("slider", name="Strength").fill("1300")
    page.get_by_label("Your own rating").fill("1350")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#above .player")).to_contain_text("1300")
    expect(page.locator("#black-shown")).to_have_text("1300")  # the review is of that player too
    with page.expect_request("**/v1/move") as request:
        visit.click("e2", "e4")
    sent: Any = request.value.post_data_json
    assert (sent["elo"], sent["temperature"]) == ({"self": 1400, "opponent": 1400}, 0.75)


def clocked(chance: random.Random, you: str) -> list[dict[str, Any]]:
    """The events of a game of 3+2 that is 20 moves long; the network may be slow to answer."""
    now, events = 1000.0, []
    setting = {"id": "a", "you": you, "control": "3+2", "rating": 1500, "level": {"strength": 0, "rating": 1500}}
    events.append({"type": "begin", "match": setting, "now": now})
    for ply in range(40):
        events.append({"type": "judged", "key": True, "fen": chess.STARTING_FEN, "now": (now := now + 50)})
        thought = chance.uniform(0, 9000)
        waited = thought if (ply % 2 == 0) == (you == "white") else max(thought, chance.uniform(0, 60_000))
        event = {
            "type": "move",
            "key": True,
            "uci": f"a{ply}",
            "san": "a",
            "thought": thought,
            "now": (now := now + waited),
        }
        events.append(event)
    return events


def elsewhere(chance: random.Random, now: float) -> dict[str, Any]:
    """Something that a player does beside the game."""
    addresses = ("#play?moves=a0&game=a", "#ratings?game=a&moves=a0.a1&at=1", "#lens?fen=x")
    choices: list[dict[str, Any]] = [
        *({"type": "view", "view": view} for view in ("play", "ratings", "lens", "leakage", "games")),
        *({"type": "step", "at": at} for at in (0, 3, 99)),
        *({"type": "address", "hash": text} for text in addresses),
        {"type": "set", "name": "flip", "value": True},
        {"type": "set", "name": "model", "value": "another"},
        {"type": "set", "name": "white", "value": 800},
        {"type": "load", "pgn": ["d2d4", "d7d5"]},
        {"type": "play", "uci": "e2e4", "san": "e4", "after": "never"},
        {"type": "return"},
        {"type": "flag"},
    ]
    return {**chance.choice(choices), "now": now}


def test_clocks_ignore_what_the_board_shows(visit: Visit) -> None:
    chance = random.Random(49)
    page = visit.open()
    for you in ("white", "black") * 10:
        events = clocked(chance, you)
        mixed: list[dict[str, Any]] = []
        for event in events:
            last = mixed[-1]["now"] if mixed else 0.0
            if mixed:
                mixed += [elsewhere(chance, chance.uniform(last, event["now"])) for _ in range(chance.randrange(3))]
            mixed.append(event)
        plain, other = page.evaluate(RUN, [events, mixed])
        assert plain == other
        mover = {"white": 0, "black": 1}
        for side, place in mover.items():
            moves = [event for event in events if event["type"] == "move"][2:]  # each side's first is free
            spent = 0.0
            for event in moves[place::2]:
                judged = events[events.index(event) - 1]
                spent += event["now"] - judged["now"] if side == you else event["thought"]
            assert plain["left"][side] == pytest.approx(180_000 + 2000 * len(moves[place::2]) - spent)


@pytest.mark.deep
def test_game_goes_on_while_player_looks_elsewhere(own_visit: Visit) -> None:
    page = own_visit.open()
    page.clock.install()
    begin(own_visit, "White", clock="3+2")
    moves, replies = page.locator("#line button"), page.get_by_role("timer", name="Black's clock")

    own_visit.click("e2", "e4")
    time_passes(own_visit, lambda: moves.count() == 2)
    own_visit.settles()
    own_visit.click("g1", "f3")
    page.keyboard.press("ArrowLeft")
    own_visit.sees("You are looking back. The game is 1 move further on.")
    time_passes(own_visit, lambda: moves.count() == 4)  # the network replied all the same, and the board shows it
    own_visit.sees("Your turn.")
    assert page.title().startswith("Your turn")
    own_visit.settles()
    own_visit.click("b1", "c3")
    page.get_by_text("More", exact=True).click()
    page.get_by_role("link", name="Leakage").click()
    going = page.get_by_role("region", name="Your game")
    time_passes(own_visit, lambda: "It is your turn." in going.inner_text())
    expect(going.get_by_role("timer")).to_have_text(re.compile(r"3:0\d|2:5\d"))
    going.get_by_role("button", name="Back to the game").click()
    expect(moves).to_have_count(6)
    expect(replies).to_have_text(re.compile(r"3:0\d|2:[345]\d"))


@pytest.mark.deep
def test_running_clock_sends_no_request(own_visit: Visit) -> None:
    """Ten times a second, while the board shows another position or there is no board."""
    requests: list[str] = []
    page = own_visit.open()
    page.clock.install()
    begin(own_visit, "White", clock="3+2")
    own_visit.click("e2", "e4")
    time_passes(own_visit, lambda: page.locator("#line button").count() == 2)
    own_visit.settles()
    page.on("request", lambda request: requests.append(request.url))
    going = page.get_by_role("region", name="Your game").get_by_role("timer")
    for view in ("#leakage", "#games", "#ratings?moves=d2d4", "#lens?moves=d2d4"):
        own_visit.turns_to(view)
        page.wait_for_load_state("networkidle")
        requests.clear()
        before = going.inner_text()
        page.clock.run_for(3000)
        expect(going).not_to_have_text(before)
        own_visit.settles()
        assert len(requests) < 20, requests  # a view that is due may ask anew, once


@pytest.mark.deep
def test_other_position_fits_window_during_game(visit: Visit) -> None:
    page = visit.open()
    begin(visit, "White")
    visit.turns_to("#play?fen=8/8/8/4k3/8/4K3/4P3/8 w - - 0 1")
    expect(page.get_by_role("region", name="Your game")).to_be_visible()
    expect(page.locator("#below .player")).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="Back to the game").click()
    visit.sees("You play White.")


@pytest.mark.deep
def test_crashed_page_gives_no_time(own_visit: Visit) -> None:
    """As a phone ends one in the background; the page that comes back counts its time from anew."""
    own_visit.page.add_init_script("""
        addEventListener("pagehide", (event) => event.stopImmediatePropagation(), true);
        const now = performance.now.bind(performance), open = sessionStorage.getItem("open") ? 0 : 3600_000;
        performance.now = () => now() + open;
    """)
    page = own_visit.open()
    begin(own_visit, "White", clock="3+2")
    own_visit.click("e2", "e4")
    own_visit.sees("Your turn.")
    own_visit.settles()
    yours = page.get_by_role("timer", name="White's clock")
    expect(yours).to_have_text(re.compile(r"2:5[0-8]"))
    page.evaluate("""() => {
        Object.defineProperty(document, "hidden", { value: true });
        document.dispatchEvent(new Event("visibilitychange"));
        sessionStorage.setItem("open", "before");
    }""")
    page.reload()
    own_visit.settles()
    expect(yours).to_have_text(re.compile(r"^2:[45]\d$"))


@pytest.mark.deep
def test_game_of_closed_tab_is_offered_again(own_visit: Visit) -> None:
    first = own_visit.another_tab()
    first.open()
    begin(first, "White", clock="3+2")
    first.click("e2", "e4")
    first.sees("Your turn.")
    first.settles()
    expect(first.page.get_by_role("timer", name="White's clock")).to_have_text(re.compile(r"2:5[0-8]"))
    played = first.page.locator("#line button").all_inner_texts()
    first.page.close()

    page = own_visit.open()
    offer = page.get_by_role("region", name="Your game")
    expect(offer).to_contain_text("You have an unfinished game, here or in another tab.")
    expect(page.locator("#line button")).to_have_count(0)
    offer.get_by_role("button", name="Continue the game").click()
    own_visit.line(*played)
    own_visit.sees("Your turn.")
    own_visit.settles()
    expect(offer).to_be_hidden()
    expect(page.get_by_role("timer", name="White's clock")).to_have_text(re.compile(r"2:[45]\d"))
    own_visit.click("d2", "d4")
    own_visit.sees("Your turn.")
    page.reload()
    own_visit.settles()
    expect(page.locator("#line button")).to_have_count(4)
    agree(own_visit, "Resign", "Resign")
    expect(page.locator("#result")).to_contain_text("You lost")
    later = own_visit.another_tab()
    later.open()
    expect(later.page.get_by_role("region", name="Your game")).to_be_hidden()


@pytest.mark.deep
def test_game_is_played_in_one_tab(own_visit: Visit) -> None:
    """The last that continued it, or a copy of the tab, which has its session."""
    page = own_visit.open()
    begin(own_visit, "White")
    own_visit.click("e2", "e4")
    own_visit.sees("Your turn.")
    second = own_visit.another_tab()
    second.open()
    second.page.get_by_role("button", name="Continue the game").click()
    second.sees("Your turn.")
    second.settles()
    expect(page.get_by_role("button", name="Resign")).to_be_hidden()
    expect(page.get_by_role("region", name="Your game")).to_contain_text(
        "You have an unfinished game, here or in another tab."
    )
    expect(page.locator("#line button")).to_have_count(0)  # nor what would be likely in it
    second.click("d2", "d4")
    second.sees("Your turn.")
    page.get_by_role("button", name="Continue the game").click()
    expect(page.locator("#line button")).to_have_count(4)
    expect(second.page.get_by_role("button", name="Resign")).to_be_hidden()

    own_visit.settles()
    read = "sessionStorage.getItem('movemask-session')"
    until(lambda: page.evaluate(f"JSON.parse({read}).match?.moves.length") == 4, "the session is kept")
    session = page.evaluate(read)
    copied = own_visit.another_tab()
    copied.page.goto(f"{own_visit.url}/livez")
    copied.page.evaluate("kept => sessionStorage.setItem('movemask-session', kept)", session)
    copied.open()
    copied.page.get_by_role("button", name="Back to the game").click()
    copied.sees("Your turn.")
    expect(page.get_by_role("button", name="Resign")).to_be_hidden()


def test_game_given_up_in_another_tab_ends(own_visit: Visit) -> None:
    page = own_visit.open()
    begin(own_visit, "White")
    own_visit.click("e2", "e4")
    own_visit.sees("Your turn.")
    other = own_visit.another_tab()
    other.open()
    agree(other, "Give it up", "Give it up")
    expect(page.get_by_role("button", name="Resign")).to_be_hidden()
    expect(page.locator("#line button")).to_have_count(0)
    own_visit.settles()
    other.open()
    expect(other.page.get_by_role("region", name="Your game")).to_be_hidden()


@pytest.mark.deep
def test_unfinished_game_stays_until_given_up(own_visit: Visit) -> None:
    """Here one whose network is gone, as after an update of the service. A new game takes nothing from it."""
    first = own_visit.another_tab()
    first.open()
    begin(first, "Black")
    first.sees("Your turn.")
    first.page.close()
    page = own_visit.open()
    going = page.get_by_role("region", name="Your game")
    page.evaluate("""() => Object.entries(localStorage).filter(([key]) => key.startsWith("movemask-game-"))
        .forEach(([key, game]) => localStorage.setItem(key, game.replace(/movemask-\\d+/, "gone")))""")
    going.get_by_role("button", name="Continue the game").click()
    own_visit.is_told("There is no model gone here any more, so this game cannot be continued.")
    begin(own_visit, "White")
    expect(going).to_be_hidden()
    page.get_by_role("button", name="Abort").click()
    own_visit.sees("Likeliest")
    agree(own_visit, "Give it up", "Give it up")
    expect(going).to_be_hidden()
    page.reload()
    own_visit.settles()
    expect(going).to_be_hidden()


@pytest.mark.deep
def test_other_view_gives_no_time(own_visit: Visit) -> None:
    page = own_visit.open()
    page.clock.install()
    begin(own_visit, "White", clock="3+2")
    own_visit.click("e2", "e4")
    time_passes(own_visit, lambda: page.locator("#line button").count() == 2)
    own_visit.sees("Your turn.")
    own_visit.settles()
    page.clock.run_for(20_000)
    yours = page.get_by_role("timer", name="White's clock")
    page.get_by_role("link", name="Games", exact=True).click()
    own_visit.settles()
    page.get_by_role("link", name="Play", exact=True).click()
    own_visit.settles()
    page.clock.run_for(1000)
    expect(yours).to_have_text(re.compile(r"2:[123]\d"))


def test_finished_game_opens_in_review(visit: Visit) -> None:
    pending: list[Route] = []
    page = visit.open()
    begin(visit, "White")
    page.route("**/v1/move", lambda route: pending.append(route))
    for own, reply in (("e2e4", "e5"), ("g1f3", "d6"), ("f1c4", "h6")):
        visit.settles()
        visit.click(own[:2], own[2:])
        visit.answers(pending, reply)
        visit.sees("Your turn.")
    agree(visit, "Resign", "Resign")
    expect(page.locator("#opening")).to_have_text("C41 Philidor Defense")
    expect(page.locator("#moments")).to_be_visible()
    expect(page.locator("#graph .surprise")).to_have_count(6)
    page.unroute("**/v1/move")
    page.set_viewport_size({"width": 1366, "height": 768})
    box = page.locator("#key-moves").bounding_box()
    page.set_viewport_size({"width": 1280, "height": 900})
    assert box
    assert box["y"] < 540, "the key moves begin in a small window"


#: Whether a square has the ring of a capture, by its name.
RINGS = """() => Object.fromEntries([...document.querySelectorAll("#board .target")].map((square) =>
    [square.dataset.square, getComputedStyle(square, "::after").borderTopWidth !== "0px"]))"""


@pytest.mark.deep
def test_only_captures_have_rings(visit: Visit) -> None:
    page = visit.open("#position")
    visit.click("e2")
    assert page.evaluate(RINGS) == {"e3": False, "e4": False}
    visit.click("e4")
    visit.sees("Black to move")
    visit.drag("d7", "d5")
    visit.sees("White to move")
    page.keyboard.press("f")  # other squares
    visit.settles()
    visit.click("e4")
    assert page.evaluate(RINGS) == {"e5": False, "d5": True}


def test_error_is_shown_until_next_move(visit: Visit) -> None:
    page = visit.open()
    visit.load("")
    visit.is_told("paste a FEN or a PGN first")
    begin(visit, "White")
    expect(page.get_by_role("alert")).to_be_hidden()
    visit.type_move("Nf9")
    visit.is_told("Not a legal move here: Nf9")
    visit.click("e2", "e4")
    visit.sees("e4.")
    expect(page.get_by_role("alert")).to_be_hidden()


def test_skip_link_leads_into_game(visit: Visit) -> None:
    page = visit.open()
    begin(visit, "White")
    page.get_by_role("link", name="Skip to the moves").press("Enter")
    expect(page.locator("#said")).to_be_focused()


def test_resign_and_draw_ask_first(visit: Visit) -> None:
    page = visit.open()
    begin(visit, "White")
    visit.click("e2", "e4")
    visit.sees("Your turn.")
    for button in ("Resign", "Offer draw"):
        page.get_by_role("button", name=button).dblclick()
        page.locator("#ask").get_by_role("button", name="Cancel").click()
    expect(page.locator("#result")).to_be_hidden()
    visit.sees("Your turn.")
    page.get_by_role("button", name="Resign").click()
    page.keyboard.press("Enter")  # the safe answer has the focus
    expect(page.locator("#result")).to_be_hidden()


def test_aborted_game_leaves_nothing(visit: Visit) -> None:
    page = visit.open()
    pending: list[Route] = []
    page.route("**/v1/move", lambda route: pending.append(route))
    begin(visit, "Black")
    visit.answers(pending, "e4")
    visit.sees("Your turn.")
    page.get_by_role("button", name="Abort").click()
    visit.sees("The game is aborted. White to move.")
    expect(page.locator("#below .player")).to_have_text("White")
    visit.line()
    visit.click("d2", "d4")
    visit.sees("1. d4: Black to move.")


@pytest.mark.deep
def test_finished_game_keeps_moves_in_address(visit: Visit, browser: Browser) -> None:
    page = visit.open()
    begin(visit, "White")
    visit.click("e2", "e4")
    visit.sees("Your turn.")
    agree(visit, "Resign", "Resign")
    visit.sees("Black won by resignation, 0-1.")
    moves = page.locator("#line button")
    expect(page.get_by_role("button", name="Take back")).to_be_disabled()
    page.keyboard.press("u")
    page.keyboard.press("u")
    expect(page).to_have_url(re.compile("at=0"))
    expect(moves).to_have_count(2)
    page.keyboard.press("End")
    visit.settles()
    other = Visit(browser, visit.url)
    page = other.open(page.url.removeprefix(visit.url + "/"))
    other.sees("Black won by resignation, 0-1.")
    expect(page.get_by_role("button", name="Resign")).to_be_hidden()
    expect(page.locator("#below .player")).to_contain_text("Player")
    expect(page.locator("#review-sides .chosen")).to_contain_text("White")
    expect(page.locator("#above .player")).to_contain_text(re.compile(r"movemask-\d+"))
    other.leave()


@pytest.mark.deep
def test_opponent_keeps_its_model(visit: Visit) -> None:
    """Whatever the player changes meanwhile: the ratings beside the hints, or the model."""
    page = visit.open("#play?model=movemask-8")
    begin(visit, "White", rating=1200)
    visit.sees("Your turn.")
    page.get_by_role("button", name="Show hints").click()
    expect(page.locator("#model")).to_be_disabled()
    page.locator("#black").fill("2400")
    page.locator("#white").fill("700")
    visit.settles()
    with page.expect_request("**/v1/move") as request:
        visit.click("e2", "e4")
    sent: Any = request.value.post_data_json
    assert (sent["model"], sent["elo"]) == ("movemask-8", {"self": 1200, "opponent": 1200})
    visit.sees("Your turn.")
    visit.open("#play?model=zz-1900")  # another position, for another model
    expect(page.locator("#model")).to_be_disabled()
    page.get_by_role("button", name="Back to the game").click()
    expect(page.locator("#above .player")).to_contain_text("movemask-8")


@pytest.mark.deep
def test_game_with_sound_and_typed_moves(visit: Visit) -> None:
    pending: list[Route] = []
    page = visit.open()
    begin(visit, "White")
    page.route("**/v1/move", lambda route: pending.append(route))
    visit.type_move("e4")
    expect(page.get_by_role("status").filter(has_text="You play e4.")).to_be_visible()
    visit.type_move("Nf3")  # ahead
    visit.sees("Next: Nf3, if it is legal.")
    visit.answers(pending, "e5")
    visit.line("e4", "e5", "Nf3")
    visit.answers(pending, "Nc6")
    expect(page.get_by_role("status").filter(has_text="Black plays Nc6. Your turn.")).to_be_visible()
    visit.type_move("Ra5")
    visit.is_told("Not a legal move here: Ra5")
    visit.type_move("f1b5")
    visit.sees("You play Bb5.")
    visit.type_move("e1g1")
    assert page.locator(".premove").evaluate_all("all => all.map(one => one.dataset.square).sort()") == ["e1", "g1"]
    visit.answers(pending, "a6")
    visit.line("e4", "e5", "Nf3", "Nc6", "Bb5", "a6", "O-O")
    page.unroute("**/v1/move")


def test_move_typed_right_after_reply_is_played(visit: Visit) -> None:
    pending: list[Route] = []
    late: list[Route] = []
    page = visit.open()
    begin(visit, "White")
    page.route("**/v1/move", lambda route: pending.append(route))
    visit.click("e2", "e4")
    visit.sees("You play e4.")
    page.route("**/v1/policy", lambda route: late.append(route))
    visit.answers(pending, "e5")
    expect(visit.square("e5")).to_have_attribute("data-piece", "bp")
    visit.type_move("Nf3")
    page.unroute("**/v1/policy")
    for route in late:
        route.continue_()
    visit.line("e4", "e5", "Nf3")
    expect(page.get_by_role("alert")).to_be_hidden()
    page.unroute("**/v1/move")


def test_form_can_be_sent_once_shown(visit: Visit) -> None:
    pending: list[Route] = []
    page, start = visit.page, visit.page.get_by_role("button", name="Start")
    page.route("**/v1/models", lambda route: pending.append(route))
    page.goto(f"{visit.url}/")
    expect(page.get_by_role("button", name="Load")).to_be_visible()
    until(lambda: page.evaluate("true") and bool(pending), "the page asks for the models")
    expect(start).to_be_hidden()
    pending.pop().continue_()
    expect(start).to_be_visible()
    start.click()
    visit.sees("Your turn.")


def test_play_from_here_offers_side_to_move(visit: Visit) -> None:
    """Also while the game on the board is still being read. What has been entered stays when the board takes a step."""
    page = visit.open()
    visit.turns_to("#play?moves=e2e4")
    heard = """() => { document.getElementById("play-here").click(); return document.activeElement.textContent; }"""
    assert page.evaluate(heard) == "Play from this position"
    door = opened(visit, onto=True)
    expect(door.get_by_label("Black", exact=True)).to_be_checked()
    expect(door.get_by_role("button", name="Cancel")).to_be_visible()
    door.get_by_role("slider", name="Rating").fill("1700")
    door.get_by_text("More:").click()
    door.get_by_label("3+2", exact=True).check()
    page.get_by_role("button", name="Previous position").click()
    expect(door.get_by_label("White", exact=True)).to_be_checked()
    visit.settles()
    expect(door.get_by_label("3+2", exact=True)).to_be_checked()
    expect(door.get_by_role("slider", name="Rating")).to_have_value("1700")
    page.get_by_role("button", name="Next position").click()
    door.get_by_role("button", name="Cancel").click()
    expect(opened(visit).get_by_label("White", exact=True)).to_be_checked()


def test_play_from_here_before_answer(visit: Visit) -> None:
    page = visit.open("#play?moves=e2e4.e7e5")
    opened(visit, onto=True)
    page.evaluate(
        "() => { document.getElementById('back').click(); document.querySelector('#challenge .main').click(); }"
    )
    visit.sees("Your turn.")
    visit.click("c7", "c5")
    expect(page.locator("#line button").first).to_have_text("c5")


@pytest.mark.deep
def test_enter_starts_game_and_result_takes_focus(visit: Visit) -> None:
    page = visit.open()
    opened(visit).get_by_text("Black").click()
    page.keyboard.press("Enter")
    visit.sees("Your turn.")
    visit.click("e7", "e5")
    visit.sees("Your turn.")
    page.get_by_role("button", name="Resign").focus()
    for key in ("Enter", "Tab", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_role("region", name="You lost")).to_be_focused()
    page.get_by_role("button", name="New game").click()
    page.keyboard.press("Tab")
    expect(page.get_by_label("plays like")).to_be_focused()


@pytest.mark.deep
def test_ratings_take_whole_hundreds(visit: Visit) -> None:
    page = visit.open()
    opened(visit).get_by_text("More:").click()
    for level, name in (("as strong as", "Strength"), ("plays like", "Rating")):
        page.get_by_label(level).check()
        slider = page.get_by_role("slider", name=name, exact=True)
        for rating in (1300, 1500, 1700):
            slider.fill(str(rating))
            assert slider.input_value() == str(rating)


@pytest.mark.deep
def test_sound_button_shows_its_state(visit: Visit) -> None:
    page = visit.open()
    page.get_by_text("More", exact=True).click()
    button = page.get_by_role("button", name="Sound")
    look = "one => getComputedStyle(one).backgroundColor"
    off = button.evaluate(look)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    assert button.evaluate(look) != off


@pytest.mark.deep
def test_custom_clock_and_quick_replies(own_visit: Visit) -> None:
    page = own_visit.open()
    page.clock.install()
    panel = opened(own_visit)
    panel.get_by_text("More:").click()
    panel.get_by_label("White", exact=True).check()
    panel.get_by_label("Custom").check()
    panel.get_by_label("Minutes").fill("0")
    panel.get_by_label("Seconds a move").fill("0")
    panel.get_by_role("button", name="Start").click()
    expect(panel).to_be_visible()  # no time at all is no clock
    panel.get_by_label("Minutes").fill("0.6")
    panel.get_by_label("Seconds a move").fill("7")
    panel.get_by_label("at once").check()
    panel.get_by_role("button", name="Start").click()
    own_visit.settles()
    for own in ("e2e4", "d2d4", "b1c3"):
        own_visit.click(own[:2], own[2:])
        time_passes(own_visit, lambda: "Your turn." in page.locator("#said").inner_text())
        own_visit.settles()
    yours, its = page.get_by_role("timer", name="White's clock"), page.get_by_role("timer", name="Black's clock")
    expect(its).to_have_text(re.compile(r"0:(50|4[6-9])"))  # two moves took it no time at all
    agree(own_visit, "Resign", "Resign")
    page.locator("#result").get_by_role("button", name="Copy PGN").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    game = chess.pgn.read_game(io.StringIO(page.evaluate("navigator.clipboard.readText()")))
    assert game
    assert game.headers["TimeControl"] == "36+7"
    clocks = [node.clock() for node in game.mainline()]
    assert clocks[:2] == [36, 36]
    assert clocks[3] == 43
    assert None not in clocks
    expect(yours).to_have_text(re.compile(r"0:[345]\d"))


def test_custom_clock_takes_any_minutes(visit: Visit) -> None:
    """Start once did nothing at 0.1 minutes but show the browser's own bubble."""
    page = visit.open()
    form = opened(visit)
    form.get_by_text("More:").click()
    form.get_by_label("Custom").check()
    form.get_by_label("Minutes").fill("0.1")
    form.get_by_label("Seconds a move").fill("0")
    form.get_by_role("button", name="Start").click()
    visit.sees("Your turn.")
    expect(page.get_by_role("timer", name="Black's clock")).to_have_text("0:06.0")


@pytest.mark.deep
def test_game_shifts_nothing_on_screen(visit: Visit) -> None:
    """An error, hints, and the end of a game leave the board where it is; the players are at its ends."""
    visit.refusals = True
    page = visit.open()

    def board() -> Any:
        return page.locator("#board").bounding_box()

    before = board()
    visit.load("8/8/8/8/8/8/8/8 w - - 0 1")
    visit.is_told("the board is empty")
    assert board() == before
    page.get_by_role("button", name="Close this message").click()
    begin(visit, "Black", clock="3+2")
    visit.sees("Your turn.")
    assert board() == before
    above, below = (page.locator(name).bounding_box() for name in ("#above", "#below"))
    assert above
    assert below
    assert above["y"] < before["y"] < below["y"]
    expect(page.locator("#below .player")).to_contain_text("You")
    page.get_by_role("button", name="Show hints").click()
    expect(page.locator(".arrow").first).to_be_visible()
    assert board() == before
    visit.click("e7", "e5")
    expect(page.locator("#line button")).to_have_count(3)
    agree(visit, "Resign", "Resign")
    expect(page.locator("#review-sides")).to_contain_text(re.compile(r"You.*0 mistakes", re.DOTALL))
    assert board() == before
