"""`GET /v1/leakage…`: figures of the ledger, as of each worker's last write.

Two threads of `Services.reading` read the database and write the JSON: the event loop and FastAPI's threads stay free.
"""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, Literal

import orjson
from fastapi import Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from movemask.board.position import Position
from movemask.errors import InvalidParameter, UnknownKind
from movemask.leakage.causes import Cause
from movemask.leakage.cells import CAUSE
from movemask.leakage.kinds import KINDS, RANKED, RAW, SERVED, UNNORMALISED
from movemask.schemas.figures import (
    BucketOut,
    GroupOut,
    HistoryOut,
    KindOut,
    LeakageFiguresOut,
    ModelHistoryOut,
    ModelLeakageOut,
    PositionsOut,
    StoredPositionOut,
    WorstOut,
)
from movemask.schemas.shapes import Out, as_json
from movemask.server import problems
from movemask.server.api.negotiation import TEXT, preferred
from movemask.server.api.requests import ModelName
from movemask.server.api.responses import fen_out, figures_out
from movemask.server.api.routing import Routes
from movemask.server.edge.context import context_of
from movemask.server.edge.keys import KeyScope
from movemask.server.ledger.reader import (
    Bucket,
    CellsByKind,
    Span,
    StoredPosition,
    Summary,
    positions_of,
)
from movemask.server.services import AppServices, Services
from movemask.times import FORMS, rfc3339, time_of

_LeakageFigures, _ModelLeakage = as_json(LeakageFiguresOut), as_json(ModelLeakageOut)
_History, _ModelHistory, _Bucket = as_json(HistoryOut), as_json(ModelHistoryOut), as_json(BucketOut)
_Worst, _Positions, _Stored = as_json(WorstOut), as_json(PositionsOut), as_json(StoredPositionOut)
_Group, _Kind = as_json(GroupOut), as_json(KindOut)

_CSV, _NDJSON = "text/csv", "application/x-ndjson"
_FORMATS = {"application/json": "json", _NDJSON: "ndjson", _CSV: "csv"}

#: Positions of a streamed export that are read together: some 100 kB of text.
_PAGE = 100
_PLAIN = (
    *("time", "time_utc", "model", "digest", "trained_with_mask"),
    *("fen", "chess960", "turn", "phase", "in_check", "legal_moves", "elo"),
)

#: The columns of the CSV.
_COLUMNS = (*_PLAIN, *KINDS, *(f"cause_{cause.value}" for cause in Cause), "illegal")

_MOST = 10**9  # largest `limit`

_BUCKETS = {"10m": 600, "1h": 3_600, "1d": 86_400}


TimeText = Annotated[str | None, Query(max_length=40, description=f"A time: {FORMS}.")]

By = Literal["phase", "side", "in_check", "legal_moves", "elo", "cause", "model"]

routes = Routes("leakage")
_LEAKAGE, _POSITIONS = frozenset({KeyScope.LEAKAGE}), frozenset({KeyScope.POSITIONS})
_get = partial(routes.get, responses=problems.documented(404, 422, 503))


async def _which(
    services: AppServices,
    model: Annotated[
        ModelName | None, Query(description="Name of a model in `/v1/models`; all if left out.")
    ] = None,
    since: TimeText = None,
    until: TimeText = None,
    digest: Annotated[
        str | None,
        Query(
            pattern="^sha256:[0-9a-f]{64}$",
            description="SHA-256 of a network's file; by default the latest of each name (positions: all).",
        ),
    ] = None,
) -> tuple[str | None, Span, str | None]:
    """The name of a model, a span of time, and the digest of a network; raises UnknownModel or InvalidParameter."""
    now = time.time()
    span = Span(time_of("since", since, now), time_of("until", until, now))
    if span.since is not None and span.until is not None and span.since >= span.until:
        raise InvalidParameter(f"since: {since!r} is not before until, {until!r}")
    return None if model is None else services.models.registry.entry(model).name, span, digest


Which = Annotated[tuple[str | None, Span, str | None], Depends(_which)]


@_get(
    "/v1/leakage",
    scopes=_LEAKAGE,
    summary="Leakage by model and kind",
    response_model=LeakageFiguresOut,
)
async def figures(
    services: AppServices,
    which: Which,
    by: Annotated[By | None, Query(description="Break the figures down into groups.")] = None,
) -> Response:
    """How much probability would have gone to illegal moves, by model and kind of leakage.

    `raw` is the probability that a plain softmax would have put on illegal moves. For `multiplied` it is
    `softmax(logits * mask)`, and for `served` the answers themselves (always 0). A constant added to all
    logits changes `multiplied`: do not compare it between networks. The other kinds are measured on a sample of the
    requests. Use `by` to break the figures down into groups.

    `since` and `until` are widened to whole buckets: ten minutes for the last six hours, an hour for the last three
    days, and a day before that. The answer gives the bounds it used. If other files have answered under a model's name,
    `other_digests` names them: their figures come with `digest`. An answer is in the figures within half a second.
    `GET /readyz` says how many records wait.
    """
    dimension = None if by == "model" else by

    def read() -> LeakageFiguresOut:
        models = services.reader.summaries(*which, by=dimension)
        return _LeakageFigures(
            models={model.name: model_figures_out(model, dimension) for model in models}
        )

    return await _respond(services, read)


