"""API keys: scopes of every route, spellings of paths, the file and its commands."""

from __future__ import annotations

import hashlib
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.routing import Mount

from movemask.errors import KeysError, SettingsError
from movemask.server.api.routing import ScopedRoute
from movemask.server.app import create_app
from movemask.server.edge.keys import Keys, KeyScope, changed_keys, new_key, read_keys
from movemask.server.settings import Settings
from tests.conftest import Serve
from tests.networks import write_fake
from tests.processes import run, served, stopped
from tests.server.asking import refused

SECRET = "a-secret-of-some-length-0123456789"
#: Of each scope, a request that needs it.
ASKED = {
    "policy": ("POST", "/v1/policy"),
    "leakage": ("GET", "/v1/leakage"),
    "positions": ("GET", "/v1/leakage/positions"),
    "metrics": ("GET", "/metrics"),
}


def status(client: TestClient, method: str, path: str, key: str | None = None) -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    body: Any = {"moves": []} if method == "POST" else None
    return int(client.request(method, path, json=body, headers=headers).status_code)


def new(file: Path, name: str, *scopes: str) -> str:
    result = run("keys", "new", name, "--file", file, *(part for scope in scopes for part in ("--scope", scope)))
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


#: Of each route, the scopes of which a key needs one; none where no key is needed. A new route must be added here.
NEEDED: dict[str, str] = {
    "POST /v1/policy": "policy",
    "POST /v1/policy/batch": "policy",
    "POST /v1/policy/sweep": "policy",
    "POST /v1/move": "policy",
    "POST /v1/games": "policy",
    "POST /v1/games/split": "policy",
    "POST /v1/audit": "policy",
    "GET /v1/models": "policy leakage",
    "GET /v1/models/{name}": "policy leakage",
    "GET /v1/vocabularies/{name}": "policy",
    "GET /v1/leakage": "leakage",
    "GET /v1/policy": "policy",
    "GET /v1/leakage/history": "leakage",
    "GET /v1/leakage/worst": "positions",
    "GET /v1/leakage/positions": "positions",
    "GET /v1/version": "policy leakage positions metrics",
    "GET /metrics": "metrics",
    "GET /": "",
    "GET /page/{version}/{name}": "",
    "GET /livez": "",
    "GET /readyz": "",
    "GET /docs": "",
    "GET /docs/oauth2-redirect": "",
    "GET /openapi.json": "",
}


def routes_of(app: Any) -> set[str]:
    """All routes as `METHOD /path`, those below a router too; HEAD goes with GET."""
    names = set()
    waiting = list(app.routes)
    while waiting:
        route = waiting.pop()
        if isinstance(route, Mount):
            assert route.path == "/static-offline-docs", f"{route.path}: say who may use what is mounted"
        elif hasattr(route, "methods"):
            names |= {f"{method} {route.path}" for method in route.methods or {"GET"} if method != "HEAD"}
        else:
            waiting += route.original_router.routes if hasattr(route, "original_router") else route.routes
    return names


