"""GET /: the page's files, their types, caching and sizes."""

from __future__ import annotations

import re
from pathlib import Path

import chess.svg
import pytest
from fastapi.testclient import TestClient

from movemask.server.api.routes.page import FOLDER, TYPES, page_files
from tests.conftest import Serve

#: Bytes on the wire of a first visit.
MOST = 150_000


def links(html: str) -> list[str]:
    return re.findall(r'(?:href|src)="(page/[^"]+)"', html)


def test_page_files_have_types(client: TestClient) -> None:
    page = client.get("/")
    assert (page.status_code, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["Cache-Control"] == "no-cache"
    names = {link.rpartition("/")[2] for link in links(page.text)}
    assert {file.name for file in FOLDER.glob("*.js")} <= names
    for link in links(page.text):
        response = client.get("/" + link)
        assert (response.status_code, response.headers["Content-Type"]) == (200, TYPES[Path(link).suffix])
        assert "immutable" in response.headers["Cache-Control"]
        assert client.head("/" + link).status_code == 200


def test_page_has_no_inline_code_or_foreign_address(client: TestClient) -> None:
    html = client.get("/").text
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", html)
    for file in (file for file in FOLDER.iterdir() if file.suffix != ".png"):
        text = file.read_text()
        assert not re.search(r"(?<!xmlns=\")https?://(?!www\.w3\.org/)", text), file.name
        assert "innerHTML" not in text
    policy = client.get("/").headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_files_are_immutable_and_page_has_etag(client: TestClient) -> None:
    first = client.get("/")
    again = client.get("/", headers={"If-None-Match": f'"x", W/{first.headers["ETag"]}'})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    old = re.sub(r"page/[0-9a-f]+/", "page/0123/", links(first.text)[-1])
    response = client.get("/" + old)  # of a page that was opened before an update
    assert (response.status_code, response.headers["Cache-Control"]) == (200, "no-cache")


def test_first_visit_is_small(client: TestClient) -> None:
    wire = sum(len(file) for file in page_files()[1].values())
    assert wire < MOST
    zipped = client.get("/", headers={"Accept-Encoding": "gzip"})
    plain = client.get("/", headers={"Accept-Encoding": "identity"})
    assert (zipped.headers["Content-Encoding"], zipped.headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert "Content-Encoding" not in plain.headers
    assert zipped.text == plain.text


@pytest.mark.parametrize("path", ["/page", "/page/x/index.html", "/page/x/../../app.py", "/page/x/%2e%2e/app.py"])
def test_unknown_files_are_404(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_page_setting_turns_it_off(serve: Serve) -> None:
    client = serve(page=False)
    assert client.get("/").status_code == 404
    assert client.get(f"/page/{page_files()[0]}/main.js").status_code == 404


def test_pieces_match_python_chess() -> None:
    sprite = (FOLDER / "pieces.svg").read_text()
    for letter, drawing in chess.svg.PIECES.items():
        name = ("w" if letter.isupper() else "b") + letter.lower()
        symbol = sprite.split(f'<symbol id="{name}"')[1].split("</symbol>")[0]
        assert re.findall(r' d="([^"]+)"', symbol) == re.findall(r' d="([^"]+)"', drawing)
