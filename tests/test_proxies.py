"""deploy/proxies: Caddy and nginx in front of the service."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.conftest import ROOT
from tests.networks import write_fake
from tests.processes import certificate, free_port, served, started, until

PROXIES = ROOT / "deploy" / "proxies"

#: Bytes of a body in these tests, instead of 2 MiB. After an early answer a proxy closes the connection. The rest of a
#: larger body would meet the closed connection, and the answer would be lost.
LIMIT = 64 << 10


class Front(NamedTuple):
    """A proxy in front of the service."""

    port: int
    trusted: ssl.SSLContext
    plain: int | None  # the port without TLS; Caddy's is not configured

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json", **headers}
        )
        try:
            with urllib.request.urlopen(request, timeout=30, context=self.trusted) as answer:
                return answer.status, answer
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error


def configured(name: str, folder: Path, changes: dict[str, str]) -> Path:
    """The shipped configuration with ports and paths of this test."""
    text = (PROXIES / name).read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture(params=["caddy", "nginx"])
def front(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Front]:
    tool = shutil.which(request.param)
    if tool is None or shutil.which("openssl") is None:
        pytest.skip(f"{request.param} is not installed")
    models = write_fake(tmp_path / "m").parent
    cert, key = certificate(tmp_path)
    port, plain = free_port(), free_port()
    settings = (ROOT / "docs" / "settings.md").read_text()
    (prefix,) = re.findall(rf"```{request.param}\n(.*?)```", settings, re.DOTALL)
    limits = ("--client-rate", "0.01", "--client-burst", "50", "--max-body-bytes", str(LIMIT))
    behind_a_proxy = ("--proxies", "1", "--root-path", "/chess", "--keep-alive-seconds", "75")
    with served(models, *behind_a_proxy, *limits) as (_, behind):
        if request.param == "caddy":
            site = f"https://127.0.0.1:{port} {{\n\ttls {cert} {key}"
            changes = {"chess.example.org {": f"{site}\n{prefix}", "127.0.0.1:8000": f"127.0.0.1:{behind}"}
            file = configured("Caddyfile", tmp_path, changes | {"admin off": "admin off\n\tauto_https off"})
            command = [tool, "run", "--config", str(file), "--adapter", "caddyfile"]
        else:
            changes = {"443 ssl http2": f"127.0.0.1:{port} ssl http2", "listen 80;": f"listen 127.0.0.1:{plain};"}
            changes |= {"        location / {\n            proxy": f"{prefix}        location / {{\n            proxy"}
            changes |= {"127.0.0.1:8000": f"127.0.0.1:{behind}"}
            changes |= {"/etc/movemask/cert.pem": str(cert), "/etc/movemask/key.pem": str(key)}
            changes |= {"/run/nginx.pid": f"{tmp_path}/nginx.pid", "/var/log/nginx/error.log": f"{tmp_path}/error.log"}
            changes["auto;"] = "1;"
            file = configured("nginx.conf", tmp_path, changes)
            command = [tool, "-c", str(file), "-p", str(tmp_path), "-g", "daemon off;"]
        environment = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
        trusted = ssl.create_default_context(cafile=str(cert))
        with (
            (tmp_path / "proxy.txt").open("wb") as log,
            started(command, cwd=tmp_path, env=environment, stdout=log, stderr=log) as process,
        ):
            proxy = Front(port, trusted, plain if request.param == "nginx" else None)

            def answers() -> bool:
                assert process.poll() is None, (tmp_path / "proxy.txt").read_text()
                return proxy.ask("/readyz")[0] == 200

            until(answers, "the proxy answers")
            yield proxy


def test_proxy_serves_https_and_forwards_client(front: Front) -> None:
    status, answer = front.ask("/v1/policy", {"moves": []})
    assert status == 200
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "max-age" in answer.headers["Strict-Transport-Security"]  # the service knows that the client uses HTTPS
    assert front.ask("/metrics")[0] == 404
    assert front.ask("/v1/policy/batch", b" " * (LIMIT + 1))[0] == 413
    assert front.ask("/livez", **{"X-Long": "x" * 70_000})[0] in (400, 431)
    # What a client writes into X-Forwarded-For gives it no other share.
    batch = {"positions": [{"fen": "startpos"}] * 40}
    first, _ = front.ask("/v1/policy/batch", batch, **{"X-Forwarded-For": "1.1.1.1"})
    second, refused = front.ask("/v1/policy/batch", batch, **{"X-Forwarded-For": "2.2.2.2"})
    assert (first, second) == (200, 429)
    assert int(refused.headers["Retry-After"]) > 0


def test_proxy_serves_under_prefix(front: Front) -> None:
    """As docs/settings.md has it; metrics stay hidden there too."""
    assert front.ask("/chess/v1/policy", {"moves": []})[0] == 200
    assert front.ask("/chess/metrics")[0] == 404
    for page in ("/chess/", "/chess"):
        status, answer = front.ask(page)
        assert (status, urlsplit(answer.url).path) == (200, "/chess/")
    with urllib.request.urlopen(
        f"https://127.0.0.1:{front.port}/chess/docs", timeout=30, context=front.trusted
    ) as answer:
        documents = answer.read().decode()
    linked = re.findall(r"""(?:src|href)=["']([^"']+)["']|url: '([^']+)'""", documents)
    paths = [path for pair in linked for path in pair if path.startswith("/")]
    assert "/chess/openapi.json" in paths
    assert all(front.ask(path)[0] == 200 for path in paths)


def test_plain_http_redirects_to_https(front: Front) -> None:
    if front.plain is None:
        return  # Caddy does so by itself
    connection = http.client.HTTPConnection("127.0.0.1", front.plain, timeout=30)
    with closing(connection):
        connection.request("GET", "/docs?x=1", headers={"Host": "chess.example.org"})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Location"]) == (301, "https://chess.example.org/docs?x=1")
