"""GET /v1/vocabularies/{name}: the move of each slot."""

from __future__ import annotations

import json
from pathlib import Path

from fastapi.testclient import TestClient

from movemask.encoding.vocabularies import vocabulary, vocabulary_names
from tests.conftest import ROOT, Serve
from tests.networks import write_fake
from tests.processes import run


def test_http_and_command_line_agree(client: TestClient) -> None:
    for name in vocabulary_names():
        body = client.get(f"/v1/vocabularies/{name}").json()
        assert body == json.loads(run("vocabulary", name, "--json").stdout)
        assert [move or "" for move in body["moves"]] == list(vocabulary(name).names())
        lines = run("vocabulary", name).stdout.splitlines()
        assert lines == [f"{slot}\t{move or ''}" for slot, move in enumerate(body["moves"])]
    assert body["slots"] == 1968
    assert (body["castling"], body["bare_promotion"], body["black"]) == ("king_two_squares", None, "none")


def test_maia2_slots_match_its_package(client: TestClient) -> None:
    printed = (ROOT / "tests" / "data" / "maia2_moves.txt").read_text().split()
    assert client.get("/v1/vocabularies/maia2-1880").json()["moves"] == printed


def test_model_slots_follow_contract_variations(serve: Serve, tmp_path: Path) -> None:
    file = write_fake(tmp_path, "own")
    file.write_text(file.read_text().replace("[contract]", '[contract]\nvariations = ["promotion_order"]'))
    body = serve(tmp_path).get("/v1/vocabularies/own").json()
    assert (body["name"], body["vocabulary"], body["slots"]) == ("own", "movemask-1880", 1880)
    plain = vocabulary("movemask-1880").names()
    assert body["moves"][:1792] == list(plain[:1792])
    assert body["moves"][1792:1796] == list(plain[1795:1791:-1])
    assert run("vocabulary", "own", "--models-dir", tmp_path).output.splitlines()[1792] == "1792\ta7a8n"


def test_unknown_vocabulary_lists_names(client: TestClient, tmp_path: Path) -> None:
    problem = client.get("/v1/vocabularies/nothing")
    assert problem.status_code == 404
    assert problem.json()["type"] == "urn:movemask:problem:unknown-model"
    write_fake(tmp_path, "own")
    result = run("vocabulary", "nothing", "--models-dir", tmp_path)
    assert result.exit_code == 1
    assert "no vocabulary and no model 'nothing'; vocabularies: alphazero-4672, from-to-4096, " in result.output
    assert "models: own" in result.output
