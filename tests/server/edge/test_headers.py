"""Response headers, host names, other sites, CORS, forwarded addresses, compression."""

from __future__ import annotations

import gzip
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from movemask.errors import SettingsError
from movemask.server.edge.forwarded import see_through
from movemask.server.edge.headers import Answering, with_headers
from movemask.server.edge.limits import RateLimit
from movemask.server.edge.shared_rates import Rates
from movemask.server.edge.sites import Sites
from movemask.server.edge.traits import OTHER
from movemask.server.process.service import run_service
from movemask.server.settings import Settings
from tests.conftest import Serve
from tests.networks import write_fake
from tests.server.asking import refused


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/version"),
        ("POST", "/v1/policy"),
        ("GET", "/nothing"),
        ("DELETE", "/v1/policy"),
        ("GET", "/metrics"),
    ],
)
def test_security_headers(client: TestClient, method: str, path: str) -> None:
    response = client.request(method, path)
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
    assert response.headers["Cache-Control"] == "no-store"
    assert "Strict-Transport-Security" not in response.headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("chess.example", 200),
        ("CHESS.example:8443", 200),
        ("a.b.example", 200),
        ("a.b.example.", 200),
        ("b.example", 400),
        ("evil.example", 400),
        ("[::1]:8000", 200),
    ],
)
def test_trusted_hosts(serve: Serve, host: str, status: int) -> None:
    client = serve(trusted_hosts="chess.example, *.b.example,[::1]")
    response = client.get("/v1/models", headers={"Host": host})
    assert response.status_code == status
    if status == 400:
        refused(response, 400, "untrusted-host", repr(host), "MOVEMASK_TRUSTED_HOSTS")
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["X-Request-ID"] == response.json()["request_id"]
    assert client.get("/readyz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "127.9.9.9:80", "[::1]:8000", "a.LOCALHOST.", "[::1]"])
def test_loopback_service_answers_to_loopback_names(client: TestClient, host: str) -> None:
    assert client.get("/v1/version", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example:8000", "127.0.0.1.evil.example", "evillocalhost", "[::2]", "", "126.0.0.1"]
)
def test_loopback_service_refuses_other_names(client: TestClient, host: str) -> None:
    """A site that pointed its name at 127.0.0.1 read the positions that others had asked about."""
    response = client.get("/v1/leakage/positions", headers={"Host": host})
    refused(response, 400, "untrusted-host", "MOVEMASK_TRUSTED_HOSTS")
    assert client.get("/livez", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "settings",
    [
        {"proxies": 1},
        {"host": "0.0.0.0"},
        {"host": "unix:/tmp/socket"},
        {"trusted_hosts": "*"},
        {"trusted_hosts": "chess.example"},
        {"cors_origins": "*"},
        {"api_keys": "some-key-of-nobody-0123456789"},
    ],
    ids=str,
)
def test_shared_service_answers_to_any_name(settings: dict[str, Any]) -> None:
    keyed = "api_keys" in settings
    sites = Sites(Settings.read(**settings).hosts(keyed=keyed))
    sites.check_host({"headers": [(b"host", b"chess.example:8000")]})


@pytest.mark.parametrize("path", ["/v1/policy?fen=startpos", "/metrics", "/docs", "/nothing"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_request_by_page_of_another_site_is_refused(client: TestClient, method: str, path: str) -> None:
    """`<img src="http://127.0.0.1:8000/v1/policy?fen=…">` ran the network and wrote to the ledger."""
    image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    response = client.request(method, path, headers=image)
    assert response.status_code == 403
    if method == "GET":
        refused(response, 403, "cross-site", "MOVEMASK_CORS_ORIGINS")


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
        {"Origin": "https://example.com"},
    ],
    ids=str,
)
def test_links_and_own_pages_are_answered(client: TestClient, headers: dict[str, str]) -> None:
    assert client.get("/v1/policy?fen=startpos", headers=headers).status_code == 200


def test_probes_are_answered_to_pages_of_any_site(client: TestClient) -> None:
    image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert client.get("/livez", headers=image).status_code == 200


@pytest.mark.parametrize(
    ("origins", "origin", "status"),
    [
        ("https://example.org", "https://example.org", 200),
        ("https://example.org", "https://a", 403),
        ("*", "https://a", 200),
    ],
)
def test_allowed_origins_may_get(serve: Serve, origins: str, origin: str, status: int) -> None:
    client = serve(cors_origins=origins)
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Origin": origin}
    assert client.get("/v1/policy?fen=startpos", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("proxies", "forwarded", "expected"),
    [
        (0, ["1.1.1.1"], "9.9.9.9"),
        (1, ["1.1.1.1, 2.2.2.2"], "2.2.2.2"),
        (2, ["1.1.1.1, 2.2.2.2"], "1.1.1.1"),
        (2, ["6.6.6.6, 1.1.1.1", "2.2.2.2"], "1.1.1.1"),
        (2, ["1.1.1.1"], "9.9.9.9"),
        (1, ["9.9.9.8, 1.1.1.1", ""], "9.9.9.9"),  # the proxy saw nobody: not what the client wrote
        (1, ["nobody"], "9.9.9.9"),
        (1, ["[2001:db8::1]:40312"], "2001:db8::1"),
    ],
)
def test_forwarded_client(proxies: int, forwarded: list[str], expected: str) -> None:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded] + [(b"x-forwarded-proto", b"https")]
    scope: Any = {"type": "http", "path": "/", "client": ("9.9.9.9", 1), "scheme": "http", "headers": headers}
    if proxies:
        see_through(scope, proxies)
    assert (scope["client"][0], scope["scheme"]) == (expected, "https" if proxies else "http")
    secure = with_headers([], OTHER, "https", Answering("id", "", RateLimit(0, 1, Rates())))
    assert (b"strict-transport-security", b"max-age=31536000") in secure


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Puts back the handlers that `serve` replaces."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("file_names", "message"),
    [
        ({"tls_key": "key.pem"}, "MOVEMASK_TLS_KEY: needs MOVEMASK_TLS_CERT"),
        ({"tls_cert": "none"}, "MOVEMASK_TLS_CERT: .*none and its key cannot be read: No such file"),
        ({"tls_cert": "m/fake.toml"}, "MOVEMASK_TLS_CERT: .*cannot be read"),
    ],
)
def test_invalid_certificate_raises(
    tmp_path: Path, own_signals: None, file_names: dict[str, str], message: str
) -> None:
    files = {name: tmp_path / file for name, file in file_names.items()}
    with pytest.raises(SettingsError, match=message):
        run_service(Settings.read(models_dir=write_fake(tmp_path / "m").parent, port=0, **files))


