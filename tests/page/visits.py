"""`Visit`: a browser window on the page that notes all that goes wrong in it."""

from __future__ import annotations

import copy
import re
from typing import Any

import chess
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Locator, Page, Request, Route, expect

#: Chromium's word for connections that it dropped because the machine has another address.
CHANGED = "ERR_NETWORK_CHANGED"

#: Reports what the Content-Security-Policy stops, and how far the layout has jumped, to the tests.
WATCH = """
addEventListener("securitypolicyviolation", (event) => console.error("CSP: " + event.violatedDirective));
window.jumped = 0;
new PerformanceObserver((list) => {
  for (const shift of list.getEntries()) if (!shift.hadRecentInput) window.jumped += shift.value;
}).observe({ type: "layout-shift", buffered: true });
"""

#: What Ctrl+V does outside a field.
PASTE = """(text) => { const clipboardData = new DataTransfer();
    clipboardData.setData("text", text);
    document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true })); }"""


class Visit:
    """One visitor. `refusals` allows answers that are errors, which Chromium reports on its console."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.refusals = False
        self._dropped = False
        self._said: list[str] = []
        self._asked: set[str] = set()
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", **options})
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        context.set_default_timeout(60_000)  # a busy machine takes its time
        context.add_init_script(WATCH)
        self.page = self._tab(context)

    def _tab(self, context: BrowserContext) -> Page:
        page = context.new_page()
        page.on("console", self._note)
        page.on("pageerror", lambda error: self._said.append(str(error)))
        page.on("request", lambda request: self._asked.add(request.url))
        page.on("requestfailed", self._failed)
        return page

    def _failed(self, request: Request) -> None:
        self._dropped |= CHANGED in (request.failure or "")

    def another_tab(self) -> Visit:
        """The same visitor in a new tab."""
        visit = copy.copy(self)
        visit.page = self._tab(self.page.context)
        return visit

    def forgets(self) -> None:
        """Makes the browser forget all that it has kept of the page."""
        self.refusals = False
        self._said.clear()
        self._asked.clear()
        self.page.unroute_all()
        self._steps_out()
        self.page.evaluate("sessionStorage.clear()")
        session = self.page.context.new_cdp_session(self.page)
        session.send("Storage.clearDataForOrigin", {"origin": self.url, "storageTypes": "all"})
        session.detach()

    def open(self, address: str = "") -> Page:
        """The page at an address, with its answers."""
        if self.page.url.startswith(f"{self.url}/#") or self.page.url == f"{self.url}/":
            self._steps_out()
        self._goes_to(f"{self.url}/{address}")
        self.settles()
        return self.page

    def _goes_to(self, url: str) -> None:
        """Loads a page; again if the machine's network changed meanwhile, as when a container starts: Chromium then
        drops all connections, those to this machine too."""
        self._dropped = True
        while self._dropped:
            self._dropped = False
            try:
                self.page.goto(url)
            except Error as error:
                if CHANGED not in error.message:
                    raise
                self._dropped = True

    def settles(self) -> None:
        """Waits until what was asked for is shown."""
        expect(self.page.locator("body")).to_have_attribute("aria-busy", "false")

    def _steps_out(self) -> None:
        """Leaves the page for an answer of the same origin, so that the next address loads it anew. The browser keeps
        its process, which takes half the time of about:blank."""
        self._goes_to(f"{self.url}/livez")

    def turns_to(self, address: str) -> None:
        """Goes to another address of the page, which stays loaded."""
        self.page.goto(f"{self.url}/{address}")
        self.settles()

    def leave(self) -> None:
        """Closes the window. Fails as `has_seen_no_fault` does."""
        self.page.context.close()
        self.has_seen_no_fault()

    def has_seen_no_fault(self) -> None:
        """Fails for an error on the console, a violation, or a request to anywhere else."""
        elsewhere = {url for url in self._asked if not url.startswith((self.url, "about:", "data:"))}
        assert not self._said, self._said
        assert not elsewhere, elsewhere

    def square(self, name: str) -> Locator:
        return self.page.locator(f'#board [data-square="{name}"]')

    def piece(self, name: str) -> str | None:
        return self.square(name).get_attribute("data-piece")

    def click(self, *squares: str) -> None:
        for name in squares:
            self.square(name).click()

    def drag(self, source: str, target: str) -> None:
        start, end = (self.square(name).bounding_box() for name in (source, target))
        assert start
        assert end
        mouse = self.page.mouse
        mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
        mouse.down()
        mouse.move(start["x"] + start["width"], start["y"])
        mouse.move(end["x"] + end["width"] / 2, end["y"] + end["height"] / 2)
        mouse.up()

    def type_move(self, text: str) -> None:
        self.page.get_by_label("Move", exact=True).fill(text)
        self.page.get_by_label("Move", exact=True).press("Enter")

    def answers(self, pending: list[Route], move: str, seconds: float = 0) -> None:
        """Answers the request for a move that was held back, with this one, as if the network had drawn it."""
        for _ in range(3_000):  # a minute
            if pending:
                break
            self.page.wait_for_timeout(20)
        assert pending, "the page has asked for no move in a minute"
        route = pending.pop()
        body: Any = route.request.post_data_json
        board = chess.Board() if body["fen"] == "startpos" else chess.Board(body["fen"])
        for uci in body["moves"]:
            board.push_uci(uci)
        chosen = board.parse_san(move)
        turn = "white" if board.turn else "black"
        where = {"fen": board.fen(), "turn": turn, "status": "ongoing", "seconds": seconds}
        route.fulfill(json={**where, "move": {"uci": chosen.uci(), "san": board.san(chosen)}})

    def load(self, text: str) -> None:
        """Pastes a FEN or a PGN, into its field where there is one."""
        field = self.page.get_by_label("PGN", exact=True)
        if field.is_visible():
            field.fill(text)
            self.page.get_by_role("button", name="Load").click()
        else:
            self.page.evaluate(PASTE, text)

    def saved(self, button: str) -> str:
        """What a button downloads."""
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name=button).click()
        return download.value.path().read_text()

    def sees(self, words: str) -> None:
        """What is said of the position."""
        expect(self.page.locator("#said")).to_contain_text(words)

    def is_told(self, words: str) -> None:
        """What the alert says."""
        expect(self.page.get_by_role("alert")).to_contain_text(words)

    def line(self, *moves: str) -> None:
        """The moves in the list, variations too."""
        expect(self.page.locator("#line button")).to_have_text([re.compile(re.escape(move)) for move in moves])

    def _note(self, message: ConsoleMessage) -> None:
        refused = self.refusals and message.text.startswith("Failed to load resource")
        beside = message.location["url"].endswith("/favicon.ico")  # of what is no page
        if message.type in ("error", "warning") and not refused and not beside and CHANGED not in message.text:
            self._said.append(message.text)
