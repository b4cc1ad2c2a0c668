"""Maia-1 over HTTP, against lc0's numbers. Needs the lc0 export, which is not in this repository."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from movemask.network_tools.installation import import_lc0
from tests.conftest import ROOT, Serve

MAIA = ROOT.parent / "shared" / "maia1"
EXPORT, REFERENCE = MAIA / "maia-1500.lc0-export.onnx", MAIA / "lc0_reference.jsonl.gz"

pytestmark = pytest.mark.skipif(not EXPORT.exists(), reason="maia-1500: ../shared/maia1 is not here")

TOML = (ROOT / "docs" / "examples" / "maia-1500.toml").read_text()


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "m"
    folder.mkdir()
    shutil.copy(EXPORT, folder / "maia-1500.onnx")
    (folder / "maia-1500.toml").write_text(TOML)
    return folder


def reference() -> list[Any]:
    with gzip.open(REFERENCE, "rt") as rows:
        return [json.loads(row) for row in rows]


def held_to_lc0(rows: list[Any], answers: list[Any], name: str) -> None:
    for row, response in zip(rows, answers, strict=True):
        expected = dict(zip(row["legal"], row[name]["probability"], strict=True))
        result = {move["uci"]: move["probability"] for move in response["moves"]}
        assert result == pytest.approx(expected, abs=1e-4), row["fen"]


def test_probabilities_match_lc0(serve: Serve, models: Path) -> None:
    rows = reference()
    assert len(rows) == 200
    client = serve(models)
    results = client.post("/v1/policy/batch", json={"positions": [{"fen": row["fen"]} for row in rows]}).json()
    held_to_lc0(rows, results["results"], "maia-1500")
    for row, response in zip(rows, results["results"], strict=True):
        value = response["value"]
        assert value["win"] - value["loss"] == pytest.approx(row["maia-1500"]["q"], abs=1e-4)
        assert value["draw"] == pytest.approx(row["maia-1500"]["d"], abs=1e-4)


def test_known_leak_is_not_served(serve: Serve, models: Path) -> None:
    client = serve(models)
    response = client.post("/v1/policy", json={"fen": "r5K1/6P1/6k1/2R5/P7/8/P7/8 w - - 1 51"}).json()
    assert [move["uci"] for move in response["moves"]] == ["c5c8"]
    assert response["leakage"]["raw"] > 0.99
    assert response["leakage"]["multiplied"] > 0.7
    assert response["leakage"]["served"] == 0.0


def test_imported_weight_files_match_lc0(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    for file in MAIA.glob("*.pb.gz"):
        import_lc0(file, folder, file.name.removesuffix(".pb.gz"))
    for file in (ROOT / "models").glob("movemask-*"):
        shutil.copy(file, folder)
    client = serve(folder)
    entries = {entry["name"]: entry for entry in client.get("/v1/models").json()["models"] if entry["served"]}
    assert any(other.startswith("movemask") for other in entries)
    rows = reference()
    for name in ("maia-1100", "maia-1500", "maia-1900"):
        body = {"model": name, "positions": [{"fen": row["fen"]} for row in rows]}
        held_to_lc0(rows, client.post("/v1/policy/batch", json=body).json()["results"], name)
        assert client.get("/v1/leakage").json()["models"][name]["positions"] == len(rows)
        output = client.get(f"/v1/models/{name}").json()
        assert output["leakage"] == client.get("/v1/leakage").json()["models"][name]
        assert f", {name}.pb.gz," in entries[name]["card"]["source"]