PAGE, STRANGER = "https://example.org", "https://example.com"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,authorization"}


@pytest.mark.parametrize("origins", ["example.org", "https://example.org/page", "https://a, b", "http://[::1]:80,*"])
def test_invalid_cors_origins_raise(origins: str) -> None:
    with pytest.raises(SettingsError, match=r"MOVEMASK_CORS_ORIGINS: .* is not \* or origins such as https"):
        Settings.read(cors_origins=origins)


@pytest.mark.parametrize(("origins", "allowed"), [(f"{PAGE},http://localhost:5500", PAGE), ("*", "*"), (None, None)])
def test_cors_origins(serve: Serve, origins: str | None, allowed: str | None) -> None:
    client = serve(cors_origins=origins)
    preflight = client.options("/v1/policy", headers={"Origin": PAGE, **PREFLIGHT})
    assert preflight.status_code == (200 if allowed else 204)
    assert preflight.headers.get("Access-Control-Allow-Origin") == allowed
    for body, status in (({"moves": []}, 200), ({"fen": "x"}, 422)):  # a page can read problems too
        response = client.post("/v1/policy", json=body, headers={"Origin": PAGE})
        assert (response.status_code, response.headers.get("Access-Control-Allow-Origin")) == (status, allowed)
        assert ("X-Request-ID" in response.headers.get("Access-Control-Expose-Headers", "")) == bool(allowed)
        assert "Access-Control-Allow-Credentials" not in response.headers
    stranger = client.post("/v1/policy", json={"moves": []}, headers={"Origin": STRANGER})
    assert stranger.headers.get("Access-Control-Allow-Origin") == ("*" if allowed == "*" else None)


