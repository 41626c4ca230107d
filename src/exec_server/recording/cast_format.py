"""Headers and events of asciicast v2 and v3, as docs.asciinema.org describes them.

A file has one line of JSON for the header and one for each event: `[time, code, data]`. In v3 the
time counts from the event before, in v2 from the start.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from exec_server.errors import ExecServerError

Version = Literal[2, 3]
# Output, a new size, a mark, the exit status, and what was typed, which we never write.
OUTPUT, RESIZE, MARK, EXIT, INPUT = "o", "r", "m", "x", "i"

_MOST_CELLS = 10_000
# Seconds: more is no time that a recording can have.
_LONGEST = 1e10


class CastError(ExecServerError):
    """A file is not a recording that can be read."""


class CastHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The facts at the beginning of a recording."""

    version: Version = 3
    columns: int = 80
    rows: int = 24
    # Seconds since 1970.
    started: float | None = None
    command: str | None = None
    title: str | None = None
    term: str | None = None
    # Players shorten pauses to this many seconds, if it is given.
    idle_limit: float | None = None
    # The principal that started the process; our own field, which players ignore.
    owner: str | None = None

    def encode(self) -> bytes:
        """The first line of a file."""
        facts: dict[str, Any] = {"version": self.version}
        if self.version == 3:
            facts["term"] = {"cols": self.columns, "rows": self.rows}
            if self.term:
                facts["term"]["type"] = self.term
        else:
            facts |= {"width": self.columns, "height": self.rows}
            if self.term:
                facts["env"] = {"TERM": self.term}
        if self.started is not None:
            facts["timestamp"] = int(self.started)
        optional = {
            "command": self.command,
            "title": self.title,
            "idle_time_limit": self.idle_limit,
            "exec_server_owner": self.owner,
        }
        facts |= {name: value for name, value in optional.items() if value is not None}
        return msgspec.json.encode(facts) + b"\n"


class WriterState(msgspec.Struct, frozen=True, array_like=True):
    """How far a recording is. What is held back of the output is in no file."""

    path: str
    version: Version
    size: int
    written: float
    undecoded: bytes
    held: str
    stars: list[int]


class CastEvent(NamedTuple):
    """Something that happened *time* seconds after the start."""

    time: float
    code: str
    data: str

    @property
    def size(self) -> tuple[int, int] | None:
        """Columns and rows of a new size; None if the data is no size."""
        columns, _, rows = self.data.partition("x")
        return _size(columns, rows)


def _size(columns: object, rows: object) -> tuple[int, int] | None:
    try:
        size = int(str(columns)), int(str(rows))
    except ValueError:
        return None
    return size if all(0 < each <= _MOST_CELLS for each in size) else None


def decode_header(line: bytes) -> CastHeader:
    """Raises CastError if *line* is not the header of asciicast v2 or v3."""
    try:
        facts = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or facts.get("version") not in (2, 3):
        raise CastError("this is not an asciicast of version 2 or 3")
    term = facts.get("term") if facts["version"] == 3 else None
    term = term if isinstance(term, dict) else {}
    names = ("cols", "rows") if facts["version"] == 3 else ("width", "height")
    size = _size(*((term or facts).get(name) for name in names))
    if size is None:
        raise CastError("the header of the recording has no size of the terminal")
    env = facts.get("env")
    return CastHeader(
        version=facts["version"],
        columns=size[0],
        rows=size[1],
        started=_number(facts.get("timestamp")),
        command=_text(facts.get("command")),
        title=_text(facts.get("title")),
        term=_text(term.get("type") or (env.get("TERM") if isinstance(env, dict) else None)),
        idle_limit=_number(facts.get("idle_time_limit")),
        owner=_text(facts.get("exec_server_owner")),
    )


def _number(value: object) -> float | None:
    """A number of seconds; None if it is none that a clock or a player could use."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < _LONGEST else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


_EVENTS = msgspec.json.Decoder(tuple[float, str, str])


def decode_event(line: bytes) -> CastEvent | None:
    """The event of a line, with the time as it is written; None for a comment or a blank line.

    Raises CastError for any other line.
    """
    if line.startswith(b"#") or not line.strip():
        return None
    try:
        event = CastEvent(*_EVENTS.decode(line))
    except (msgspec.DecodeError, RecursionError):
        raise CastError(f"this is not an event of a recording: {line[:60]!r}") from None
    if not 0 <= event.time < _LONGEST:
        raise CastError(f"an event has the time {event.time}")
    return event
