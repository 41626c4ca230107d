"""The audit log in a file: it may be rotated, and a full disk tears no line."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from exec_server.audit.audit_file import AuditLines
from exec_server.audit.chain import check, placed
from exec_server.audit.event import AuditEvent
from exec_server.errors import ConfigurationError
from tests.hub.conftest import Visitor
from tests.requirements import requirement
from tests.support.files import until


def names_in(path: Path) -> list[str]:
    return [json.loads(line)["environment_id"] for line in path.read_text().splitlines()]


@requirement("hub/audit:rotated")
async def test_a_rotated_audit_log_is_followed(visit, tmp_path):
    path, old = tmp_path / "audit.log", tmp_path / "audit.log.1"
    visitor: Visitor = await visit(audit_log=str(path))
    _, secret = await visitor.token("enrol")
    await visitor.register("one", secret)
    os.rename(path, old)
    await visitor.register("two", secret)
    assert names_in(old) == ["one"]
    assert names_in(path) == ["two"]
    # Another program has made the new file.
    os.rename(path, tmp_path / "audit.log.2")
    path.touch()
    await visitor.register("three", secret)
    assert names_in(path) == ["three"]
    # The chain goes on from file to file.
    files = [tmp_path / name for name in ("audit.log.1", "audit.log.2", "audit.log")]
    rows = [row for file in files for row in placed(str(file), file.read_bytes().splitlines())]
    done = check(rows)
    assert not done.faults and done.end.number == 3
    assert path.stat().st_mode & 0o777 != 0


@requirement("hub/audit:rotated")
async def test_sighup_opens_the_audit_log_again(tmp_path):
    path = tmp_path / "audit.log"
    words = ["registry", "--state", str(tmp_path / "state"), "--audit-log", str(path)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "exec_server", *words, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            assert await process.stdout.readline()
            os.rename(path, tmp_path / "audit.log.1")
            process.send_signal(signal.SIGHUP)
            await until(path.exists)
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await process.wait() == 0


def event(name: str) -> AuditEvent:
    return AuditEvent(at=1.0, name=name)


def events_in(path: Path) -> list[str]:
    return [json.loads(line)["name"] for line in path.read_text().splitlines()]


def test_a_part_of_a_line_is_removed_and_counted_as_lost(tmp_path, monkeypatch, caplog):
    path = tmp_path / "audit.log"
    lines = AuditLines(str(path))
    write = os.write

    def write_a_part(descriptor: int, data: bytes) -> int:
        if not data.startswith(b"{"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[:4])

    monkeypatch.setattr("os.write", write_a_part)
    lines.write_event(event("a"))
    monkeypatch.undo()
    lines.write_event(event("b"))
    lines.close()
    assert events_in(path) == ["events lost", "b"]
    assert caplog.text.count("cannot be written") == 1


def test_a_folder_that_is_gone_is_told_of_once_and_the_old_file_stays(tmp_path, caplog):
    folder = tmp_path / "logs"
    folder.mkdir()
    lines = AuditLines(str(folder / "audit.log"))
    folder.rename(tmp_path / "old")
    lines.write_event(event("one"))
    lines.write_event(event("two"))
    folder.mkdir()
    lines.write_event(event("three"))
    lines.close()
    # No line is lost meanwhile.
    assert events_in(tmp_path / "old" / "audit.log") == ["one", "two"]
    assert events_in(folder / "audit.log") == ["three"]
    assert caplog.text.count("cannot be opened again") == 1


@requirement("hub/audit:rotated")
@pytest.mark.parametrize("other", ["fifo", "directory", "link to itself"])
def test_what_is_put_in_the_place_of_the_file_neither_stops_nor_loses_anything(tmp_path, other):
    path, old = tmp_path / "audit.log", tmp_path / "audit.log.1"
    lines = AuditLines(str(path))
    os.rename(path, old)
    if other == "fifo":
        os.mkfifo(path)
    elif other == "directory":
        path.mkdir()
    else:
        path.symlink_to(path)
    # An open FIFO that no program reads would stop the whole registry here.
    lines.write_event(event("one"))
    with pytest.raises(OSError):
        lines.reopen()
    lines.write_event(event("two"))
    lines.close()
    assert events_in(old) == ["one", "two"]


def test_a_file_that_cannot_be_written_is_a_wrong_option(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot write the audit log"):
        AuditLines(str(tmp_path / "missing" / "audit.log"))
