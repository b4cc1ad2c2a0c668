"""`GET /`: the page and its files, which are read once from `page/`."""

from __future__ import annotations

import gzip
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from movemask.server.api.negotiation import accepts_gzip, is_current
from movemask.server.api.routing import OPEN, Routes

FOLDER = Path(__file__).parents[3] / "page"

#: Path of the files. The digest of all files follows, so that a browser may keep a file forever.
PREFIX = "/page"

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}

_INDEX = "index.html"
_VERSION = "{version}"  # in index.html: the digest
_MODULES = "{modules}"  # in index.html: the preloads of all modules

#: Its own files, and requests to the service.
_CSP = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"manifest-src 'self'; require-trusted-types-for 'script'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

routes = Routes("page")


@cache
def page_files() -> tuple[str, dict[str, bytes]]:
    """The digest of all files of the page, and the files by name, compressed."""
    contents = {
        file.name: file.read_bytes() for file in sorted(FOLDER.iterdir()) if file.suffix in TYPES
    }
    named = b"".join(name.encode() + content for name, content in contents.items())
    version = blake2b(named, digest_size=8).hexdigest()
    preloads = [
        f'<link rel="modulepreload" href="page/{version}/{name}">'
        for name in contents
        if name.endswith(".js")
    ]
    index = (
        contents[_INDEX].decode().replace(_MODULES, "\n".join(preloads)).replace(_VERSION, version)
    )
    contents[_INDEX] = index.encode()
    return version, {name: gzip.compress(content, 9, mtime=0) for name, content in contents.items()}


_get = partial(routes.get, scopes=OPEN, free=True, timed=False, cached=True, shared=True)


@_get("/", csp=_CSP, any_parameters=True, summary="The page", response_class=HTMLResponse)
async def index(http: Request) -> Response:
    """The web page: positions with their leakage, play, review and the dashboard. MOVEMASK_PAGE turns it off."""
    return _sent(http, _INDEX, "no-cache")


@_get(PREFIX + "/{version}/{name}", include_in_schema=False)
async def file(version: str, name: str, http: Request) -> Response:
    """A file of the page."""
    current, files = page_files()
    if name not in files or name == _INDEX:
        raise HTTPException(404)
    return _sent(
        http, name, "public, max-age=31536000, immutable" if version == current else "no-cache"
    )


def _sent(http: Request, name: str, caching: str) -> Response:
    version, files = page_files()
    tag = f'"{version}"'
    headers = {"ETag": tag, "Cache-Control": caching}
    if is_current(http.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    content = files[name]
    if accepts_gzip(http.headers.get("accept-encoding", "")):
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    else:
        content = gzip.decompress(content)
    return Response(content, headers=headers, media_type=TYPES[Path(name).suffix])
