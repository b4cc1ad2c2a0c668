"""A real PostgreSQL for the tests: Debian's package, a cluster of its own in a folder, on a port of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from tests.processes import free_port


def binaries() -> Path | None:
    """The folder of the newest server there is, None of none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: int(file.parts[-3]))
    newest = found[-1] if found else shutil.which("initdb")
    return Path(newest).parent if newest else None


class Server:
    """A cluster that can be stopped and started again, and databases in it."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self.folder = folder
        self._data, self._tools, self._log = folder / "data", tools, folder / "log"
        self.port = free_port()
        self._made = 0
        # The server refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")

    def start(self) -> None:
        """Starts it and waits until it answers."""
        settings = f"-p {self.port} -h 127.0.0.1 -k /tmp -F -c max_connections=50"
        self._run("pg_ctl", "-D", str(self._data), "-o", settings, "-l", str(self._log), "-w", "-t", "60", "start")

    def stop(self) -> None:
        """Stops it at once, as a machine that goes down would."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def database(self, options: str = "") -> str:
        """Makes an empty database; its URL."""
        self._made += 1
        name = f"movemask_{self._made}"
        self.execute(f"CREATE DATABASE {name} {options}")
        return self.url(name)

    def url(self, name: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Runs statements outside of a transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _run(self, tool: str, *arguments: str) -> None:
        command: Sequence[str] = [str(self._tools / tool), *arguments]
        if os.geteuid() == 0:
            command = ["setpriv", f"--reuid={self._user}", f"--regid={self._user}", "--clear-groups", *command]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
        if done.returncode:
            log = self._log.read_text() if self._log.exists() else ""
            raise RuntimeError(f"{tool}: {done.stdout}{done.stderr}{log}")


@contextmanager
def running(tools: Path) -> Iterator[Server]:
    """A server that runs for as long as this lasts, in a folder that any user can get to."""
    with tempfile.TemporaryDirectory(prefix="movemask-postgres-") as folder:
        server = Server(Path(folder), tools)
        server.start()
        try:
            yield server
        finally:
            with suppress(RuntimeError):  # it was stopped already
                server.stop()