def test_every_route_needs_its_scope(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    texts = {scope: new(file, f"key-{scope}", scope) for scope in ASKED}
    client = serve(api_keys_file=file)
    app: Any = client.app
    documented = {f"{way.upper()} {path}" for path, ways in app.openapi()["paths"].items() for way in ways}
    routes = routes_of(app) | documented
    assert routes == set(NEEDED)
    for route, scopes in NEEDED.items():
        needed = scopes.split()
        method, path = route.split()
        path = path.replace("{name}", "fake")
        for way in (method, "HEAD") if method == "GET" else (method,):
            assert (status(client, way, path) == 401) == bool(needed), (way, path)
            for scope, text in texts.items():
                code = status(client, way, path, text)
                assert (code == 403) == bool(needed and scope not in needed), (way, path, scope, code)
                assert code != 401


def test_every_route_declares_scopes(serve: Serve) -> None:
    app: Any = serve(mcp=True, page=True).app
    ours = {route.path for route in app.routes if isinstance(route, ScopedRoute)}
    others = {route.path for route in app.routes} - ours
    documents = {"/docs", "/docs/oauth2-redirect", "/static-offline-docs"}
    assert others == documents | {"/mcp"}  # which needs any key: test_mcp.py


def spellings(path: str) -> list[str]:
    """Other ways of writing a path, of which none may lead to its route without its scope."""
    first, last = path.rsplit("/", 1)
    letter = f"%{ord(last[:1] or 'x'):02x}"
    ends = ["%0a", "%0A", "%0d", "%00", "%09", "%7f", "%20", "%0a%0a", "/", "//", "/.", "/%2e", ";", ";x=/livez"]
    ends += [".json", "%2f", "%3f", "%23", "?", "??", "?x=/livez", "?key=KEY"]
    return [
        path,
        *(path + end for end in ends),
        *(f"/{path}", f"/.{path}", f"/livez/..{path}", f"/page/..{path}", f"/%0a{path}", path.upper()),
        *(
            f"{first}//{last}",
            f"{first}/./{last}",
            f"/{first}%2f{last}",
            f"/{first}\\{last}",
            f"{first}/{letter}{last[1:]}",
        ),
    ]


def test_spellings_of_a_path_pass_no_scope(serve: Serve, tmp_path: Path) -> None:
    """`/metrics%0a` answered a key that may not read the metrics, and everybody behind a proxy that hides the path."""
    file = tmp_path / "keys"
    texts = {scope: new(file, f"key-{scope}", scope) for scope in ASKED}
    client = serve(api_keys_file=file)
    app: Any = client.app
    passed = []
    for route, scopes in NEEDED.items():
        method, path = route.split()
        if not scopes or path not in app.openapi()["paths"]:
            continue
        for spelling in (f"http://localhost{spelling}" for spelling in spellings(path.replace("{name}", "fake"))):
            for scope in [name for name in texts if name not in scopes.split()][:1]:  # as good as another that may not
                if status(client, method, spelling, texts[scope]) not in (400, 403, 404, 405):
                    passed.append((method, spelling, scope))
            if status(client, method, spelling) not in (400, 401, 404, 405):
                passed.append((method, spelling, "no key"))
    assert passed == [], "\n".join(map(str, passed))
    for path in ("/metrics%0a", "/livez%0a", "/v1/models/fake%0a", "/x%00", "/docs%0a"):
        refused(client.get(path, headers={"Authorization": f"Bearer {texts['metrics']}"}), 400, "malformed-path")


def test_malformed_paths_open_no_route(serve: Serve) -> None:
    client = serve(api_keys=f"{SECRET}:policy,{SECRET}2")
    paths = [
        *("/v1", "/v1/nothing", "/nothing", "//metrics", "/metrics/", "/V1/policy", "/v1/leakage/positions/"),
        *("//v1/leakage/positions", "/v1//leakage/positions", "/v1/leakage/%70ositions", "/v1%2fleakage%2fpositions"),
        *("/page/../v1/leakage/positions", "/docs/../metrics", "/livez/../metrics", "/page/%2e%2e/metrics"),
        *("/v1/leakage/positions?key=KEY", "/v1/leakage/positions?access_token=KEY", "/v1/leakage/positions;x=/livez"),
        *("/livez/metrics", "/static-offline-docs/../metrics", "/static-offline-docs/..%2f..%2fapp.py", "/%6detrics"),
    ]
    for path in paths:
        for headers in ({}, {"Authorization": f"Bearer {SECRET}"}):
            url = "http://localhost" + path.replace("KEY", SECRET + "2")
            answer = client.request("GET", url, headers=headers, follow_redirects=False)
            assert answer.status_code in (401, 403, 404, 307), path
            assert "movemask_" not in answer.text
            assert '"positions"' not in answer.text


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([f"Bearer {SECRET}"], 200),
        ([f"BEARER   {SECRET}  "], 200),
        ([f"Bearer {SECRET}", f"Bearer {SECRET}"], 401),
        ([f"Bearer {SECRET}, Bearer {SECRET}"], 401),
        ([f"Bearer {SECRET.upper()}"], 401),
        ([f"Bearer {SECRET}\x00"], 401),
        ([f"Bearer sha256:{hashlib.sha256(SECRET.encode()).hexdigest()}"], 401),
        ([f"Bearer {hashlib.sha256(SECRET.encode()).hexdigest()}"], 401),
        (["Bearer env-1"], 401),
        ([f"Bearer {SECRET[:-1]}"], 401),
        (["Bearer \xff"], 401),
        ([f"Basic {SECRET}"], 401),
        ([SECRET], 401),
        ([""], 401),
        (["Bearer " + "x" * 50_000], 401),
    ],
)
def test_authorization_takes_one_exact_key(serve: Serve, values: list[str], code: int) -> None:
    client = serve(api_keys=SECRET)
    headers = [(b"Authorization", value.encode("latin-1")) for value in values]
    assert client.get("/v1/models", headers=headers).status_code == code
    for name in ("X-API-Key", "Proxy-Authorization", "X-Authorization", "Cookie", "X-Forwarded-Authorization"):
        assert client.get("/v1/models", headers={name: f"Bearer {SECRET}"}).status_code == 401
    for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Original-URL", "X-Rewrite-URL", "Host"):
        assert client.get("/metrics", headers={name: "127.0.0.1"}).status_code == 401


