"""What would be lost with the promise of the audit on Ray: twenty thousand games, and every figure the same to the last
digit on one machine, on one node, and on three nodes of which one dies.

Takes about ten minutes on two cores. With KEEP=FOLDER the audits stay in that folder, and a run that was broken off
goes on where it was: each audit by itself, and those that are finished are not done again.
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import zstandard

from benchmarks.ray_nodes import nodes
from tests.bulk.clusters import compared, done, game, needs_ray
from tests.conftest import ROOT
from tests.processes import started, until

pytestmark = [pytest.mark.ray, pytest.mark.deep, needs_ray]

GAMES = 20_000

#: Rated games played on lichess, if they are here; otherwise random ones are audited.
COLLECTION = ROOT.parent / "shared" / "data" / "games_online.csv.zst"

MOVEMASK = [sys.executable, "-m", "movemask"]

#: The shipped network, every kind, every tenth position: what takes the time of every position, reading the games and
#: playing through them, is done in full, and the network a tenth as often.
AUDIT = [*MOVEMASK, "audit", "games.pgn", "--every", "10", "--progress", "json"]


def games() -> Iterator[str]:
    """Texts of games; the moves are in coordinates, as the collection has them."""
    if not COLLECTION.exists():
        yield from map(game, range(GAMES))
        return
    with COLLECTION.open("rb") as file:
        text = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))
        for row in csv.DictReader(text):
            if row["rating_system"] == "lichess":
                ratings = f'[WhiteElo "{row["white_elo"]}"]\n[BlackElo "{row["black_elo"]}"]'
                yield f'[Event "{row["source"]}"]\n{ratings}\n\n{row["moves"]} *\n\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("KEEP") or tmp_path)
    folder.mkdir(exist_ok=True)
    if not (folder / "games.pgn").exists():
        (folder / "half").write_text("".join(islice(games(), GAMES)))
        (folder / "half").rename(folder / "games.pgn")
    return folder


def finished(out: Path) -> bool:
    return (out / "summary.json").exists()


def test_twenty_thousand_games_are_the_same_on_one_machine_one_node_and_three_of_which_one_dies(folder: Path) -> None:
    local, one, three = folder / "local", folder / "one", folder / "three"
    if not finished(local):
        done(folder, [*AUDIT, "--out", "local"])
    if not finished(one):
        with nodes(1, cpus=2) as cluster:
            done(folder, [*AUDIT, "--out", "one", "--ray", cluster.address])
    if not finished(three):
        with nodes(3) as cluster:
            arguments = [*AUDIT, "--out", "three", "--ray", cluster.address]
            with started(arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
                before = parts(three)
                until(lambda: parts(three) > before + 20 or process.poll() is not None, "twenty parts", 400)
                assert process.poll() is None
                cluster.kill()
                said, _ = process.communicate()
                assert process.returncode == 0, said
    compared(folder, "local", "one", "three")
    ((_, figures),) = json.loads((local / "summary.json").read_text())["models"].items()
    assert figures["positions"] > 2 * GAMES


def parts(out: Path) -> int:
    return len(list((out / "parts").glob("*.parquet")))
