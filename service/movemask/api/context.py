"""`RequestContext`: what is known of one request while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import Scope

from movemask.api import keys
from movemask.errors import MovemaskError
from movemask.network.queue import Submission

#: Paths polled every few seconds: logged at debug unless they fail, and answered however much is in flight.
PROBES = {"/livez", "/readyz", "/metrics"}

#: Where the context is in the scope.
CONTEXT = "movemask"


@dataclass(slots=True)
class RequestContext:
    """What is known of one request, in its scope.

    `key` is the name of its API key, and `scopes` what it may do. `taken` is how many positions count against the
    client's rate so far, and `take` makes them as many as its argument says, or raises RateLimited. `held` is its bytes
    in flight, and `head` whether only the head of its answer is asked for. `runs` are (model, positions, submission) of
    each network run; None unless the request is traced.
    """

    id: str
    client: str = ""
    key: str | None = None
    scopes: frozenset[keys.Scope] = frozenset(keys.Scope)
    taken: int = 0
    take: Callable[[int], None] = field(default=lambda positions: None)
    held: int = 0
    head: bool = False
    positions: int = 0
    runs: list[tuple[str, int, Submission]] | None = None

    def delivered(self, model: str, submission: Submission, ran: int) -> None:
        """Adds answered positions to the log line, and the network's run to the spans."""
        self.positions += sum(not isinstance(result, MovemaskError) for result in submission.results)
        if self.runs is not None and ran:
            self.runs.append((model, ran, submission))


def context_of(scope: Scope) -> RequestContext:
    """The context of a request."""
    context: RequestContext = scope[CONTEXT]
    return context
