"""Backups of the ledger by the commands of docs/operations.md."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from movemask.server.ledger.reader import LedgerReader
from tests.conftest import ROOT
from tests.postgres import binaries
from tests.processes import environment
from tests.server.ledger.records import opened, record, write


def counted(url: str) -> dict[str, int]:
    with opened(url) as ledger:
        return {one.name: one.positions for one in LedgerReader(ledger.database).summaries()}


def test_documented_backups_can_be_restored(database_url: str, tmp_path: Path) -> None:
    system = "SQLite" if database_url.startswith("sqlite") else "PostgreSQL"
    url = f"sqlite:///{tmp_path}/movemask.db" if system == "SQLite" else database_url
    guide = (ROOT / "docs" / "operations.md").read_text()
    commands = guide[guide.index(f"```sh\n# {system}: ") :].split("```")[1]
    _, _, backup, *restore = commands.splitlines()
    tools = os.pathsep.join([str(binaries()), os.environ["PATH"]])
    variables = environment(PATH=tools, MOVEMASK_DATABASE_URL=url)
    with opened(url) as ledger:
        write(ledger, [record(0.1, fen="one"), record(0.2, fen="two", model="other")])
        subprocess.run(["bash", "-euc", backup], cwd=tmp_path, env=variables, check=True)
        write(ledger, [record(0.1, fen="after the backup")])
    assert counted(url) == {"net": 2, "other": 1}
    subprocess.run(["bash", "-euc", "\n".join(restore)], cwd=tmp_path, env=variables, check=True)
    restored = url if system == "SQLite" else f"{url.rpartition('/')[0]}/movemask_restored"
    assert counted(restored) == {"net": 1, "other": 1}