@_get(
    "/v1/leakage/history", scopes=_LEAKAGE, summary="Leakage over time", response_model=HistoryOut
)
async def history(
    services: AppServices,
    which: Which,
    bucket: Annotated[Literal["10m", "1h", "1d"], Query(description="Length of a bucket.")] = "1h",
) -> Response:
    """Leakage over time. Ten-minute buckets are kept for six hours, hourly ones for three days, and daily ones
    forever, so older figures may come in longer buckets than you asked for. Each bucket gives its length in
    `seconds`."""

    def read() -> HistoryOut:
        histories = services.reader.history(*which, seconds=_BUCKETS[bucket])
        return _History(
            models={model.name: _history_out(model, buckets) for model, buckets in histories}
        )

    return await _respond(services, read)


@_get(
    "/v1/leakage/worst",
    scopes=_POSITIONS,
    summary="The positions with the most leakage",
    response_model=WorstOut,
)
async def worst(
    services: AppServices,
    which: Which,
    kind: Annotated[str, Query(description=f"One of {', '.join(RANKED)}.")] = "raw",
    limit: Annotated[int, Query(ge=1, le=1000, description="Most positions to return.")] = 10,
) -> Response:
    """The positions with the most leakage of one kind, worst first, each with the illegal moves that a plain softmax
    ranks highest. `since` and `until` apply to the worst positions that are kept, not to every position."""
    if kind not in RANKED:
        why = {SERVED: ", it is always 0", UNNORMALISED: ", it equals raw"}.get(kind, "")
        raise UnknownKind(f"kind: {kind!r} cannot be ranked{why}; available: {', '.join(RANKED)}")

    def read() -> WorstOut:
        worst = services.reader.worst(kind, limit, *which)
        return _Worst(positions=[_position_out(position) for position in worst])

    return await _respond(services, read)


@routes.get(
    "/v1/leakage/positions",
    scopes=_POSITIONS,
    summary="The recorded positions",
    response_model=PositionsOut,
    responses={
        **problems.documented(404, 422, 503),
        200: {
            "content": {_NDJSON: TEXT, _CSV: TEXT},
            "description": "A page, or all of them as NDJSON or CSV.",
        },
    },
)
async def positions(
    http: Request,
    services: AppServices,
    which: Which,
    limit: Annotated[
        int | None,
        Query(
            ge=1,
            le=_MOST,
            description="Most positions to return; in JSON the default is 100 and the maximum 1,000.",
        ),
    ] = None,
    cursor: Annotated[
        str | None, Query(pattern="^[0-9]{1,18}$", description="`next` from the previous page.")
    ] = None,
    format: Annotated[
        Literal["json", "ndjson", "csv"] | None, Query(description="Overrides `Accept`.")
    ] = None,
    accept: Annotated[str, Header(description="Media type of the answer.")] = "application/json",
) -> Response:
    """Individual positions, those written last first. JSON is paged, and the pages stay stable while new positions
    arrive. NDJSON and CSV (set `format` or `Accept`) stream every position."""
    before = None if cursor is None else int(cursor)
    chosen = format or _FORMATS[preferred(accept, tuple(_FORMATS))]
    if chosen == "json":
        if limit is not None and limit > 1000:
            raise InvalidParameter(
                f"limit: {limit}, at most 1000 as JSON; NDJSON and CSV have no limit"
            )
        count = limit or 100

        def read() -> PositionsOut:
            page = services.reader.positions(count + 1, before, *which)
            more = str(page[count - 1]["id"]) if len(page) > count else None
            positions = [_position_out(position) for position in page[:count]]
            return _Positions(positions=positions, next=more)

        return await _respond(services, read)

    def page(size: int, before: int | None) -> list[StoredPosition]:
        return services.reader.positions(size, before, *which)

    if chosen == "csv":
        parts, media_type = _parts(page, before, limit, _csv, _csv_lines([_COLUMNS])), _CSV
    else:
        parts, media_type = _parts(page, before, limit, _ndjson), _NDJSON
    if context_of(http.scope).head:  # reads no rows: there may be millions
        return Response(media_type=media_type)
    return StreamingResponse(await services.streamed(parts), media_type=media_type)


async def _respond(services: Services, read: Callable[[], Out]) -> Response:
    """The JSON of the result of `read`; made on a thread of the readers."""
    return Response(
        await services.read(lambda: orjson.dumps(read())), media_type="application/json"
    )


