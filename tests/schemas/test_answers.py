"""Shapes of answers, and the OpenAPI document that describes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel

from movemask.network.model import Model
from movemask.schemas import answers, figures, operations
from movemask.schemas.answers import BatchOut, FailureOut, GamesOut, MoveChosenOut, PolicyOut, ResultOut
from movemask.schemas.choices import Include
from movemask.server.api.openapi import EXAMPLES
from movemask.server.app import create_app
from tests.conftest import Serve
from tests.networks import ONNX_TOML, FixedSession, write_fake, write_net

MATE = "7k/6Q1/5K2/8/8/8/8/8 b - - 0 1"
DRAWN = "8/8/4k3/8/8/3RK3/8/8 w - - 150 120"
EVERYTHING = {"include": list(get_args(Include)), "elo": {"self": 1500, "opponent": 1600}}
ASKED: list[dict[str, Any]] = [
    {"moves": []},
    {"fen": MATE, **EVERYTHING},
    {"fen": DRAWN, **EVERYTHING},
    {"moves": ["e2e4", "e7e5"], **EVERYTHING, "normalizer": "softmax_one"},
    {"moves": [], **EVERYTHING, "normalizer": "entmax", "alpha": 1.3, "temperature": 0.7, "top_k": 5, "top_p": 0.9},
    {"fen": "bqnb1rkr/pp3ppp/3ppn2/2p5/5P2/P2P4/NPP1P1PP/BQ1BNRKR w HFhf - 2 9", "chess960": True},
]


@pytest.fixture(params=["value", "ratings", "score alone"])
def varied(serve: Serve, tmp_path: Path, request: pytest.FixtureRequest) -> TestClient:
    """A network that tells win, draw and loss; one that takes history and ratings; one that tells a score."""
    folder = tmp_path / "m"
    if request.param == "ratings":
        write_fake(folder, planes="lc0-112", vocabulary="lc0-1858", elo=True)
        return serve(folder)
    order = 'order = "score"\n' if request.param == "score alone" else "softmaxed = false\n"
    toml = ONNX_TOML.replace("softmaxed = false\n", order)
    return serve(write_net(folder, toml=toml, values=1 if request.param == "score alone" else 3).parent)


def held_to(schema: type[BaseModel], answer: Any) -> None:
    """Every field is of the schema, is what the schema says, and none is missing."""
    assert schema.model_validate(answer).model_dump(mode="json", by_alias=True, exclude_unset=True) == answer


@pytest.mark.parametrize("query", ASKED)
def test_policy_move_and_batch_answers(varied: TestClient, query: dict[str, Any]) -> None:
    answer = varied.post("/v1/policy", json=query)
    assert answer.status_code == 200, answer.text
    held_to(PolicyOut, answer.json())
    with_forecast = varied.post("/v1/policy", json={**query, "include": [*query.get("include", []), "forecast"]}).json()
    held_to(PolicyOut, with_forecast)
    assert ("forecast" in with_forecast) == ("value" in with_forecast)
    for method in ({"method": "greedy"}, {"method": "sample"}, {"method": "sample", "seed": 3}):
        held_to(MoveChosenOut, varied.post("/v1/move", json={**query, **method}).json())
    own = {name: query[name] for name in ("fen", "moves", "chess960", "elo") if name in query}
    rest = {name: value for name, value in query.items() if name not in own}
    body = {"positions": [own, {"fen": "x"}, {"fem": "x"}], **rest}
    batch = varied.post("/v1/policy/batch", json=body).json()
    held_to(BatchOut, batch)
    good, *bad = batch["results"]
    held_to(ResultOut, good)
    lines = varied.post("/v1/policy/batch", json=body, headers={"Accept": "application/x-ndjson"}).text.splitlines()
    assert len(lines) == 3
    held_to(ResultOut, json.loads(lines[0]))
    for error in (*bad, *map(json.loads, lines[1:])):
        held_to(FailureOut, error)


def test_games(varied: TestClient) -> None:
    pgn = '[Event "x"]\n[WhiteElo "1400"]\n\n1. e4 e5 2. Nf3 *\n\n[Event "y"]\n\n1. e5 *\n\n[Event "z"]\n\n1. d4 *\n'
    judged = varied.post("/v1/games", json={"pgn": pgn}).json()
    assert ["error" in game for game in judged["games"]] == [False, True, False]
    held_to(GamesOut, judged)
    held_to(GamesOut, varied.post("/v1/games", json={"pgn": pgn, "include": ["forecast"]}).json())
    held_to(GamesOut, varied.post("/v1/games", json={"pgn": "1. e5 *"}).json())


def test_unmeasurable_numbers_are_null(serve: Serve) -> None:
    def unmeasurable(model: Model) -> Model:
        logits = np.zeros(1880, dtype=np.float32)
        logits[-1] = np.nan
        return Model(model.name, model.digest, model.contract, FixedSession(model.contract, logits))

    client = serve(prepare=unmeasurable)
    answer = client.post("/v1/policy", json={"moves": []}).json()
    assert answer["leakage"]["raw"] is None
    held_to(PolicyOut, answer)
    judged = client.post("/v1/games", json={"pgn": "1. e4 *"}).json()
    assert judged["games"][0]["white"]["raw_leakage"] is None
    held_to(GamesOut, judged)


DOCUMENT: dict[str, Any] = create_app().openapi()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]

#: How the description of a number says what it counts or is measured in.
UNITS = re.compile(
    r"probabilit|nats|0 to 1|elo points|milliseconds|seconds|number of|\bnumber\b|plies|status code|no unit|median|mean"
    r"|percentile|place of the move|divided by|expected score|coefficient|entropy|most ",
    re.I,
)


def fields() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, schema in SCHEMAS.items():
        for field, definition in schema.get("properties", {}).items():
            yield f"{name}.{field}", definition
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", []):
                yield f"{method} {path} {parameter['name']}", {**parameter["schema"], **parameter}


def referred(field: dict[str, Any]) -> list[str]:
    """Names of the schemas that a field is made of; they describe themselves."""
    return re.findall(r"#/components/schemas/(\w+)", json.dumps(field))


def is_number(field: dict[str, Any]) -> bool:
    kinds = [field, *field.get("anyOf", [])]
    return any(kind.get("type") in ("number", "integer") for kind in kinds)


def test_fields_have_descriptions_and_units() -> None:
    all_fields = list(fields())
    assert len(all_fields) > 240
    undescribed = [name for name, field in all_fields if not field.get("description") and not referred(field)]
    unitless = [
        name for name, field in all_fields if is_number(field) and not UNITS.search(field.get("description", ""))
    ]
    assert (undescribed, unitless) == ([], [])
    assert [name for name, schema in SCHEMAS.items() if not schema.get("description")] == []


def test_bodies_and_answers_have_complete_examples() -> None:
    names = set()
    for operation in (operation for methods in DOCUMENT["paths"].values() for operation in methods.values()):
        for part in (operation.get("requestBody", {}), *operation["responses"].values()):
            names |= {name for media in part.get("content", {}).values() for name in referred(media.get("schema", {}))}
    assert len(names) == 25
    assert [name for name in names if not SCHEMAS[name].get("examples")] == []


@pytest.mark.parametrize("name", sorted(name for name in EXAMPLES if not name.endswith("In")))
def test_examples_match_their_shapes(name: str) -> None:
    module = next(one for one in (answers, figures, operations) if hasattr(one, name))
    for example in EXAMPLES[name]:
        held_to(getattr(module, name), example)


PAGES = ["/openapi.json", "/docs"]
NEEDED = {"/v1/policy": "?fen=startpos"}
GETS = [path for path, methods in DOCUMENT["paths"].items() if "get" in methods] + PAGES


@pytest.mark.parametrize("path", GETS)
def test_head_equals_get_without_body(client: TestClient, path: str) -> None:
    url = path.replace("{name}", "fake") + NEEDED.get(path, "?")
    got, head = client.get(url), client.head(url)
    assert (got.status_code, head.status_code, head.content) == (200, 200, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert client.head(url + "&zzz=1").status_code == (200 if path in ("/", "/openapi.json", "/docs") else 422)


def test_head_of_a_stream_reads_no_rows(client: TestClient) -> None:
    head = client.head("/v1/leakage/positions?format=csv")
    assert (head.status_code, head.content) == (200, b"")


def test_version(client: TestClient) -> None:
    answer = client.get("/v1/version").json()
    assert answer == {"name": "movemask", "version": DOCUMENT["info"]["version"], "api": "v1", "model": "fake"}
