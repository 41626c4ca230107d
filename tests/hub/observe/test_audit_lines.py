"""The audit log in a file: it may be rotated, and a full disk tears no line."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from exec_server.audit_lines import AuditLines
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


def test_a_torn_line_is_ended_before_the_next_one(tmp_path, monkeypatch, caplog):
    path = tmp_path / "audit.log"
    lines = AuditLines(str(path))
    write = os.write
    monkeypatch.setattr("os.write", lambda descriptor, data: write(descriptor, data[:4]))
    lines.write(b'{"a":1}')
    monkeypatch.undo()
    lines.write(b'{"b":2}')
    lines.close()
    assert path.read_bytes() == b'{"a"\n{"b":2}\n'
    assert caplog.text.count("cannot be written") == 1


def test_a_folder_that_is_gone_is_told_of_once_and_the_old_file_stays(tmp_path, caplog):
    folder = tmp_path / "logs"
    folder.mkdir()
    lines = AuditLines(str(folder / "audit.log"))
    folder.rename(tmp_path / "old")
    lines.write(b"one")
    lines.write(b"two")
    folder.mkdir()
    lines.write(b"three")
    lines.close()
    # No line is lost meanwhile.
    assert (tmp_path / "old" / "audit.log").read_bytes() == b"one\ntwo\n"
    assert (folder / "audit.log").read_bytes() == b"three\n"
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
    lines.write(b"one")
    with pytest.raises(OSError):
        lines.reopen()
    lines.write(b"two")
    lines.close()
    assert old.read_bytes() == b"one\ntwo\n"


def test_a_file_that_cannot_be_written_is_a_wrong_option(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot write the audit log"):
        AuditLines(str(tmp_path / "missing" / "audit.log"))
