"""Downloads with ranges, and uploads in pieces that can be continued after any interruption.

An upload goes to a file beside its target, whose name contains the size and time of the source.
The size of that file says where to continue, also from another tab and after a restart. When it is
complete, it is renamed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import posixpath
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from exec_server.errors import ExecServerError, InvalidRequest, NotFound
from exec_server.web.page_access import PageAccess, PageSession
from exec_server.web.recordings.recording_shelf import RecordingTicket

if TYPE_CHECKING:
    from exec_server.client.files.remote_files import RemoteFiles
    from exec_server.protocol.fs import Metadata
    from exec_server.web.places import PagePlaces

# One piece of an upload, which is one request, and how long a block of it may take to arrive. Two
# blocks are held in memory: one arrives while the other is written.
PIECE_BYTES = 32 * 1024 * 1024
_BLOCK_BYTES = 2 * 1024 * 1024
_BLOCK_SECONDS = 120.0
# A block of a download that the browser does not take for so long ends the download; the browser
# can continue it.
_STALL_SECONDS = 600.0

_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")
# Pictures that the page shows; they can contain no script.
PICTURES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}


class FileTicket(msgspec.Struct, frozen=True):
    """What the ticket of a download stands for."""

    place_id: str
    path: str
    is_picture: bool = False


class TransferRoutes:
    """The routes that carry the content of files."""

    def __init__(self, access: PageAccess, places: PagePlaces) -> None:
        self._access = access
        self._places = places

    async def download(self, request: web.Request, session: PageSession) -> web.StreamResponse:
        """The content of the file that the ticket stands for, or the range that is asked for."""
        ticket = self._access.subject_of(session, request.match_info["ticket"])
        if isinstance(ticket, RecordingTicket):
            return await self._export(request, ticket)
        if not isinstance(ticket, FileTicket):
            raise web.HTTPNotFound(text="this download is over; ask for it again on the page")
        files = self._files(ticket.place_id)
        try:
            facts = await files.get_metadata(ticket.path)
        except ExecServerError as exc:
            raise web.HTTPNotFound(text=str(exc)) from None
        if not facts.is_file:
            raise web.HTTPConflict(text="this is no regular file")
        start, end = _wanted(request, facts)
        response = web.StreamResponse(status=200 if end is None else 206)
        response.headers.update(_download_headers(ticket, facts))
        length = (facts.size if end is None else end) - start
        response.headers["Content-Length"] = str(length)
        if end is not None:
            response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{facts.size}"
        await response.prepare(request)
        async with files.read_stream(ticket.path, offset=start, length=length) as stream:
            async for block in stream:
                async with asyncio.timeout(_STALL_SECONDS):
                    await response.write(block)
        await response.write_eof()
        return response

    async def _export(self, request: web.Request, ticket: RecordingTicket) -> web.StreamResponse:
        """A recording in a format; it is refused before it begins, or broken off."""
        async with contextlib.aclosing(self._places.recordings.export(ticket)) as blocks:
            try:
                first = await anext(blocks, b"")
            except ExecServerError as exc:
                raise web.HTTPConflict(text=str(exc)) from None
            response = web.StreamResponse(headers=attachment_headers(ticket.file_name))
            await response.prepare(request)
            await response.write(first)
            async for block in blocks:
                await response.write(block)
        await response.write_eof()
        return response

    async def upload(self, request: web.Request) -> web.StreamResponse:
        """Append one piece to a file that `begin_upload` has named, at its offset."""
        files = self._files(request.match_info["place"])
        path, offset = request.query.get("path", ""), request.query.get("offset", "")
        length = request.content_length
        if not is_part(path) or not offset.isdecimal() or len(offset) > 18:
            raise web.HTTPBadRequest(text="`path` or `offset` is wrong")
        if length is None or not 0 < length <= PIECE_BYTES:
            raise web.HTTPRequestEntityTooLarge(PIECE_BYTES, length or 0)
        try:
            if await _size_of(files, path) != int(offset):
                raise web.HTTPConflict(text="the upload is at another place; ask where it is")
            size = await _append_body(files, path, request, int(offset), length)
        except ExecServerError as exc:
            raise web.HTTPBadGateway(text=str(exc)) from None
        return web.json_response({"offset": size})

    def _files(self, place_id: str) -> RemoteFiles:
        place = self._places.find(place_id)
        if place is None:
            raise web.HTTPNotFound(text="there is no such environment")
        try:
            return place.client.fs
        except ExecServerError as exc:
            raise web.HTTPBadGateway(text=str(exc)) from None


# Uploads, as calls of the page.


async def begin_upload(
    files: RemoteFiles, path: str, *, size: int, stamp: int, overwrite: bool
) -> dict[str, Any]:
    """Where an upload goes, and how much of it is there already."""
    if not overwrite and await files.exists(path):
        raise InvalidRequest(f"`{posixpath.basename(path)}` exists already")
    part = _part_of(path, size=size, stamp=stamp)
    offset = await _size_of(files, part)
    if offset > size:
        await files.remove(part, force=True)
        offset = 0
    return {"part": part, "offset": offset, "piece": PIECE_BYTES}


async def finish_upload(files: RemoteFiles, path: str, *, size: int, stamp: int) -> None:
    """Give a complete upload its name."""
    part = _part_of(path, size=size, stamp=stamp)
    if size == 0:
        await files.append(part, b"", follow_symlinks=False)
    found = await _size_of(files, part)
    if found != size:
        raise InvalidRequest(f"{found} of {size} bytes have arrived")
    await files.rename(part, path)


async def drop_upload(files: RemoteFiles, path: str, *, size: int, stamp: int) -> None:
    """Remove what has arrived of an upload."""
    await files.remove(_part_of(path, size=size, stamp=stamp), force=True)


def is_part(path: str) -> bool:
    """True if *path* is one that `begin_upload` has named: nothing else is appended to."""
    return _PART.fullmatch(posixpath.basename(path)) is not None and "\0" not in path


_PART = re.compile(r"\..{1,240}\.[0-9a-f]{12}\.part", re.DOTALL)


def _part_of(path: str, *, size: int, stamp: int) -> str:
    folder, name = posixpath.split(path)
    digest = hashlib.sha256(f"{size} {stamp} {name}".encode("utf-8", "surrogateescape"))
    # A name has at most 255 bytes.
    short = name.encode("utf-8", "surrogateescape")[:200].decode("utf-8", "ignore")
    return posixpath.join(folder, f".{short}.{digest.hexdigest()[:12]}.part")


async def _size_of(files: RemoteFiles, path: str) -> int:
    try:
        return (await files.get_metadata(path)).size
    except NotFound:
        return 0


async def _append_body(
    files: RemoteFiles, path: str, request: web.Request, size: int, length: int
) -> int:
    """Append the body of a request to a file of *size* bytes; the size of the file after that.

    What has arrived of a body that is broken off stays, and the upload continues after it.
    """
    end, writing = size + length, None
    try:
        while size < end:
            block = await _block(request, min(_BLOCK_BYTES, end - size))
            if writing is not None and await writing != size:
                raise web.HTTPConflict(text="another upload writes the same file")
            # Others may know the name of the file, and may have put a link there.
            writing = asyncio.ensure_future(files.append(path, block, follow_symlinks=False))
            size += len(block)
        if writing is not None and await writing != size:
            raise web.HTTPConflict(text="another upload writes the same file")
        return size
    finally:
        if writing is not None:
            # The next request asks for the size, so it must not change later.
            await asyncio.wait({writing}, timeout=_BLOCK_SECONDS)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


async def _block(request: web.Request, length: int) -> bytes:
    """The next *length* bytes of the body."""
    try:
        async with asyncio.timeout(_BLOCK_SECONDS):
            return await request.content.readexactly(length)
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the piece took too long") from None
    except asyncio.IncompleteReadError:
        raise web.HTTPBadRequest(text="the piece is not complete") from None


# Downloads.


def _etag(facts: Metadata) -> str:
    return f'"{facts.size:x}-{facts.modified_at_ms:x}"'


def _wanted(request: web.Request, facts: Metadata) -> tuple[int, int | None]:
    """The first byte that is wanted, and the one after the last; None means all."""
    found = _RANGE.fullmatch(request.headers.get("Range", ""))
    if found is None or request.headers.get("If-Range", _etag(facts)) != _etag(facts):
        return 0, None
    start = int(found[1])
    end = min(int(found[2]) + 1 if found[2] else facts.size, facts.size)
    if start >= end:
        raise web.HTTPRequestRangeNotSatisfiable(text="the file is shorter")
    return start, end


def _download_headers(ticket: FileTicket, facts: Metadata) -> dict[str, str]:
    name = posixpath.basename(ticket.path)
    kind = PICTURES.get(posixpath.splitext(name)[1].lower()) if ticket.is_picture else None
    headers = attachment_headers(name) | {"Accept-Ranges": "bytes", "ETag": _etag(facts)}
    if kind is not None:
        headers["Content-Type"] = kind
        del headers["Content-Disposition"]
    return headers


def attachment_headers(name: str) -> dict[str, str]:
    """The headers of a file that the browser saves, and never shows as a page."""
    return {
        "Content-Type": "application/octet-stream",
        "Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Cache-Control": "private, no-store",
    }
