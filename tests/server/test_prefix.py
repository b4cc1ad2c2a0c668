"""A service under a path prefix of a site: page, documents and API."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from movemask.errors import SettingsError
from movemask.server.settings import Settings
from tests.networks import write_fake
from tests.processes import call, served


def links(text: str) -> set[str]:
    """What a page of FastAPI's loads."""
    return set(re.findall(r"""(?:src|href)=["']([^"']+)["']""", text)) | set(re.findall(r"url: '([^']+)'", text))


def test_page_documents_and_api_work_under_prefix(tmp_path: Path) -> None:
    write_fake(tmp_path)
    with served(tmp_path, "--root-path", "/chess") as (_, port):

        def get(path: str) -> Any:
            """What a browser gets that asks a proxy, which takes the prefix off."""
            assert path.startswith("/chess/")
            url = f"http://127.0.0.1:{port}{path.removeprefix('/chess')}"
            try:
                with urllib.request.urlopen(url, timeout=30) as response:
                    return response.read().decode(errors="replace")
            except urllib.error.HTTPError as error:
                with error:
                    return error.read().decode()

        result = links(get("/chess/docs"))
        assert len(result) >= 2
        for link in result:
            assert link.startswith("data:") or '"status":404' not in get(link)
        assert '"servers":[{"url":"/chess"}]' in get("/chess/openapi.json")
        for link in links(get("/chess/")):  # relative, so that they begin with the prefix
            if link.startswith("page/"):
                assert '"status":404' not in get(f"/chess/{link}")
        assert call(port, "/v1/policy", {"moves": []})["status"] == "ongoing"
        assert '"name":"fake"' in get("/chess/v1/models/fake")
        assert "; /chess/docs lists the paths" in get("/chess/nothing")
        assert "; did you mean '/chess/v1/models'?" in get("/chess/v1/model")
        assert '{method="GET",route="/v1/models/{name}",status="200"} 1.0' in get("/chess/metrics")
        # A proxy's rule for /chess/metrics is not passed by saying the prefix twice.
        assert "Not Found; the proxy has to take the prefix /chess off" in get("/chess/chess/metrics")


@pytest.mark.parametrize("prefix", ["chess", "/", "/chess/", "/a b", "/ä", '/"', "//a"])
def test_invalid_prefix_stops_start(prefix: str) -> None:
    with pytest.raises(SettingsError, match=r"MOVEMASK_ROOT_PATH: .* is not a path prefix such as /chess"):
        Settings.read(root_path=prefix)


def test_openapi_without_prefix_names_own_server(client: TestClient) -> None:
    assert client.get("/openapi.json").json()["servers"] == [{"url": "/"}]
