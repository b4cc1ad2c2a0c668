"""Client connections: Unix sockets, proxies, event loops, threads."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import movemask
from movemask.errors import InvalidParameter
from tests.client.hostile import MODELS, Connection, answer, misbehaving
from tests.client.test_hostile import call
from tests.networks import write_net
from tests.processes import environment, started, until


@pytest.fixture(scope="module")
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Unix socket of a real service."""
    folder = tmp_path_factory.mktemp("service")
    write_net(folder / "models")
    path = folder / "x.sock"
    command = [sys.executable, "-m", "uvicorn", "--factory", "movemask.server.app:create_app", "--uds", str(path)]
    settings = environment(MOVEMASK_MODELS_DIR=str(folder / "models"))

    def answered() -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
        return True

    with open(folder / "log.txt", "wb") as log, started(command, cwd=folder, env=settings, stdout=log, stderr=log):
        until(answered, "the service listens on its socket")
        yield path


def test_unix_socket(socket_path: Path) -> None:
    for url in (f"unix:{socket_path}", f"unix://{socket_path}"):
        assert [model.name for model in call(url, "models").models] == ["net"]
        assert call(url, "policy", "startpos").turn == "white"
        assert len(call(url, "policies", ["startpos"] * 5)) == 5
        with pytest.raises(movemask.ApiError, match="fen: 'x' is not a FEN"):
            call(url, "policy", "x")


def test_engine_plays_through_unix_socket(socket_path: Path) -> None:
    command = [sys.executable, "-m", "movemask", "uci", "--url", f"unix:{socket_path}"]
    commands = "position startpos\ngo\nquit\n"
    done = subprocess.run(command, env=environment(), input=commands, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"bestmove \w{4}", done.stdout.splitlines()[-1])


# httpcore2 leaves a socket that cannot be connected to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_unserved_socket_is_named(tmp_path: Path) -> None:
    nobody, file = tmp_path / "nobody.sock", tmp_path / "file"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(nobody))
        file.touch()
        for path in (nobody, file, tmp_path / "none.sock", tmp_path / ("x" * 200)):
            with pytest.raises(movemask.ServiceUnreachable) as caught:
                call(f"unix:{path}", "models")
            assert str(caught.value).startswith(f"unix:{path}/v1/models: ")


def test_environment_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[bytes] = []

    def proxy(connection: Connection) -> None:
        requests.append(connection.request)
        answer(MODELS)(connection)

    with misbehaving(proxy) as url:
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("http_proxy", url.replace("//", "//user:secret@"))
        assert call("http://x.example/prefix", "models").models == []
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert call(url, "models").models == []
    assert requests[0].startswith(b"GET http://x.example/prefix/v1/models HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n" in requests[0]
    assert requests[1].startswith(b"GET /v1/models HTTP/1.1\r\n")


def test_invalid_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    for proxy in ("socks5://127.0.0.1:1", "ftp://127.0.0.1"):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(InvalidParameter, match=r"^url: the proxy (socks5|ftp)://.* of HTTP_PROXY cannot be used: "):
            movemask.Client("http://x.example").models()


def test_silent_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service may well run: what failed is the way to it."""
    for variable in ("HTTP_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    words = r"the proxy {} of HTTP_PROXY; NO_PROXY excepts an address$"
    for proxy, name in (
        ("http://user:secret@127.0.0.1:1", "http://127.0.0.1:1"),
        ("127.0.0.1:1", "127.0.0.1:1"),
    ):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(movemask.ServiceUnreachable, match=words.format(name)):
            call("http://127.0.0.1:8000", "models")
    monkeypatch.setenv("no_proxy", "127.0.0.0/8")  # a network, which libraries do not understand here
    with pytest.raises(movemask.ServiceUnreachable, match="of HTTP_PROXY"):
        call("http://127.0.0.1:8000", "models")


def test_client_survives_its_event_loop() -> None:
    """`asyncio.run` twice is common in scripts; connections of the first loop cannot be used in the second."""
    with misbehaving(answer(MODELS)) as url:
        client = movemask.AsyncClient(url)
        for _ in range(2):
            assert asyncio.run(client.models()).models == []


def test_threads_share_client() -> None:
    def behave(connection: Connection) -> None:
        while connection.request:
            answer(MODELS)(connection)
            connection.request = connection.read_request()

    with misbehaving(behave) as url, movemask.Client(url) as client:
        result: list[movemask.Client] = []

        def ask() -> None:
            for _ in range(10):
                assert client.models().models == []
            result.append(client)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(result) == 8


def test_path_prefix_is_kept() -> None:
    requests: list[bytes] = []

    def behave(connection: Connection) -> None:
        requests.append(connection.request)
        answer(MODELS)(connection)

    with misbehaving(behave) as url:
        for prefix in ("", "/", "/movemask", "/movemask/"):
            assert call(url + prefix, "models").models == []
    assert [request.split(b" ")[1] for request in requests] == [b"/v1/models"] * 2 + [b"/movemask/v1/models"] * 2
