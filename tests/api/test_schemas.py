"""What a client would lose: answers of the shape that the OpenAPI document promises, field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel

from movemask.api.schemas.answers import BatchOut, ErrorOut, GamesOut, MoveChosenOut, PolicyOut
from movemask.network.model import Model
from tests.conftest import Serve
from tests.networks import ONNX_TOML, FixedSession, write_fake, write_onnx

MATE = "7k/6Q1/5K2/8/8/8/8/8 b - - 0 1"
DRAWN = "8/8/4k3/8/8/3RK3/8/8 w - - 150 120"
EVERYTHING = {"include": ["san", "logit", "statistics", "illegal"], "elo": {"self": 1500, "opponent": 1600}}
ASKED: list[dict[str, Any]] = [
    {"moves": []},
    {"fen": MATE, **EVERYTHING},
    {"fen": DRAWN, **EVERYTHING},
    {"moves": ["e2e4", "e7e5"], **EVERYTHING, "normalizer": "softmax_one"},
    {"moves": [], **EVERYTHING, "normalizer": "entmax", "alpha": 1.3, "temperature": 0.7, "top_k": 5, "top_p": 0.9},
    {"fen": "bqnb1rkr/pp3ppp/3ppn2/2p5/5P2/P2P4/NPP1P1PP/BQ1BNRKR w HFhf - 2 9", "chess960": True},
]


@pytest.fixture(params=["value", "ratings", "score alone"])
def client(serve: Serve, tmp_path: Path, request: pytest.FixtureRequest) -> TestClient:
    """A network that tells win, draw and loss; one that takes history and ratings; one that tells a score."""
    folder = tmp_path / "m"
    if request.param == "ratings":
        write_fake(folder, planes="lc0-112", vocabulary="lc0-1858", elo=True)
        return serve(folder)
    folder.mkdir()
    order = 'order = "score"\n' if request.param == "score alone" else ""
    (folder / "net.toml").write_text(ONNX_TOML.replace("softmaxed = false\n", order) if order else ONNX_TOML)
    write_onnx(folder / "net.onnx", values=1 if order else 3)
    return serve(folder)


def held_to(schema: type[BaseModel], found: Any) -> None:
    """Every field is of the schema, is what the schema says, and none is missing."""
    assert schema.model_validate(found).model_dump(mode="json", by_alias=True, exclude_unset=True) == found


@pytest.mark.parametrize("asked", ASKED)
def test_policies_moves_and_items_of_a_batch(client: TestClient, asked: dict[str, Any]) -> None:
    answer = client.post("/v1/policy", json=asked)
    assert answer.status_code == 200, answer.text
    held_to(PolicyOut, answer.json())
    looked = client.post("/v1/policy", json={**asked, "include": [*asked.get("include", []), "forecast"]}).json()
    held_to(PolicyOut, looked)
    assert ("forecast" in looked) == ("value" in looked)
    for method in ({"method": "greedy"}, {"method": "sample"}, {"method": "sample", "seed": 3}):
        held_to(MoveChosenOut, client.post("/v1/move", json={**asked, **method}).json())
    own = {name: asked[name] for name in ("fen", "moves", "chess960", "elo") if name in asked}
    rest = {name: value for name, value in asked.items() if name not in own}
    body = {"positions": [own, {"fen": "x"}, {"fem": "x"}], **rest}
    batch = client.post("/v1/policy/batch", json=body).json()
    held_to(BatchOut, batch)
    good, *bad = batch["results"]
    held_to(PolicyOut, good)
    lines = client.post("/v1/policy/batch", json=body, headers={"Accept": "application/x-ndjson"}).text.splitlines()
    assert len(lines) == 3
    held_to(PolicyOut, json.loads(lines[0]))
    for error in (*bad, *map(json.loads, lines[1:])):
        held_to(ErrorOut, error)


def test_games(client: TestClient) -> None:
    pgn = '[Event "x"]\n[WhiteElo "1400"]\n\n1. e4 e5 2. Nf3 *\n\n[Event "y"]\n\n1. e5 *\n\n[Event "z"]\n\n1. d4 *\n'
    judged = client.post("/v1/games", json={"pgn": pgn}).json()
    assert ["error" in game for game in judged["games"]] == [False, True, False]
    held_to(GamesOut, judged)
    held_to(GamesOut, client.post("/v1/games", json={"pgn": pgn, "include": ["forecast"]}).json())
    held_to(GamesOut, client.post("/v1/games", json={"pgn": "1. e5 *"}).json())


def test_numbers_that_cannot_be_measured_are_null(serve: Serve) -> None:
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
