"""`GET /`: the page, and its files. They are read once; `page/` has them, and nothing else does."""

from __future__ import annotations

import gzip
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from movemask.api.routes import Router

FOLDER = Path(__file__).parents[1] / "page"

#: Where the files are, below the digest of them all, so that a browser may keep them for good.
PREFIX = "/page"

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_INDEX = "index.html"
_VERSION = "{version}"  # in index.html: the digest
_MODULES = "{modules}"  # in index.html: a preload of every module

router = Router(tags=["page"])


class PageFile(NamedTuple):
    """A file as it is sent, plain or compressed."""

    content: bytes
    zipped: bytes
    etag: str
    media_type: str


@cache
def page_files() -> tuple[str, dict[str, PageFile]]:
    """The digest of all files of the page, and each by its name."""
    contents = {file.name: file.read_bytes() for file in sorted(FOLDER.iterdir()) if file.suffix in TYPES}
    version = _digest(b"".join(name.encode() + content for name, content in contents.items()))
    preloads = [f'<link rel="modulepreload" href="page/{version}/{name}">' for name in contents if name.endswith(".js")]
    index = contents[_INDEX].decode().replace(_MODULES, "\n".join(preloads)).replace(_VERSION, version)
    contents[_INDEX] = index.encode()
    return version, {
        name: PageFile(content, gzip.compress(content, 9, mtime=0), f'"{_digest(content)}"', TYPES[Path(name).suffix])
        for name, content in contents.items()
    }


@router.get("/", summary="The page", response_class=HTMLResponse)
async def index(request: Request) -> Response:
    """A board, the moves by rating, the leakage lens and the dashboard (MOVEMASK_PAGE)."""
    return _sent(request, page_files()[1][_INDEX], "no-cache")


@router.get(PREFIX + "/{version}/{name}", include_in_schema=False)
async def file(version: str, name: str, request: Request) -> Response:
    """A file of the page."""
    current_version, files = page_files()
    if name not in files or name == _INDEX:
        raise HTTPException(404)
    current = version == current_version
    return _sent(request, files[name], "public, max-age=31536000, immutable" if current else "no-cache")


def _sent(request: Request, found: PageFile, caching: str) -> Response:
    headers = {"ETag": found.etag, "Cache-Control": caching, "Vary": "Accept-Encoding"}
    if found.etag in (tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    zipped = "gzip" in request.headers.get("accept-encoding", "")
    if zipped:
        headers["Content-Encoding"] = "gzip"
    return Response(found.zipped if zipped else found.content, headers=headers, media_type=found.media_type)


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()
