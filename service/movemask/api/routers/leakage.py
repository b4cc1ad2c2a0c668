"""`GET /v1/leakage…`: what the audit has found, as of the last write of each worker: nothing here waits for one.

Answers are read and written as JSON on the threads of `Readers`, never on the event loop or the shared threads.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from movemask.api import problems
from movemask.api.parameters import AskedSpan
from movemask.api.positions_text import blocks, csv_lines, ndjson_lines
from movemask.api.schemas.leakage import (
    HistoryOut,
    LeakageFiguresOut,
    PositionsOut,
    WorstOut,
    audited_out,
    freshness_out,
    history_out,
    model_figures_out,
)
from movemask.api.services import Given, Services
from movemask.errors import InvalidParameter, UnknownKind
from movemask.leakage.kinds import RANKED, SERVED, UNNORMALISED

_CSV, _NDJSON = "text/csv", "application/x-ndjson"
_BUCKETS = {"10m": 600, "1h": 3_600, "1d": 86_400}

By = Literal["phase", "side", "in_check", "legal_moves", "elo", "cause", "model"]

router = APIRouter(tags=["leakage"])


@router.get(
    "/v1/leakage",
    summary="What would have leaked, by model and kind",
    response_model=LeakageFiguresOut,
    responses=problems.documented(404, 422, 503),
)
async def figures(held: Given, span: AskedSpan, model: str | None = None, by: By | None = None) -> Response:
    """Leakage of the positions answered so far, by model and kind. What the worker that answers had answered before
    `freshness.as_of` is counted; `freshness.waiting` of its answers are not written yet.

    `raw` is what plain softmax would have given to illegal moves, `multiplied` what `softmax(logits * mask)`
    would have, `served` what the answers gave; the others are measured for a share of the requests. With `by`, figures
    of each group as well. With `since` or `until`, spans of ten minutes (older than six hours: hours; than three
    days: days) that overlap them are counted whole; `since` and `until` of the answer say what was.
    """
    dimension = None if by == "model" else by
    name = _known(held, model)

    def read() -> Response:
        fresh = freshness_out(held.recorder.freshness())
        found = held.figures.models(name, span, dimension)
        out = {one.name: model_figures_out(one, dimension) for one in found}
        return _json(LeakageFiguresOut(models=out, freshness=fresh))

    return await held.readers.run(read)


@router.get(
    "/v1/leakage/history",
    summary="The same over time",
    response_model=HistoryOut,
    responses=problems.documented(404, 422, 503),
)
async def history(
    held: Given, span: AskedSpan, model: str | None = None, bucket: Literal["10m", "1h", "1d"] = "1h"
) -> Response:
    """The figures by spans of time. Ten minutes are kept for six hours, hours for three days, days for good: what
    is older than that comes in longer buckets than asked, each saying its `seconds`."""
    name = _known(held, model)

    def read() -> Response:
        fresh = freshness_out(held.recorder.freshness())
        found = held.figures.history(name, span, _BUCKETS[bucket])
        out = {one.name: history_out(one, buckets) for one, buckets in found}
        return _json(HistoryOut(models=out, freshness=fresh))

    return await held.readers.run(read)


@router.get(
    "/v1/leakage/worst",
    summary="The positions that leak most",
    response_model=WorstOut,
    responses=problems.documented(404, 422, 503),
)
async def worst(
    held: Given,
    span: AskedSpan,
    kind: Annotated[str, Query(description=f"One of {', '.join(RANKED)}.")] = "raw",
    limit: Annotated[int, Query(ge=1, le=1000)] = 10,
    model: str | None = None,
) -> Response:
    """The positions with the most leakage of a kind, worst first, and the illegal moves that plain softmax
    gives most. `since` and `until` choose among those that are kept."""
    if kind not in RANKED:
        why = {SERVED: ", it is always 0", UNNORMALISED: ", it equals raw"}.get(kind, "")
        raise UnknownKind(f"kind: {kind!r} cannot be ranked{why}; there are {', '.join(RANKED)}")
    name = _known(held, model)

    def read() -> Response:
        fresh = freshness_out(held.recorder.freshness())
        found = held.figures.worst(kind, limit, name, span)
        return _json(WorstOut(positions=[audited_out(one) for one in found], freshness=fresh))

    return await held.readers.run(read)


@router.get(
    "/v1/leakage/positions",
    summary="The audited positions",
    response_model=PositionsOut,
    responses={
        **problems.documented(404, 422, 503),
        200: {"content": {_NDJSON: {}, _CSV: {}}, "description": "A page, or all of them as NDJSON or CSV."},
    },
)
async def positions(
    held: Given,
    span: AskedSpan,
    model: str | None = None,
    limit: Annotated[int | None, Query(ge=1, description="As JSON at most 1,000, 100 if left out.")] = None,
    cursor: Annotated[str | None, Query(max_length=20, description="`next` of the page before.")] = None,
    format: Annotated[Literal["json", "ndjson", "csv"] | None, Query(description="Wins over Accept.")] = None,
    accept: Annotated[str, Header()] = "application/json",
) -> Response:
    """Single positions, newest first. As JSON a page at a time: rows that arrive meanwhile neither repeat nor
    move any. As NDJSON or CSV (`format`, or `Accept`) all of them, streamed; `freshness` then stands in the headers
    `Movemask-As-Of` and `Movemask-Waiting`."""
    before = _cursor(cursor)
    name = _known(held, model)
    chosen = format or ("csv" if _CSV in accept else "ndjson" if _NDJSON in accept else "json")
    if chosen == "json":
        if limit is not None and limit > 1000:
            raise InvalidParameter(f"limit: {limit}, at most 1000 as JSON; NDJSON and CSV have no limit")
        wanted = limit or 100

        def read() -> Response:
            fresh = freshness_out(held.recorder.freshness())
            page = held.figures.positions(wanted + 1, before=before, model=name, span=span)
            more = str(page[wanted - 1].id) if len(page) > wanted else None
            return _json(
                PositionsOut(positions=[audited_out(one) for one in page[:wanted]], next=more, freshness=fresh)
            )

        return await held.readers.run(read)
    fresh = held.recorder.freshness()
    rows = islice(held.figures.all_positions(before=before, model=name, span=span), limit)
    lines, media_type = (csv_lines(rows), _CSV) if chosen == "csv" else (ndjson_lines(rows), _NDJSON)
    headers = {"Movemask-As-Of": repr(fresh.as_of), "Movemask-Waiting": str(fresh.waiting)}
    return StreamingResponse(await held.readers.stream(blocks(lines)), headers=headers, media_type=media_type)


def _cursor(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise InvalidParameter(f"cursor: {text!r} is no cursor; take `next` of the page before")
    return min(int(text), 2**63 - 1)


def _json(out: BaseModel) -> Response:
    return Response(out.model_dump_json(exclude_unset=True), media_type="application/json")


def _known(held: Services, model: str | None) -> str | None:
    return None if model is None else held.registry.entry(model).name