def model_figures_out(model: Summary, by: str | None = None) -> ModelLeakageOut:
    """The figures of one model."""
    out = _ModelLeakage(
        digest=model.digest,
        other_digests=list(model.others),
        trained_with_mask=model.trained_with_mask,
        positions=positions_of(model.kinds),
        kinds=_kinds_out(model.kinds),
    )
    if model.covered is not None:
        out.since, out.until = model.covered
        out.since_utc, out.until_utc = map(rfc3339, model.covered)
    if by is not None and model.groups is not None:
        total = model.kinds[RAW].sum if RAW in model.kinds else 0.0
        out.by = {
            by: {group: _group_out(kinds, by, total) for group, kinds in model.groups.items()}
        }
    return out


def _history_out(model: Summary, buckets: list[Bucket]) -> ModelHistoryOut:
    return _ModelHistory(
        digest=model.digest,
        other_digests=list(model.others),
        trained_with_mask=model.trained_with_mask,
        buckets=[
            _Bucket(
                start=bucket.start,
                start_utc=rfc3339(bucket.start),
                seconds=bucket.seconds,
                positions=positions_of(bucket.kinds),
                kinds=_kinds_out(bucket.kinds),
            )
            for bucket in buckets
        ],
    )


def _group_out(kinds: CellsByKind, by: str, total: float) -> GroupOut:
    if by != CAUSE:
        return _Group(positions=positions_of(kinds), kinds=_kinds_out(kinds))
    figures = {name: _Kind(**cell.mass_figures()) for name, cell in kinds.items()}
    share = sum(cell.sum for cell in kinds.values()) / total if total else None
    return _Group(positions=positions_of(kinds), share=share, kinds=figures)


def _kinds_out(kinds: CellsByKind) -> dict[str, KindOut]:
    return {name: _Kind(**cell.figures()) for name, cell in kinds.items()}


def _position_out(position: StoredPosition) -> StoredPositionOut:
    return _Stored(
        fen=_fen_out(position),
        chess960=position["chess960"],
        model=position["model"],
        digest=position["digest"],
        trained_with_mask=position["trained_with_mask"],
        time=position["time"],
        time_utc=rfc3339(position["time"]),
        turn=position["turn"],
        phase=position["phase"],
        in_check=position["in_check"],
        legal_moves=position["legal_moves"],
        elo=position["elo"],
        raw=position["raw"],
        multiplied=position["multiplied"],
        served=position["served"],
        kinds=figures_out(position["kinds"]),
        causes=position["causes"],
        illegal=position["illegal"],
    )


def _fen_out(position: StoredPosition) -> str:
    """The FEN that the answer had. The stored FEN has the square behind every double push."""
    fen: str = position["fen"]
    return (
        fen if fen.split()[3] == "-" else fen_out(Position.read(fen, chess960=position["chess960"]))
    )


def _parts(
    page: Callable[[int, int | None], list[StoredPosition]],
    before: int | None,
    limit: int | None,
    write: Callable[[list[StoredPosition]], bytes],
    head: bytes = b"",
) -> Iterator[bytes]:
    """Positions below the id `before` as text, a page at a time. While a client reads, the stream holds the text of one
    page and no rows, which take ten times the memory."""
    left = math.inf if limit is None else limit

    def text() -> bytes:
        nonlocal before, left
        rows = page(int(min(_PAGE, left)), before) if left else []
        if rows:
            before, left = rows[-1]["id"], left - len(rows)
        return write(rows)

    yield head + text()
    while part := text():
        yield part


def _ndjson(positions: list[StoredPosition]) -> bytes:
    """One line per position, as in the JSON of `GET /v1/leakage/positions`."""
    return b"".join(
        orjson.dumps(_position_out(position), option=orjson.OPT_APPEND_NEWLINE)
        for position in positions
    )


def _csv(positions: list[StoredPosition]) -> bytes:
    """One line per position; `illegal` is a list of `uci:probability:cause`, separated by spaces."""
    lines = []
    for position in positions:
        written = {**position, "time_utc": rfc3339(position["time"]), "fen": _fen_out(position)}
        plain = [written[name] for name in _PLAIN]
        figures, by_cause = position["kinds"], position["causes"]
        leaked = [figures[kind].leaked if kind in figures else None for kind in KINDS]
        causes = [by_cause.get(cause.value) for cause in Cause]
        illegal = " ".join(
            f"{move['uci']}:{move['probability']!r}:{move['cause']}" for move in position["illegal"]
        )
        lines.append([*plain, *leaked, *causes, illegal])
    return _csv_lines(lines)


def _csv_lines(lines: Iterable[Iterable[object]]) -> bytes:
    out = io.StringIO()
    for line in lines:
        csv.writer(out).writerow(
            str(value).lower() if isinstance(value, bool) else value for value in line
        )
    return out.getvalue().encode()
