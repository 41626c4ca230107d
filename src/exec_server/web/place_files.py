"""Files of an environment, as the page shows and changes them."""

from __future__ import annotations

import asyncio
import posixpath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from exec_server.errors import ExecServerError, InvalidRequest, MethodNotFound, NotFound

if TYPE_CHECKING:
    from exec_server.client.files.remote_files import RemoteFiles
    from exec_server.protocol.fs import DirectoryEntry

# What is shown of a directory, and of how many entries sizes and times are asked for.
MAX_ENTRIES = 5000
_MAX_MEASURED = 1000
_AT_ONCE = 16
_MEASURE_SECONDS = 5.0
# A file that can be shown and edited as text.
MAX_TEXT_BYTES = 1024 * 1024


async def list_folder(files: RemoteFiles, path: str) -> dict[str, Any]:
    """The entries of a directory, folders first, with sizes and times as far as time allows."""
    whole = await files.canonicalize(path)
    found = await files.read_directory(whole)
    found.sort(key=lambda each: (not each.is_directory, each.file_name.lower(), each.file_name))
    entries = [_entry(whole, each) for each in found[:MAX_ENTRIES]]
    slots = asyncio.Semaphore(_AT_ONCE)
    work = [_measure(files, each, slots) for each in entries[:_MAX_MEASURED]]
    try:
        async with asyncio.timeout(_MEASURE_SECONDS):
            await asyncio.gather(*work)
    except TimeoutError:
        # The rest is shown without a size.
        pass
    return {"path": _shown(whole), "entries": entries, "hidden": len(found) - len(entries)}


async def read_text(files: RemoteFiles, path: str) -> dict[str, Any]:
    """The content of a small file as text, with what tells one version from another."""
    facts = await files.get_metadata(path)
    if not facts.is_file:
        raise InvalidRequest("this is no regular file")
    if facts.size > MAX_TEXT_BYTES:
        raise InvalidRequest(f"the file has more than {MAX_TEXT_BYTES} bytes; download it instead")
    data = await files.read_file(path)
    try:
        if b"\0" in data:
            raise UnicodeDecodeError("utf-8", data, 0, 1, "NUL")
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("the file is no text in UTF-8; download it instead") from None
    return {"text": text, "version": _version(facts.size, facts.modified_at_ms)}


async def write_text(
    files: RemoteFiles, path: str, text: str, *, version: str | None
) -> dict[str, Any]:
    """Replace the content of a small file that has still *version*; None makes a new one."""
    data = text.encode()
    if len(data) > MAX_TEXT_BYTES:
        raise InvalidRequest(f"the text has more than {MAX_TEXT_BYTES} bytes")
    try:
        before = await files.get_metadata(path)
        found = _version(before.size, before.modified_at_ms)
    except NotFound:
        found = None
    if found != version:
        what = "is gone" if found is None else "has changed meanwhile"
        raise InvalidRequest(f"the file {what if version is not None else 'exists already'}")
    try:
        await files.write_bytes(path, data, atomic=True)
    except MethodNotFound:
        await files.write_bytes(path, data)
    after = await files.get_metadata(path)
    return {"version": _version(after.size, after.modified_at_ms)}


def _entry(folder: str, each: DirectoryEntry) -> dict[str, Any]:
    return {
        "name": each.file_name,
        "path": _shown(posixpath.join(folder, each.name)),
        "folder": each.is_directory,
        "file": each.is_file,
        "link": each.is_symlink is True,
        "size": None,
        "modified": None,
    }


async def _measure(files: RemoteFiles, entry: dict[str, Any], slots: asyncio.Semaphore) -> None:
    async with slots:
        try:
            facts = await files.get_metadata(entry["path"])
        except ExecServerError:
            # A link that leads nowhere, or a file that is gone.
            return
        entry["modified"] = facts.modified_at_ms
        if facts.is_file:
            entry["size"] = facts.size


def _version(size: int, modified_at_ms: int) -> str:
    return f"{size}-{modified_at_ms}"


def _shown(path: str) -> str:
    """A path that JSON can carry: native, or a file: URI if it is not UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "file://" + quote(path.encode("utf-8", "surrogateescape"))
    return path
