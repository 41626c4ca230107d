"""Searches recordings, in a process of its own that is started with `python -m`.

The pattern is the person's, so it may take for ever; the parent ends this process then. Input is
one SearchRequest as JSON; output is one JSON object a line. A request without a pattern only makes
the indexes, which let the player jump.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from exec_server.errors import ExecServerError
from exec_server.recording.recording_files import SUFFIX
from exec_server.recording.text_index import open_index


class SearchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What to search, and in which files."""

    paths: list[str]
    pattern: str | None
    ignore_case: bool
    most: int


def search(request: SearchRequest) -> Iterator[dict[str, Any]]:
    """What was found, at most so much as is asked for, and the recordings that cannot be read."""
    pattern = None
    if request.pattern is not None:
        try:
            pattern = re.compile(request.pattern, re.IGNORECASE if request.ignore_case else 0)
        except (re.error, OverflowError, RecursionError) as exc:
            yield {"wrong": str(exc)}
            return
    left = request.most
    for path in map(Path, request.paths):
        name = path.name.removesuffix(SUFFIX)
        try:
            with open_index(path) as index:
                for seen in index.find(pattern) if pattern is not None else ():
                    if not left:
                        yield {"more": True}
                        return
                    left -= 1
                    text = seen.text.strip()[:500]
                    yield {"name": name, "time": seen.time, "row": seen.row + 1, "text": text}
        except (ExecServerError, OSError, ImportError, ValueError) as exc:
            yield {"name": name, "problem": str(exc)}


def main() -> None:
    # This JSON takes names of files that are no UTF-8.
    request = msgspec.convert(json.loads(sys.stdin.buffer.read()), type=SearchRequest)
    for found in search(request):
        sys.stdout.buffer.write(json.dumps(found).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
