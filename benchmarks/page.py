"""What the page weighs and how fast it is, as a Markdown table: `python -m benchmarks.page`.

A first visit with an empty cache, to a service on this machine, in Chromium: bytes on the wire, and from the click
until the board can be played on. Then a game of forty half-moves, walked through: the page's own work for each, from
the answer to the new board (`performance.measure` in main.js), which leaves out the request.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from movemask.network.files import shipped_models
from tests.page.conftest import CHROMIUM
from tests.page.visits import Visit
from tests.processes import served

VISITS = 10
PLIES = 40
READY = "(([first]) => first.startTime + first.duration)(performance.getEntriesByName('shown'))"
LOADED = "performance.getEntries().reduce((sum, entry) => sum + (entry.transferSize ?? 0), 0)"


def main() -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        for file in shipped_models().iterdir():
            (Path(folder) / file.name).symlink_to(file)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with served(Path(folder)) as (_, port):
            ready, loaded = [], 0.0
            for _ in range(VISITS):
                visit = Visit(browser, f"http://127.0.0.1:{port}")
                ready.append(visit.open().evaluate(READY))
                loaded = visit.page.evaluate(LOADED)
                visit.leave()
            visit = Visit(browser, f"http://127.0.0.1:{port}")
            page = visit.open(f"#play?moves={'.'.join(_line())}&at=0")
            for _ in range(PLIES):
                page.keyboard.press("ArrowRight")
                visit.settles()
            work = page.evaluate("performance.getEntriesByName('shown').map((entry) => entry.duration)")
            visit.leave()
    print("| the page | median | worst |\n|---|---:|---:|")
    print(f"| bytes on the wire, first visit | {loaded:,.0f} | |")
    print(f"| ready to play, ms | {statistics.median(ready):.0f} | {max(ready):.0f} |")
    print(f"| own work for a move, ms | {statistics.median(work):.1f} | {max(work):.1f} |")


def _line() -> list[str]:
    """The first half-moves of a game."""
    moves = (
        "e2e4 e7e5 g1f3 b8c6 f1b5 a7a6 b5a4 g8f6 e1g1 f8e7 f1e1 b7b5 a4b3 d7d6 c2c3 e8g8 h2h3 c6a5 b3c2 c7c5 d2d4 d8c7 "
        "b1d2 c5d4 c3d4 a5c6 d2b3 a6a5 c1e3 a5a4 b3d2 c8d7 a1c1 c7b8 c2b1 f8c8 d1e2 h7h6 a2a3 d7e8"
    )
    return moves.split()


if __name__ == "__main__":
    main()
