"""The files of the page, compressed once and kept in memory."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import msgspec
from aiohttp import web

_FOLDER = Path(__file__).parent / "assets"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}


class PageAsset(msgspec.Struct, frozen=True):
    """One file, ready to be sent."""

    kind: str
    plain: bytes
    packed: bytes
    etag: str


def read_assets() -> dict[str, PageAsset]:
    """All files of the page by their path below `assets`."""
    found = {}
    for path in sorted(_FOLDER.rglob("*")):
        kind = _TYPES.get(path.suffix)
        if kind is not None:
            plain = path.read_bytes()
            etag = f'"{hashlib.sha256(plain).hexdigest()[:32]}"'
            packed = gzip.compress(plain, 9, mtime=0)
            found[path.relative_to(_FOLDER).as_posix()] = PageAsset(kind, plain, packed, etag)
    return found


def answer_with(asset: PageAsset, request: web.Request) -> web.Response:
    """The answer to a request for *asset*; the browser asks each time whether it has changed."""
    headers = {"ETag": asset.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if asset.etag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    body = asset.plain
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        body = asset.packed
        headers["Content-Encoding"] = "gzip"
    headers["Content-Type"] = asset.kind
    return web.Response(body=body, headers=headers)
