"""`GET /v1/leakage…`: what the audit has found."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from service.api import problems
from service.api.parameters import AskedSpan
from service.api.positions_text import blocks, csv_lines, ndjson_lines
from service.api.schemas.leakage import (
    HistoryOut,
    LeakageFiguresOut,
    PositionsOut,
    WorstOut,
    audited_out,
    history_out,
    model_figures_out,
)
from service.api.services import Given, Services
from service.audit.figures import StoredPosition
from service.audit.kinds import RANKED
from service.errors import InvalidParameter, UnknownKind

#: How long a reader waits for what was answered just before to be written.
_FLUSH_SECONDS = 2.0

_CSV, _NDJSON = "text/csv", "application/x-ndjson"
_BUCKETS = {"10m": 600, "1h": 3_600, "1d": 86_400}

By = Literal["phase", "side", "in_check", "legal_moves", "elo", "cause", "model"]

router = APIRouter(tags=["leakage"])


@router.get(
    "/v1/leakage",
    summary="What would have leaked, by model and kind",
    response_model_exclude_unset=True,
    responses=problems.documented(404, 422, 503),
)
def figures(held: Given, span: AskedSpan, model: str | None = None, by: By | None = None) -> LeakageFiguresOut:
    """Leakage of the positions answered so far, by model and kind. What was answered before the call is counted.

    `raw` is what plain softmax would have given to illegal moves, `multiplied` what `softmax(logits * mask)`
    would have, `served` what the answers gave; the others are measured for a share of the requests. With `by`, figures
    of each group as well. With `since` or `until`, spans of ten minutes (older than six hours: hours; than three
    days: days) that overlap them are counted whole; `since` and `until` of the answer say what was.
    """
    _written(held)
    dimension = None if by == "model" else by
    found = held.figures.models(_known(held, model), span, dimension)
    return LeakageFiguresOut(models={one.name: model_figures_out(one, dimension) for one in found})


@router.get("/v1/leakage/history", summary="The same over time", responses=problems.documented(404, 422, 503))
def history(
    held: Given, span: AskedSpan, model: str | None = None, bucket: Literal["10m", "1h", "1d"] = "1h"
) -> HistoryOut:
    """The figures by spans of time. Ten minutes are kept for six hours, hours for three days, days for good: what
    is older than that comes in longer buckets than asked, each saying its `seconds`."""
    _written(held)
    found = held.figures.history(_known(held, model), span, _BUCKETS[bucket])
    return HistoryOut(models={one.name: history_out(one, buckets) for one, buckets in found})


@router.get("/v1/leakage/worst", summary="The positions that leak most", responses=problems.documented(404, 422, 503))
def worst(
    held: Given,
    span: AskedSpan,
    kind: Annotated[str, Query(description=f"One of {', '.join(RANKED)}.")] = "raw",
    limit: Annotated[int, Query(ge=1, le=1000)] = 10,
    model: str | None = None,
) -> WorstOut:
    """The positions with the most leakage of a kind, worst first, and the illegal moves that plain softmax
    gives most. `since` and `until` choose among those that are kept."""
    if kind not in RANKED:
        raise UnknownKind(f"kind: {kind!r} cannot be ranked; there are {', '.join(RANKED)}")
    _written(held)
    return WorstOut(positions=[audited_out(one) for one in held.figures.worst(kind, limit, _known(held, model), span)])


@router.get(
    "/v1/leakage/positions",
    summary="The audited positions",
    response_model=PositionsOut,
    responses={
        **problems.documented(404, 422, 503),
        200: {"content": {_NDJSON: {}, _CSV: {}}, "description": "A page, or all of them as NDJSON or CSV."},
    },
)
def positions(
    held: Given,
    span: AskedSpan,
    model: str | None = None,
    limit: Annotated[int | None, Query(ge=1, description="As JSON at most 1,000, 100 if left out.")] = None,
    cursor: Annotated[str | None, Query(max_length=20, description="`next` of the page before.")] = None,
    format: Annotated[Literal["json", "ndjson", "csv"] | None, Query(description="Wins over Accept.")] = None,
    accept: Annotated[str, Header()] = "application/json",
) -> Response:
    """Single positions, newest first. As JSON a page at a time: rows that arrive meanwhile neither repeat nor
    move any. As NDJSON or CSV (`format`, or `Accept`) all of them, streamed."""
    before = _cursor(cursor)
    name = _known(held, model)
    _written(held)
    chosen = format or ("csv" if _CSV in accept else "ndjson" if _NDJSON in accept else "json")
    if chosen == "json":
        if limit is not None and limit > 1000:
            raise InvalidParameter(f"limit: {limit}, at most 1000 as JSON; NDJSON and CSV have no limit")
        wanted = limit or 100
        page = held.figures.positions(wanted + 1, before=before, model=name, span=span)
        more = str(page[wanted - 1].id) if len(page) > wanted else None
        out = PositionsOut(positions=[audited_out(one) for one in page[:wanted]], next=more)
        return Response(out.model_dump_json(), media_type="application/json")
    rows = _begun(islice(held.figures.all_positions(before=before, model=name, span=span), limit))
    if chosen == "csv":
        return StreamingResponse(blocks(csv_lines(rows)), media_type=_CSV)
    return StreamingResponse(blocks(ndjson_lines(rows)), media_type=_NDJSON)


def _begun(rows: Iterator[StoredPosition]) -> Iterator[StoredPosition]:
    """The same, with the first already read: a database that cannot be read is told before the answer begins."""
    return chain(list(islice(rows, 1)), rows)


def _cursor(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise InvalidParameter(f"cursor: {text!r} is no cursor; take `next` of the page before")
    return min(int(text), 2**63 - 1)


def _written(held: Services) -> None:
    held.recorder.flush(_FLUSH_SECONDS)


def _known(held: Services, model: str | None) -> str | None:
    return None if model is None else held.registry.entry(model).name
