"""When the lines of an audit log reach the disk, and what happens if they do not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from exec_server.audit.audit_file import AuditLines, AuditOptions
from exec_server.audit.disk_sync import SyncPolicy
from exec_server.audit.event import AuditEvent
from tests.requirements import requirement
from tests.support.leaks import eventually

EVENT = AuditEvent(at=1.0, name="x")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of files that were written through."""
    found: list[int] = []
    monkeypatch.setattr("os.fdatasync", lambda fd: found.append(os.fstat(fd).st_size))
    monkeypatch.setattr("exec_server.audit.disk_sync._INTERVAL_SECONDS", 0.01)
    return found


@requirement("audit/fsync")
@pytest.mark.parametrize("policy", ["always", "interval"])
async def test_all_lines_reach_the_disk_by_themselves(
    tmp_path, synced, policy: SyncPolicy, no_leaks
):
    path = tmp_path / "audit.log"
    lines = AuditLines(str(path), AuditOptions(fsync=policy))
    for _ in range(3):
        for _ in range(100):
            lines.write_event(EVENT)
        await eventually(lambda: lines.sync.synced == lines.sync.written)
    assert synced[-1] == path.stat().st_size
    # Lines that are written together share a sync.
    assert len(synced) <= 6
    lines.close()
    assert lines.sync.failures == 0


@requirement("audit/fsync")
async def test_never_leaves_it_to_the_system(tmp_path, synced):
    lines = AuditLines(str(tmp_path / "audit.log"))
    lines.write_event(EVENT)
    lines.close()
    assert not synced


@requirement("audit/fsync", "audit/rotation")
async def test_a_file_reaches_the_disk_before_it_is_renamed_or_closed(tmp_path, synced, no_leaks):
    path = tmp_path / "audit.log"
    lines = AuditLines(str(path), AuditOptions(fsync="interval", max_bytes=1000))
    while not Path(f"{path}.1").exists():
        lines.write_event(EVENT)
    assert synced == [Path(f"{path}.1").stat().st_size]
    lines.close()
    assert synced[-1] == path.stat().st_size


@requirement("audit/full:refuse")
async def test_a_disk_that_fails_refuses_work_until_it_works_again(
    tmp_path, monkeypatch, caplog, no_leaks
):
    options = AuditOptions(fsync="always", when_full="refuse")
    lines = AuditLines(str(tmp_path / "audit.log"), options)

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("os.fdatasync", fail)
    assert lines.admits()
    lines.write_event(EVENT)
    await eventually(lambda: lines.sync.is_failing)
    assert not lines.admits()
    monkeypatch.undo()
    await eventually(lines.admits)
    lines.close()
    assert caplog.text.count("cannot be written to the disk: Input/output error") == 1
    assert lines.sync.failures >= 1
