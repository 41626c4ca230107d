"""What a server says of sessions in its log."""

from __future__ import annotations

import asyncio
import logging

import pytest

from exec_server.limits import Limits
from exec_server.printable import short_digest
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.local import resumed
from tests.support.wire import PATIENCE, Wire


class Lines(logging.Handler):
    """Keeps every line, and tells when one says that a session has expired."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.expired = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if "expired" in self.lines[-1]:
            self.expired.set()


@pytest.fixture
def log():
    root, lines = logging.getLogger(), Lines()
    level = root.level
    root.addHandler(lines)
    root.setLevel(logging.DEBUG)
    yield lines
    root.removeHandler(lines)
    root.setLevel(level)


def said_of(session, log):
    """What the log says of *session*, a word for each line."""
    assert not [line for line in log.lines if session in line]
    return [line.split()[2] for line in log.lines if short_digest(session) in line]


@requirement("security/logs:no-session-ids")
async def test_the_log_never_has_the_id_of_a_session(server, log):
    async with Wire(server.url) as wire, Wire(server.url) as other:
        session = (await wire.initialize())["sessionId"]
        await other.error("initialize", {"clientName": "x", "resumeSessionId": session})
        wire.cut()
        await wire.closed()
    again = await resumed(server.url, session)
    again.cut()
    assert said_of(session, log)[:3] == ["attached", "detached", "attached"]


@requirement("security/logs:no-session-ids")
async def test_nor_when_the_session_expires(no_leaks, log):
    async with serve(limits=Limits(detached_session_seconds=0.01)) as running:
        async with Wire(running.url) as wire:
            session = (await wire.initialize())["sessionId"]
        async with asyncio.timeout(PATIENCE):
            await log.expired.wait()
    assert said_of(session, log) == ["attached", "detached", "expired"]
