"""The file of an audit log: restarts, rotation, crashes, a full disk, other writers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from exec_server.audit.audit_file import AuditLines, AuditOptions
from exec_server.audit.audit_reader import files_of, follow, lines_of
from exec_server.audit.chain import ChainCheck, check
from exec_server.audit.event import AuditEvent, WorkEvent
from exec_server.errors import ConfigurationError
from tests.requirements import requirement
from tests.support.tiny_disk import fill, tiny_disk


def event(name: str = "x", detail: str = "") -> AuditEvent:
    return AuditEvent(at=1.0, name=name, detail=detail)


def verified(path: Path) -> ChainCheck:
    done = check(lines_of(str(path)))
    assert not done.faults, done.faults
    return done


def names(path: Path) -> list[str]:
    return [json.loads(line)["name"] for _, line in lines_of(str(path))]


@requirement("audit/chain:goes-on")
def test_the_chain_goes_on_after_a_restart(tmp_path):
    path = tmp_path / "audit.log"
    for number in range(3):
        lines = AuditLines(str(path))
        lines.write_event(event(str(number)))
        lines.close()
    assert verified(path).end.number == 3
    assert names(path) == ["0", "1", "2"]
    assert path.stat().st_mode & 0o777 == 0o600


@requirement("audit/rotation", "audit/chain:goes-on")
def test_a_full_file_is_renamed_and_the_chain_goes_on(tmp_path):
    path = tmp_path / "audit.log"
    lines = AuditLines(str(path), AuditOptions(max_bytes=2000, keep=3))
    for _ in range(100):
        lines.write_event(event(detail="y" * 100))
    lines.close()
    found = [Path(each).name for each in files_of(str(path))]
    assert found == ["audit.log.3", "audit.log.2", "audit.log.1", "audit.log"]
    assert all(each.stat().st_size <= 2000 for each in tmp_path.iterdir())
    done = verified(path)
    assert done.end.number == 100 and done.first is not None and done.first.number > 1
    # The file itself is gone, and the next server finds the end in the one before it.
    path.unlink()
    lines = AuditLines(str(path))
    lines.write_event(event("after"))
    lines.close()
    first = json.loads(path.read_text().splitlines()[0])
    assert (
        first["prev"] == json.loads((tmp_path / "audit.log.1").read_text().splitlines()[-1])["hash"]
    )


@requirement("audit/chain:goes-on")
def test_a_file_that_another_program_renames_is_followed(tmp_path):
    path = tmp_path / "audit.log"
    lines = AuditLines(str(path))
    lines.write_event(event("one"))
    path.rename(tmp_path / "audit.log.1")
    lines.write_event(event("two"))
    lines.reopen()
    lines.write_event(event("three"))
    lines.close()
    assert names(path) == ["one", "two", "three"]
    assert verified(path).end.number == 3


@requirement("audit/chain:one-writer")
def test_a_second_writer_is_refused_until_the_first_has_ended(tmp_path):
    path = str(tmp_path / "audit.log")
    first = AuditLines(path)
    with pytest.raises(ConfigurationError, match="another server writes to the audit log"):
        AuditLines(path)
    # A renamed file is still locked; the new one is as well, as soon as it is there.
    os.rename(path, f"{path}.1")
    first.write_event(event())
    with pytest.raises(ConfigurationError, match="another server"):
        AuditLines(path)
    first.close()
    AuditLines(path).close()


@requirement("audit/chain:crash")
@pytest.mark.parametrize("missing", [1, 2, 60, "all but one byte"])
def test_a_line_that_was_cut_is_marked_at_the_next_start(tmp_path, caplog, missing):
    path = tmp_path / "audit.log"
    lines = AuditLines(str(path))
    lines.write_event(event("one"))
    whole = path.stat().st_size
    lines.write_event(event("two"))
    lines.close()
    size = whole + 1 if isinstance(missing, str) else path.stat().st_size - missing
    os.truncate(path, size)
    lines = AuditLines(str(path))
    lines.write_event(event("three"))
    lines.close()
    done = verified(path)
    if missing == 1:
        # Only the newline was missing.
        assert names(path) == ["one", "two", "three"] and not done.remarks
        return
    assert "was cut by a crash" in done.remarks[0] and "was cut" in caplog.text
    rows = path.read_bytes().splitlines()
    assert [json.loads(row)["name"] for row in (rows[0], *rows[2:])] == [
        "one",
        "torn line",
        "three",
    ]


def test_lines_of_an_older_release_stay_and_the_chain_begins_after_them(tmp_path):
    path = tmp_path / "audit.log"
    path.write_text('{"at":1,"name":"old"}\n')
    lines = AuditLines(str(path))
    lines.write_event(event("new"))
    lines.close()
    assert verified(path).remarks == ["1 lines before the chain are not protected"]


def test_a_name_that_is_no_text_is_written_all_the_same(tmp_path):
    lines = AuditLines(str(tmp_path / "audit.log"))
    assert lines.write_event(
        WorkEvent(at=1.0, name="fs/remove", paths=["/\udcff"], argv=["\udc80"])
    )
    lines.close()
    assert json.loads((tmp_path / "audit.log").read_text())["paths"] == ["/\\udcff"]


def test_after_the_end_nothing_is_written(tmp_path):
    lines = AuditLines(str(tmp_path / "audit.log"))
    lines.close()
    assert not lines.write_event(event())


@requirement("audit/full:go-on")
def test_lines_that_were_lost_on_a_full_disk_are_counted(tmp_path, caplog):
    with tiny_disk(256 * 1024, tmp_path / "disk") as disk:
        path = disk / "audit.log"
        lines = AuditLines(str(path))
        assert lines.write_event(event("before"))
        filling = fill(disk)
        # The rest of the block of the file takes some lines.
        lost = 0
        for _ in range(100):
            lost += not lines.write_event(event("during", "z" * 200))
            assert lines.admits()
        assert lost > 50 and lines.lost_total == lost
        filling.unlink()
        assert lines.write_event(event("after"))
        lines.close()
        found = [json.loads(line) for _, line in lines_of(str(path))]
        assert [each["name"] for each in found[-2:]] == ["events lost", "after"]
        assert found[-2]["detail"] == str(lost)
        verified(path)
    assert caplog.text.count("cannot be written: No space left on device") == 1


@requirement("audit/full:refuse")
def test_a_reserve_is_left_for_what_is_under_way_when_work_is_refused(tmp_path, caplog):
    with tiny_disk(1 << 20, tmp_path / "disk") as disk:
        path = disk / "audit.log"
        lines = AuditLines(str(path), AuditOptions(when_full="refuse"))
        assert lines.admits()
        filling = fill(disk)
        under_way = 0
        # Requests are admitted while the reserve is large enough.
        while lines.admits():
            assert lines.write_event(event("admitted", "z" * 1000))
            under_way += 1
        # What was under way is still written.
        for _ in range(50):
            assert lines.write_event(event("under way", "z" * 1000))
        assert not lines.admits() and lines.refused_total == 2 and lines.lost_total == 0
        filling.unlink()
        assert lines.admits()
        lines.close()
        assert names(path)[-1] == "requests refused"
        assert verified(path).lines == under_way + 51
    assert caplog.text.count("requests are refused") == 1


@requirement("audit/command:filters")
def test_a_log_is_followed_through_rotations(tmp_path):
    path = tmp_path / "audit.log"
    lines = AuditLines(str(path), AuditOptions(max_bytes=1000, keep=50))
    lines.write_event(event("0"))
    written = 1

    def write_more() -> None:
        nonlocal written
        lines.write_event(event(str(written), "y" * 300))
        written += 1

    found = []
    for line in follow(str(path), pause=write_more):
        found.append(json.loads(line)["name"])
        if len(found) == 20:
            break
    lines.close()
    assert found == [str(number) for number in range(20)]
    assert len(files_of(str(path))) > 5