def test_preflight_is_limited_logged_and_counted(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """Preflights had no id, no line in the log, no metric and no rate: eight of eight passed a burst of five."""
    client = serve(cors_origins=PAGE, client_rate=0.01, client_burst=5)
    headers = {"Origin": PAGE, **PREFLIGHT, "X-Request-ID": "mine"}
    with caplog.at_level("INFO", "access"):
        responses = [client.options("/v1/policy", headers=headers) for _ in range(6)]
    assert [response.status_code for response in responses] == [200] * 5 + [429]
    for response in responses:
        assert response.headers["X-Request-ID"] == "mine"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["RateLimit-Policy"] == '"positions";q=5;w=500'
    assert responses[0].headers["Access-Control-Allow-Origin"] == PAGE
    assert len([line for line in caplog.messages if "OPTIONS" in line]) == 6
    assert (
        'movemask_requests_total{method="OPTIONS",route="/v1/policy",status="200"} 5.0' in client.get("/metrics").text
    )
    limited = client.post("/v1/policy", json={"moves": []}, headers={"Origin": PAGE})
    assert (limited.status_code, limited.headers["Access-Control-Allow-Origin"]) == (429, PAGE)
    assert "Retry-After" in limited.headers["Access-Control-Expose-Headers"]


def test_cors_allows_etags(serve: Serve) -> None:
    client = serve(cors_origins=PAGE)
    sent = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "if-none-match"}
    assert client.options("/v1/policy", headers={"Origin": PAGE, **sent}).status_code == 200
    response = client.get("/v1/policy?fen=startpos", headers={"Origin": PAGE})
    assert "ETag" in response.headers["Access-Control-Expose-Headers"]
    unchanged = client.get(
        "/v1/policy?fen=startpos", headers={"Origin": PAGE, "If-None-Match": response.headers["ETag"]}
    )
    assert (unchanged.status_code, unchanged.headers["Access-Control-Allow-Origin"]) == (304, PAGE)


def test_cors_allows_tracing_headers(serve: Serve) -> None:
    client = serve(cors_origins=PAGE, mcp=True)
    for names in ("content-type,mcp-protocol-version,mcp-session-id,last-event-id", "traceparent,tracestate,baggage"):
        sent = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": f"{names},sentry-trace"}
        for path in ("/mcp", "/v1/policy"):
            assert client.options(path, headers={"Origin": PAGE, **sent}).status_code == 200


def test_cors_with_keys(serve: Serve) -> None:
    client = serve(cors_origins=PAGE, api_keys="some-key-of-nobody-0123456789")
    assert client.options("/v1/policy", headers={"Origin": PAGE, **PREFLIGHT}).status_code == 200
    refused = client.post("/v1/policy", json={"moves": []}, headers={"Origin": PAGE})
    assert (refused.status_code, refused.headers["Access-Control-Allow-Origin"]) == (401, PAGE)


BATCH = {"positions": [{"fen": "startpos"}] * 64}


def raw(client: TestClient, coding: str, body: Any, **headers: str) -> tuple[Any, bytes]:
    """The response's headers, and its body as it travelled."""
    headers["Accept-Encoding"] = coding
    with client.stream("POST", "/v1/policy/batch", headers=headers, json=body) as response:
        return response.headers, b"".join(response.iter_raw())


def test_large_response_is_compressed(client: TestClient) -> None:
    _, plain = raw(client, "identity", BATCH)
    assert len(plain) > 16_384
    headers, packed = raw(client, "gzip", BATCH)
    assert (headers["content-encoding"], headers["vary"]) == ("gzip", "Accept-Encoding")
    assert len(packed) < len(plain) / 5
    assert gzip.decompress(packed).partition(b'"timing"')[0] == plain.partition(b'"timing"')[0]


@pytest.mark.parametrize(("coding", "size"), [("gzip", 1), ("", 64), ("br", 64)])
def test_response_stays_uncompressed(client: TestClient, coding: str, size: int) -> None:
    headers, packed = raw(client, coding, {"positions": [{"fen": "startpos"}] * size})
    assert "content-encoding" not in headers
    assert packed.startswith(b'{"results":[')


def test_stream_is_compressed(client: TestClient) -> None:
    headers, packed = raw(client, "gzip", BATCH, Accept="application/x-ndjson")
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed).count(b"\n") == 64
