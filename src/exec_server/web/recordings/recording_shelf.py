"""The recordings of this machine, for the page: the list, searches and exports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

from exec_server.errors import InvalidRequest
from exec_server.recording.recording_files import SUFFIX, RecordingFiles
from exec_server.web.recordings.recorded_moments import beginning
from exec_server.web.recordings.recording_reads import RecordingReads
from exec_server.web.recordings.recording_search import SearchRequest

# More would not be looked at; the newest are shown.
MAX_LISTED = 1000
MAX_FOUND = 500
SEARCH_SECONDS = 90.0
_EXPORT_SECONDS = 600.0
_AT_ONCE = 2
_BLOCK = 256 * 1024
# The formats of `exec-server recordings export`, and how their files end.
EXPORTS = {"v3": SUFFIX, "v2": SUFFIX, "text": ".txt", "svg": ".svg", "gif": ".gif"}


class RecordingTicket(msgspec.Struct, frozen=True):
    """What the ticket of an export stands for."""

    path: str
    format: str
    at: float | None = None

    @property
    def absolute_path(self) -> str:
        """It begins with no dash, so that it is no option of a command."""
        return os.path.abspath(self.path)

    @property
    def file_name(self) -> str:
        return os.path.basename(self.path).removesuffix(SUFFIX) + EXPORTS[self.format]


class RecordingShelf:
    """One directory of recordings; None has none."""

    def __init__(self, directory: str | None) -> None:
        self._files = None if directory is None else RecordingFiles(directory)
        self.reads = RecordingReads()
        self._searches = asyncio.Semaphore(_AT_ONCE)
        self._exports = asyncio.Semaphore(_AT_ONCE)

    def listed(self) -> list[dict[str, Any]]:
        """The newest recordings. It reads the beginning of each file, so it may block."""
        if self._files is None:
            return []
        return [
            {
                "name": each.name,
                "command": beginning(each.header.command),
                "owner": beginning(each.header.owner),
                "startedAt": None if each.header.started is None else each.header.started * 1000,
                "changedAt": each.changed * 1000,
                "columns": each.header.columns,
                "rows": each.header.rows,
                "bytes": each.size,
            }
            for each in self._files.found()[:MAX_LISTED]
        ]

    def path_of(self, name: str) -> Path:
        """The file of the recording with exactly this name. Raises InvalidRequest."""
        if self._files is not None and os.sep not in name and not name.startswith("."):
            path = self._files.directory / f"{name}{SUFFIX}"
            if path.is_file() and not path.is_symlink():
                return path
        raise InvalidRequest("there is no such recording")

    def remove(self, name: str) -> None:
        """Delete a recording, and the index beside it. Raises InvalidRequest or OSError."""
        path = self.path_of(name)
        path.unlink()
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}.index").unlink()

    def all_paths(self) -> list[Path]:
        found = [] if self._files is None else self._files.found()
        return [each.path for each in found[:MAX_LISTED]]

    async def find(
        self, paths: list[Path], pattern: str | None, *, ignore_case: bool
    ) -> dict[str, Any]:
        """Where *pattern* was on a screen, with the moment and the row. Raises InvalidRequest."""
        request = SearchRequest([str(path) for path in paths], pattern, ignore_case, MAX_FOUND)
        words = ["-m", "exec_server.web.recordings.recording_search"]
        data = bytearray()
        try:
            async with self._searches, asyncio.timeout(SEARCH_SECONDS):
                # Names of files that are no UTF-8 pass through this JSON, and no stricter one.
                given = json.dumps(msgspec.to_builtins(request)).encode()
                async for block in _output_of(words, given):
                    data += block
        except TimeoutError:
            raise InvalidRequest("the search took too long; look for a simpler text") from None
        found = [json.loads(line) for line in data.splitlines()]
        for each in found:
            if "wrong" in each:
                raise InvalidRequest(f"this is no regular expression: {each['wrong']}")
        return {
            "found": [each for each in found if "text" in each],
            "problems": [each for each in found if "problem" in each],
            "more": any("more" in each for each in found),
        }

    async def export(self, ticket: RecordingTicket) -> AsyncGenerator[bytes, None]:
        """The content of an export, as `exec-server recordings export` makes it."""
        words = ["-m", "exec_server", "recordings", "export", ticket.absolute_path]
        words += ["--format", ticket.format]
        if ticket.at is not None:
            words += ["--at", f"{ticket.at:.3f}"]
        async with self._exports, asyncio.timeout(_EXPORT_SECONDS):
            async for block in _output_of(words):
                yield block


class ChildFailed(InvalidRequest):
    """A helper has failed; its message is the end of what it has said."""


async def _output_of(words: list[str], given: bytes = b"") -> AsyncGenerator[bytes, None]:
    """The output of a helper in blocks; it is ended with the generator. Raises ChildFailed."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    errors = asyncio.ensure_future(child.stderr.read(64 * 1024))
    try:
        child.stdin.write(given)
        child.stdin.close()
        while block := await child.stdout.read(_BLOCK):
            yield block
        if await child.wait():
            lines = (await errors).decode("utf-8", "replace").strip().splitlines()
            raise ChildFailed(lines[-1] if lines else "the helper has failed")
    finally:
        errors.cancel()
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
