"""Audits from S3 to S3: the same figures as from files.

The storage is moto's server, which speaks S3 by HTTP; the client is pyarrow's own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard
from pyarrow import fs

from movemask.audit.files import Folder
from tests.audit.clusters import done, game, needs_ray, table
from tests.audit.conftest import write_models
from tests.processes import free_port, started, until

SERVER = shutil.which("moto_server")

pytestmark = [
    pytest.mark.ray,
    needs_ray,
    pytest.mark.skipif(SERVER is None, reason="moto_server is not on the PATH: pip install 'moto[server]'"),
]

MOVEMASK = [sys.executable, "-m", "movemask"]

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What the URIs of a bucket `games` end with."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    port = free_port()
    command = [str(SERVER), "-H", "127.0.0.1", "-p", str(port)]
    with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        query = f"?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
        system = fs.S3FileSystem(endpoint_override=f"127.0.0.1:{port}", scheme="http", allow_bucket_creation=True)
        until(lambda: made(system, "games"), "the storage answers")
        yield query


def made(system: fs.S3FileSystem, bucket: str) -> bool:
    try:
        system.create_dir(bucket)
    except OSError:
        return False
    return True


def test_audit_from_s3_to_s3_matches_one_machine(tmp_path: Path, query: str) -> None:
    write_models(tmp_path)
    texts = [game(number) for number in range(60)]
    frames = ["".join(texts[at : at + 6]).encode() for at in range(0, 60, 6)]
    names = []
    for name, data in (("a.pgn", "".join(texts).encode()), ("b.pgn.zst", b"".join(map(zstandard.compress, frames)))):
        names.append(f"s3://games/{name}{query}")
        Folder(names[-1]).write_bytes(data)
    out = f"s3://games/audits/one{query}"
    audit = [*MOVEMASK, "audit", *names, "--models-dir", "m", "--model", "net", "--every", "3"]
    done(tmp_path, [*audit, "--out", "local"])
    local = tmp_path / "local" / "summary.json"
    done(tmp_path, [*audit, "--out", out, "--ray", "local", "--jobs", "2"])
    figures = [json.loads(text)["models"] for text in ((Folder(out) / "summary.json").read_text(), local.read_text())]
    assert figures[0] == figures[1]
    assert Folder(out).names() == ["positions.parquet", "report.html", "summary.json"]
    system, path = (Folder(out) / "positions.parquet").place
    assert pq.read_table(path, filesystem=system).equals(table(tmp_path / "local"))
