"""An audit event as one line for people."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator

from exec_server.audit.event import AuditLine
from exec_server.printable import escaped, printable

_COMMAND_CHARACTERS = 200


def words(line: AuditLine) -> str:
    """A line with the time, the number, who, from where, what, and how it ended."""
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at))
    who = line.principal or "-"
    return escaped(
        f"{moment}  {line.number:>6}  {who:<12}  {_where(line):<21}  {line.name:<18}  "
        + "; ".join(_facts(line))
    ).rstrip()


def _where(line: AuditLine) -> str:
    if line.pid is not None:
        return f"{line.address or 'unix'} pid {line.pid}"
    return line.address or "-"


def _facts(line: AuditLine) -> Iterator[str]:
    yield from _subject(line)
    yield from _surroundings(line)
    yield from _end(line)
    if line.seconds is not None:
        yield f"after {line.seconds:g} s"
    if line.detail:
        yield line.detail
    yield from _outcome(line)


def _subject(line: AuditLine) -> Iterator[str]:
    if line.environment_id:
        yield line.environment_id
    if line.argv is not None:
        command = printable(shlex.join(line.argv), limit=_COMMAND_CHARACTERS)
        yield f"{line.process}: {command}" if line.process else command
    elif line.process:
        yield line.process
    if line.url:
        yield f"{line.http_method} {line.url}"
    if line.paths:
        yield " -> ".join(line.paths)
    if line.grant:
        yield f"grants {line.grant}"


def _surroundings(line: AuditLine) -> Iterator[str]:
    if line.cwd:
        yield f"in {line.cwd}"
    if line.sandbox:
        yield f"sandbox {line.sandbox}"
    if line.limits:
        yield "limits " + ", ".join(
            f"{name} {_number(value)}" for name, value in line.limits.items()
        )


def _end(line: AuditLine) -> Iterator[str]:
    if line.exit_code is not None:
        yield f"status {line.exit_code}"
    if line.signal:
        yield line.signal
    if line.cause:
        yield f"cause {line.cause}"
    if line.ended_by:
        yield f"by {line.ended_by}"
    if line.usage:
        yield ", ".join(f"{name} {_number(value)}" for name, value in line.usage.items())
    if line.bytes_in:
        yield f"{line.bytes_in} bytes in"
    if line.bytes_out:
        yield f"{line.bytes_out} bytes out"


def _number(value: float) -> str:
    """Bytes and counts in full, and times to the millisecond."""
    return str(int(value)) if value == int(value) else f"{value:.3f}"


def _outcome(line: AuditLine) -> Iterator[str]:
    if line.status is not None:
        yield f"HTTP {line.status}"
    if line.code is not None:
        yield f"error {line.code}: {line.error}"
