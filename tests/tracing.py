"""`python -m tests.tracing`: the package's files that one `POST /v1/policy` runs, as JSON.

`before` are those that run until the response is written, in the order of their first call; `after` the others.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from types import FrameType
from typing import Any

from fastapi.testclient import TestClient

from movemask.server.app import create_app
from movemask.server.settings import Settings
from tests.server.ledger.records import written

_PACKAGE = "/service/movemask/"


class _Trace:
    """The files of the package in the order of their first call, and the number of calls, while it is `on`."""

    def __init__(self) -> None:
        self.on = False
        self.files: dict[str, None] = {}
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.on and event == "call":
            _, package, file = frame.f_code.co_filename.partition(_PACKAGE)
            if package:
                self.calls += 1
                self.files.setdefault(file)


def main() -> None:
    """Asks twice and traces the second request: what is made once is made then."""
    trace = _Trace()
    threading.setprofile(trace)
    fen = "rnb1kbnr/pppp1ppp/8/4p3/4P2q/5P2/PPPP2PP/RNBQKBNR w KQkq - 1 3"
    body = {"fen": fen, "elo": {"self": 1500, "opponent": 1500}}
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings.read(database_url=f"sqlite:///{folder}/ledger.db"))
        with TestClient(app, base_url="http://localhost") as client:
            services = app.state.services
            client.post("/v1/policy", json=body)
            written(services.recorder)
            trace.on = True
            client.post("/v1/policy", json=body).raise_for_status()
            before, calls = list(trace.files), trace.calls
            written(services.recorder)
            trace.on = False
    json.dump(
        {"before": before, "calls": calls, "after": [file for file in trace.files if file not in before]}, sys.stdout
    )


if __name__ == "__main__":
    main()