def test_refusals_say_how_to_ask(serve: Serve) -> None:
    client = serve(api_keys=f"{SECRET}:policy")
    answer = client.post("/v1/policy", json={"moves": []})
    refused(answer, 401, "unauthorized")
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="movemask"'
    assert answer.headers["X-Request-ID"] == answer.json()["request_id"]
    answer = client.get("/metrics", headers={"Authorization": f"Bearer {SECRET}"})
    assert answer.status_code == 403
    assert 'error="insufficient_scope", scope="metrics"' in answer.headers["WWW-Authenticate"]
    assert "env-1" in answer.json()["detail"]


def test_probes_without_a_key_tell_only_the_status(serve: Serve) -> None:
    client = serve(api_keys=f"{SECRET}:metrics")
    assert client.get("/readyz").json() == {"status": "ready"}
    assert "models" in client.get("/readyz", headers={"Authorization": f"Bearer {SECRET}"}).json()


def test_leakage_of_a_model_needs_its_scope(serve: Serve) -> None:
    client = serve(api_keys=f"{SECRET}:policy,{SECRET}2:policy+leakage")
    assert status(client, "POST", "/v1/policy", SECRET) == 200
    for key, visible in ((SECRET, False), (SECRET + "2", True)):
        model = client.get("/v1/models/fake", headers={"Authorization": f"Bearer {key}"}).json()
        assert ("leakage" in model) == visible


def test_file_and_log_hold_no_key(tmp_path: Path, caplog: pytest.LogCaptureFixture, serve: Serve) -> None:
    file = tmp_path / "keys"
    text = new(file, "one", "policy", "metrics")
    assert file.stat().st_mode & 0o777 == 0o600
    assert text not in file.read_text()
    assert file.read_text() == f"one policy,metrics sha256:{hashlib.sha256(text.encode()).hexdigest()}\n"
    with caplog.at_level(logging.DEBUG):
        client = serve(api_keys_file=file, api_keys=SECRET)
        for key in (text, SECRET, text + "x"):
            status(client, "POST", "/v1/policy", key)
            status(client, "POST", "/v1/nothing", key)
    assert "key=one" in caplog.text
    assert "key=env-1" in caplog.text
    assert text not in caplog.text
    assert SECRET not in caplog.text
    assert SECRET not in repr(Settings.read(api_keys=SECRET))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("short", "key 1: must be 20 to 512"),
        (f"{SECRET},{SECRET} x", "key 2: must be"),
        (f"{SECRET}:root", "there is no scope 'root'; available: policy, leakage, positions, metrics"),
        (f"{SECRET},{SECRET}", "is the same key"),
    ],
)
def test_invalid_keys_stop_the_start_and_stay_hidden(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as raised:
        create_app(Settings.read(api_keys=text))
    assert SECRET not in str(raised.value)


def test_invalid_files_stop_the_start(tmp_path: Path) -> None:
    for name, text in (("gone", None), ("text", SECRET), ("twice", f"a policy sha256:{'0' * 64}\n" * 2)):
        file = tmp_path / name
        if text is not None:
            file.write_text(text)
        with pytest.raises(SettingsError, match=f"MOVEMASK_API_KEYS_FILE: .*{name}|two keys are named a") as raised:
            Keys.of("", file)
        assert SECRET not in str(raised.value)
    with pytest.raises(KeysError, match="cannot be read: is not a regular file"):
        read_keys(tmp_path)


def test_keys_command_refuses_invalid_names(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    new(file, "one")
    for arguments in (["new", "one"], ["new", "two words"], ["delete", "two"]):
        result = run("keys", *arguments, "--file", file)
        assert (result.exit_code, arguments[1] in result.output) == (1, True)
    assert run("keys", "list", "--file", file).output.split() == ["one", "policy"]


def test_keys_changed_at_the_same_time_are_kept(tmp_path: Path) -> None:
    """Of six keys created at once, three were lost, though the commands had printed them."""
    file = tmp_path / "keys"
    new(file, "deleted")

    def change(number: int) -> None:
        for name in (f"a{number}", f"b{number}"):
            with changed_keys(file) as keys:
                keys.append(new_key(name, KeyScope)[0])
        if number == 3:
            with changed_keys(file) as keys:
                keys[:] = [key for key in keys if key.name != "deleted"]

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(change, range(6)))
    assert {key.name for key in read_keys(file)} == {f"{letter}{number}" for letter in "ab" for number in range(6)}


def test_find_among_many_keys() -> None:
    texts = [f"{number:020}" for number in range(2_000)]
    keys = Keys.of(",".join(texts), None)
    assert keys is not None
    assert [(key := keys.find(text)) and key.name for text in texts] == [f"env-{n}" for n in range(1, 2_001)]
    assert keys.find("1" * 20) is None
    assert keys.find("\udcff") is None


def test_open_service_without_keys_logs_a_warning(tmp_path: Path) -> None:
    models = write_fake(tmp_path / "m").parent
    with served(models, "--host", "0.0.0.0") as (process, _):
        assert stopped(process) == 0
    assert "NO API KEYS ARE SET" in (models / "log.txt").read_text()
