"""`GET /livez`, `/readyz`, `/metrics`, `/v1/version` and `/v1/models`: for operators, and the list of models."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import orjson
from fastapi import Path, Request, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CONTENT_TYPE_LATEST

from movemask.encoding.vocabularies import vocabulary, vocabulary_names
from movemask.encoding.vocabulary import described
from movemask.errors import LedgerError, ModelUnavailable, Overloaded
from movemask.network.registry import Entry
from movemask.schemas.operations import (
    AliveOut,
    CheckStepOut,
    LedgerStateOut,
    MetricsStateOut,
    ModelEntryOut,
    ModelsOut,
    ReadyOut,
    VersionOut,
    VocabularyOut,
)
from movemask.schemas.shapes import Out, as_json
from movemask.server import problems
from movemask.server.api.caching import cacheable
from movemask.server.api.routes.leakage import model_figures_out
from movemask.server.api.routing import OPEN, Routes
from movemask.server.edge.context import context_of
from movemask.server.edge.keys import KeyScope
from movemask.server.services import AppServices, Services
from movemask.version import __version__

_Models, _ModelEntry, _CheckStep = as_json(ModelsOut), as_json(ModelEntryOut), as_json(CheckStepOut)
_Vocabulary = as_json(VocabularyOut)

_EVERY, _LISTED = frozenset(KeyScope), frozenset({KeyScope.POLICY, KeyScope.LEAKAGE})

routes = Routes("operations")
model_routes = Routes("models")
keyed_routes = Routes("operations")  # first, also in the documents


@routes.get(
    "/livez", scopes=OPEN, polled=True, free=True, any_host=True, timed=False, summary="Liveness"
)
async def livez() -> AliveOut:
    """Returns 200 as long as the process can answer requests."""
    return AliveOut(status="alive")


@routes.get(
    "/readyz",
    scopes=OPEN,
    polled=True,
    free=True,
    any_host=True,
    timed=False,
    summary="Readiness",
    response_model=ReadyOut,
    response_model_exclude_unset=True,
    responses=problems.documented(503),
)
async def readyz(http: Request, services: AppServices) -> ReadyOut | Response:
    """Returns 200 if the default model can answer now, otherwise 503, with the state of the other models and of the
    ledger. Failing ones do not make the service unready. If API keys are set, details need a key with the scope
    `metrics`."""
    detailed = KeyScope.METRICS in context_of(http.scope).scopes
    faults, default = services.models.faults, services.models.registry.default
    if default in faults:
        detail = (
            f"the default model {default!r} {faults[default]}"
            if detailed
            else "the default model cannot answer"
        )
        return problems.response(problems.problem("not-ready", detail))
    if not detailed:
        return ReadyOut(status="ready")
    recorder = services.recorder
    failure = None if recorder.failure is None else problems.ledger_unwritable(recorder.failure)
    return ReadyOut(
        status="ready",
        models={entry.name: faults.get(entry.name, "served") for entry in services.models.registry},
        ledger=LedgerStateOut(waiting=recorder.waiting, lost=recorder.lost, failure=failure),
        metrics=MetricsStateOut(
            in_memory=services.metrics.in_memory, refused=services.metrics.refused
        ),
        waiting=sum(services.models.waiting.values()),
    )


@keyed_routes.get("/v1/version", scopes=_EVERY, summary="Service and API version")
async def version(services: AppServices) -> VersionOut:
    """The versions of the service and of its API, and the name of the default model."""
    return VersionOut(
        name="movemask", version=__version__, api="v1", model=services.models.registry.default
    )


@keyed_routes.get(
    "/metrics",
    scopes=frozenset({KeyScope.METRICS}),
    polled=True,
    free=True,
    timed=False,
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}}}},
)
async def metrics(services: AppServices) -> Response:
    """Metrics in Prometheus format, for all worker processes together."""
    return Response(
        await run_in_threadpool(services.metrics.exposition), media_type=CONTENT_TYPE_LATEST
    )


@model_routes.get(
    "/v1/models",
    scopes=_LISTED,
    summary="List the models",
    response_model=ModelsOut,
    cached=True,
)
async def models(http: Request, services: AppServices) -> Response:
    """Every model in the models folder. If a model is not served, `failure` says why. The response has an `ETag`."""
    out = _Models(models=[_entry_out(entry, services) for entry in services.models.registry])
    return cacheable(http, orjson.dumps(out))


@model_routes.get(
    "/v1/models/{name}",
    scopes=_LISTED,
    summary="One model",
    response_model=ModelEntryOut,
    responses=problems.documented(404),
)
async def model(
    name: Annotated[str, Path(description="Name of a model.")], http: Request, services: AppServices
) -> Response:
    """A model's contract, the result of its check, its digest, its card (source, licence, data, figures), and its
    leakage so far, unless the ledger cannot be read now. If API keys are set, the leakage needs a key with the scope
    `leakage`."""
    entry = services.models.registry.entry(name)
    out = _entry_out(entry, services)
    if KeyScope.LEAKAGE in context_of(http.scope).scopes:
        # All else is known: why a model is not served, above all.
        with suppress(LedgerError, Overloaded):
            for figures in await services.read(
                lambda: services.reader.summaries(entry.name, digest=entry.digest)
            ):
                out.leakage = model_figures_out(figures)
    return _response(out)


@model_routes.get(
    "/v1/vocabularies/{name}",
    scopes=frozenset({KeyScope.POLICY}),
    summary="The move of each slot",
    response_model=VocabularyOut,
    responses=problems.documented(404, 503),
)
async def vocabulary_of(
    name: Annotated[str, Path(description="Name of a vocabulary or of a model.")],
    services: AppServices,
) -> Response:
    """Which move each logit stands for, in the order of the slots. A model's slots are those of its vocabulary with
    the variations of its contract."""
    if name in vocabulary_names():
        return _response(_Vocabulary(**described(vocabulary(name), name)))
    contract = services.models.registry.entry(name).contract
    if contract is None:
        raise ModelUnavailable(
            f"model {name!r} has no contract that can be read, so its slots are not known"
        )
    words = contract.terms.slots
    return _response(_Vocabulary(**described(words, name)))


def _response(out: Out) -> Response:
    return Response(orjson.dumps(out), media_type="application/json")


def _entry_out(entry: Entry, services: Services) -> ModelEntryOut:
    """A model, without its leakage."""
    out = _ModelEntry(
        name=entry.name, default=entry.name == services.models.registry.default, served=entry.served
    )
    if entry.failure is not None:
        out.failure = entry.failure
    if entry.digest is not None:
        out.digest = entry.digest
    if entry.steps:
        out.check = [
            _CheckStep(name=step.name, passed=step.passed, found=step.found) for step in entry.steps
        ]
    if entry.contract is not None:
        out.contract = entry.contract.model_dump(mode="json", exclude={"card"})
        out.card = entry.contract.card
    return out
