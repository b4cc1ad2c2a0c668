"""What an operator would lose: a service under a path of a site that has other things too."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

from movemask.errors import SettingsError
from movemask.server.settings import Settings
from tests.conftest import Serve
from tests.server.asking import asked, refused

PREFIX = {"X-Forwarded-Prefix": "/chess"}


def links(text: str) -> set[str]:
    """What a page of FastAPI's loads."""
    return set(re.findall(r"""(?:src|href)=["']([^"']+)["']""", text)) | set(re.findall(r"url: '([^']+)'", text))


@pytest.mark.parametrize(
    ("settings", "headers", "sent"),
    [
        ({"root_path": "/chess"}, {}, "/chess"),  # a proxy that leaves the prefix on
        ({"root_path": "/chess"}, {}, ""),  # one that takes it off
        ({"proxies": 1}, PREFIX, ""),
        ({"proxies": 1, "root_path": "/other"}, PREFIX, ""),
    ],
)
def test_page_documents_and_api_work_under_a_prefix(
    serve: Serve, settings: dict[str, Any], headers: dict[str, str], sent: str
) -> None:
    client = serve(**settings)
    client.headers.update(headers)

    def get(path: str) -> Any:
        """What a browser gets that asks the proxy for a path."""
        assert path.startswith("/chess/")
        return client.get(sent + path.removeprefix("/chess"), follow_redirects=False)

    for page in ("/chess/docs", "/chess/redoc"):
        found = links(get(page).text)
        assert len(found) >= 2
        assert all(get(link).status_code == 200 for link in found if not link.startswith("data:"))
    assert get("/chess/openapi.json").json()["servers"] == [{"url": "/chess"}]
    index = get("/chess/")
    assert index.status_code == 200
    for link in links(index.text):  # relative, so that they begin with the prefix
        if link.startswith("page/"):
            assert get(f"/chess/{link}").status_code == 200
    assert asked(client, f"{sent}/v1/policy")["status"] == "ongoing"
    assert get("/chess/v1/models/fake").json()["name"] == "fake"
    assert "; /chess/docs lists the paths" in refused(get("/chess/nothing"), 404, "not-found")["detail"]
    assert "; did you mean '/chess/v1/models'?" in refused(get("/chess/v1/model"), 404, "not-found")["detail"]
    assert (
        'movemask_requests_total{method="GET",route="/v1/models/{name}",status="200"} 1.0' in get("/chess/metrics").text
    )


def test_the_prefix_alone_is_sent_on_to_the_page_whose_links_are_relative(serve: Serve) -> None:
    answer = serve(root_path="/chess").get("/chess?fen=x", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (308, "/chess/?fen=x")


@pytest.mark.parametrize(
    ("settings", "forwarded"),
    [
        ({}, "/chess"),  # nobody is trusted
        ({"proxies": 1}, '/"><script>'),
        ({"proxies": 1}, "//evil.example"),
        ({"proxies": 1}, "https://evil.example"),
        ({"proxies": 1}, "/a, /b"),
        ({"proxies": 1}, "/"),
    ],
)
def test_a_prefix_of_a_stranger_or_one_that_is_none_is_ignored(
    serve: Serve, settings: dict[str, Any], forwarded: str
) -> None:
    client = serve(**settings)
    answer = client.get("/docs", headers={"X-Forwarded-Prefix": forwarded})
    assert "/openapi.json" in links(answer.text)
    assert "evil" not in answer.text


def test_a_forwarded_prefix_opens_no_other_path(serve: Serve) -> None:
    """A proxy that keeps clients from /metrics does so by the path that it sees."""
    client = serve(proxies=1, api_keys="a-key-of-twenty-characters:policy")
    assert client.get("/v1/metrics", headers={"X-Forwarded-Prefix": "/v1"}).status_code == 401
    plain = serve(proxies=1)
    refused(plain.get("/v1/metrics", headers={"X-Forwarded-Prefix": "/v1"}), 404, "not-found")


@pytest.mark.parametrize("prefix", ["chess", "/", "/chess/", "/a b", "/ä", '/"', "//a"])
def test_a_prefix_that_is_none_is_refused_at_the_start(prefix: str) -> None:
    with pytest.raises(SettingsError, match="MOVEMASK_ROOT_PATH: must begin with a slash and not end with one"):
        Settings.read(root_path=prefix)


def test_without_a_prefix_the_document_names_its_own_server(client: TestClient) -> None:
    assert client.get("/openapi.json").json()["servers"] == [{"url": "/"}]
