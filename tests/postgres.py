"""A real PostgreSQL for the tests: Debian's package, a cluster of its own in a folder, on a port of its own.

And what stands in front of it: a proxy for faults of the network, and a real pooler.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests.processes import free_port, started, until


def binaries() -> Path | None:
    """The folder of the newest server there is, None of none."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: int(file.parts[-3]))
    newest = programs[-1] if programs else shutil.which("initdb")
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

    def setting(self, name: str) -> str:
        """The value of a setting in a new session."""
        with psycopg.connect(self.url()) as connection:
            row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
        assert row is not None
        return str(row[0])

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


@contextmanager
def pooler(server: Server) -> Iterator[int]:
    """The port of a PgBouncer in transaction mode, whose clients share one connection to a server."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed (Debian: apt-get install pgbouncer)")
    port = free_port()
    file = server.folder / "pgbouncer.ini"
    file.write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port} user=postgres\n"
        f"[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\nunix_socket_dir=\nauth_type=any\n"
        "pool_mode=transaction\ndefault_pool_size=1\n"
    )
    command = [program, *(("-u", "postgres") if os.geteuid() == 0 else ()), "-q", str(file)]
    with started(command):
        until(lambda: socket.create_connection(("127.0.0.1", port)), "the pooler answers").close()
        yield port


#: A socket filter by which every segment that arrives is dropped, and none acknowledged.
_DROP = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
_ATTACH_FILTER, _DETACH_FILTER = 26, 27  # Linux's SO_ATTACH_FILTER, SO_DETACH_FILTER


def _deafen(end: socket.socket) -> None:
    end.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(_DROP)))


class Proxy:
    """A TCP proxy in front of a server that loses replies or falls silent. Close it by `with`.

    server : may be changed; new connections then go to another one
    lose_replies : how many of the next COMMITs reach the server without their reply reaching the client, whose
        connection breaks instead
    lost : replies lost so far, each of a COMMIT that the server has carried out
    hold_commits : how many of the next COMMITs do not reach the server; their connections fall silent for good
    """

    def __init__(self, server: Server) -> None:
        self.lose_replies = 0
        self.lost = 0
        self.hold_commits = 0
        self.server = self._first = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._links: list[_Link] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for link in self._links:
            link.speaking.set()
            link.close()

    def url(self, database_url: str) -> str:
        """The URL of a database of the server, by way of the proxy."""
        port = self._listener.getsockname()[1]
        return database_url.replace(f":{self._first.port}/", f":{port}/")

    def fall_silent(self, *, new_too: bool = False) -> None:
        """Connections stay open and no packet passes, as behind a firewall that forgot them; with `new_too`, new
        connections likewise."""
        if new_too:
            _deafen(self._listener)
        for link in self._links:
            link.fall_silent()

    def speak(self) -> None:
        """New connections pass."""
        self._listener.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                link = _Link(self, client, socket.create_connection(("127.0.0.1", self.server.port)))
                link.speaking.set()
                self._links.append(link)
                for pump in (link.requests, link.replies):
                    threading.Thread(target=pump, daemon=True).start()


class _Link:
    """A connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.speaking = threading.Event()
        self._proxy, self._client, self._server = proxy, client, server
        self._losing = False

    def requests(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(65_536):
                if b"COMMIT" in data and self._proxy.hold_commits:
                    self._proxy.hold_commits -= 1
                    self.fall_silent()
                self.speaking.wait()
                if b"COMMIT" in data and self._proxy.lose_replies:
                    self._proxy.lose_replies -= 1
                    self._losing = True
                self._server.sendall(data)
        self.close()

    def replies(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(65_536):
                self.speaking.wait()
                if self._losing and b"COMMIT" in data:
                    self._proxy.lost += 1
                    break
                self._client.sendall(data)
        self.close()

    def fall_silent(self) -> None:
        self.speaking.clear()
        with suppress(OSError):  # it is closed
            _deafen(self._client)

    def close(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
