"""Runs `rg --json` in an agent."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator
from typing import Any

from exec_server.files.agents.match_batches import MatchBatches
from exec_server.files.agents.ripgrep_output import RipgrepOutput, ripgrep_options
from exec_server.protocol.file_search import SearchEnd

_MESSAGE_BYTES = 4096


def find_ripgrep(places: list[str]) -> str | None:
    """The first of *places* that can be run here."""
    return next((each for each in places if os.access(each, os.X_OK)), None)


def search_with_ripgrep(
    program: str, request: dict[str, Any], root: bytes, found: MatchBatches
) -> SearchEnd:
    """Search with *program*. Raises Enough."""
    process = subprocess.Popen(
        [program, *ripgrep_options(request), "--", root],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
    )
    assert process.stdout is not None and process.stderr is not None
    output, complaints = RipgrepOutput(), bytearray()
    try:
        for data in _pieces(process.stdout.fileno(), process.stderr.fileno(), complaints, found):
            for each in output.take(data):
                found.add_file(each)
        status = process.wait()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    return output.end(status, complaints.decode("utf-8", "replace").strip(), root)


def _pieces(out: int, errors: int, complaints: bytearray, found: MatchBatches) -> Iterator[bytes]:
    """What is read from *out*; meanwhile what is read from *errors* goes to *complaints*."""
    waiting = [out, errors]
    while waiting:
        ready, _, _ = select.select(waiting, [], [], 0.05)
        found.flush_if_due()
        for fd in ready:
            data = os.read(fd, 256 * 1024)
            if not data:
                waiting.remove(fd)
            elif fd == errors:
                complaints += data[: max(_MESSAGE_BYTES - len(complaints), 0)]
            else:
                yield data
