"""Runs `rg --json` and reads what it prints."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
from collections.abc import Iterator
from typing import Any

from exec_server.files.agents.match_batches import MatchBatches, character_ranges
from exec_server.protocol.paths import to_uri

# A line with more is not a line of text, and is left out.
_LINE_BYTES = 8 * 1024 * 1024
_MESSAGE_BYTES = 2000
# The status of rg after an error; it may have printed matches before.
_ERROR = 2


class RipgrepFailed(Exception):
    """rg could not search, for example because the pattern is wrong."""


def find_ripgrep(places: list[str]) -> str | None:
    """The first of *places* that can be run here."""
    return next((each for each in places if os.access(each, os.X_OK)), None)


def search_with_ripgrep(
    program: str, request: dict[str, Any], root: bytes, found: MatchBatches
) -> str:
    """Search with *program*; returns the first complaint, or nothing. Raises RipgrepFailed."""
    process = subprocess.Popen(
        [program, *_options(request), "--", root],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        complaints = bytearray()
        for line in _lines(process.stdout.fileno(), process.stderr.fileno(), complaints, found):
            _take(json.loads(line), found)
        status = process.wait()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    message = _first_complaint(bytes(complaints))
    if status == _ERROR and not found.count and message and not os.path.isdir(root):
        raise RipgrepFailed(message)
    if status == _ERROR and ("regex" in message or "glob" in message):
        raise RipgrepFailed(complaints.decode("utf-8", "replace").strip())
    return message


def _options(request: dict[str, Any]) -> list[str]:
    words = ["--json", "--no-config", "-e", request["pattern"]]
    flags = {
        "literal": "--fixed-strings",
        "ignoreCase": "--ignore-case",
        "wholeWords": "--word-regexp",
        "hidden": "--hidden",
        "ignored": "--no-ignore",
    }
    words += [flag for name, flag in flags.items() if request[name]]
    words += [f"--before-context={request['before']}", f"--after-context={request['after']}"]
    for glob in request["globs"]:
        words += ["--glob", glob]
    return words


def _lines(out: int, errors: int, complaints: bytearray, found: MatchBatches) -> Iterator[bytes]:
    """The lines of *out*; meanwhile what is read from *errors* goes to *complaints*."""
    waiting, rest, is_skipping = [out, errors], b"", False
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
                *lines, rest = (rest + data).split(b"\n")
                if is_skipping and lines:
                    lines, is_skipping = lines[1:], False
                if len(rest) > _LINE_BYTES or is_skipping:
                    rest, is_skipping = b"", True
                yield from lines


def _take(message: dict[str, Any], found: MatchBatches) -> None:
    kind = message["type"]
    if kind not in ("match", "context"):
        return
    data = message["data"]
    line = _bytes(data["lines"])
    spans = [(each["start"], each["end"]) for each in data["submatches"]]
    text = line.rstrip(b"\r\n")
    found.add(
        to_uri(_bytes(data["path"])),
        line=data["line_number"],
        text=text.decode("utf-8", "replace"),
        ranges=character_ranges(text, spans) if kind == "match" else [],
        is_context=kind == "context",
    )


def _bytes(value: dict[str, str]) -> bytes:
    return value["text"].encode() if "text" in value else base64.b64decode(value["bytes"])


def _first_complaint(complaints: bytes) -> str:
    text = complaints.decode("utf-8", "replace").strip()
    return text.partition("\n")[0]
