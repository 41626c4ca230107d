"""The recorder of a server: the queue, the quota, and failures."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest

from exec_server.recording.cast_format import CastHeader
from exec_server.recording.recorder import TerminalRecorder
from exec_server.recording.recording_files import RecordingFiles
from tests.requirements import requirement
from tests.support.casts import events, output, write_cast


def recordings(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.cast"))


@requirement("recording:server")
def test_what_a_tap_is_told_is_recorded(tmp_path):
    recorder = TerminalRecorder(tmp_path / "new" / "folder", quota=1 << 20)
    tap = recorder.record("my shell", CastHeader(owner="eve"))
    tap.exit_status = lambda: 5
    tap.output(1, "pty", b"one ")
    tap.resized(30, 90)
    tap.driven("bob", "person")
    tap.exited(2)
    tap.output(3, "pty", b"two")
    tap.closed()
    recorder.close()
    (path,) = recordings(tmp_path / "new" / "folder")
    assert path.name.endswith("-my-shell.cast")
    assert [event[1:] for event in events(path)] == [
        ("o", "one "),
        ("r", "90x30"),
        ("m", "bob (person) drives"),
        ("o", "two"),
        ("x", "5"),
    ]


def _wait(event: threading.Event) -> None:
    assert event.wait(30)


@requirement("recording:never-waits")
def test_what_finds_no_room_is_left_out_and_told(tmp_path):
    recorder = TerminalRecorder(tmp_path, quota=1 << 30, spool_bytes=1000)
    tap = recorder.record("sh", CastHeader())
    begun = threading.Event()
    recorder.put(begun.set)
    _wait(begun)
    going = threading.Event()
    recorder.put(partial(_wait, going))
    for _ in range(10):
        tap.output(1, "pty", b"x" * 300)
    going.set()
    done = threading.Event()
    recorder.put(done.set)
    assert done.wait(30)
    tap.output(2, "pty", b"later")
    tap.closed()
    recorder.close()
    (path,) = recordings(tmp_path)
    assert output(path) == "x" * 900 + "later"
    assert [event.data for event in events(path) if event.code == "m"] == [
        "2100 bytes are missing: the disk was too slow"
    ]


@requirement("recording:never-waits")
def test_a_failure_ends_only_the_recording(tmp_path, caplog):
    folder = tmp_path / "folder"
    recorder = TerminalRecorder(folder, quota=1 << 20)
    folder.rmdir()
    tap = recorder.record("sh", CastHeader())
    tap.output(1, "pty", b"one")
    tap.closed()
    done = threading.Event()
    recorder.put(done.set)
    assert done.wait(30)
    folder.mkdir()
    tap = recorder.record("sh", CastHeader())
    tap.output(1, "pty", b"two")
    tap.closed()
    recorder.close()
    assert [output(path) for path in recordings(folder)] == ["two"]
    assert [record.message for record in caplog.records if "recording" in record.message]


@requirement("recording:quota")
def test_the_oldest_recordings_make_room(tmp_path):
    for number in range(1, 5):
        path = write_cast(tmp_path / f"2026010{number}T000000-sh.cast", [b"x" * 100_000])
        path.with_name(path.name + ".index").write_bytes(b"x" * 1000)
    (tmp_path / "other.cast").write_bytes(b"x" * 500_000)
    (tmp_path / "notes").write_bytes(b"x" * 500_000)
    files = RecordingFiles(tmp_path, quota=250_000)
    files.begun(str(tmp_path / "20260101T000000-sh.cast"))
    assert files.make_room()
    left = sorted(each.name for each in tmp_path.iterdir())
    kept = ["20260101T000000-sh.cast", "20260104T000000-sh.cast"]
    beside = [f"{name}.index" for name in kept]
    assert left == sorted([*kept, *beside, "notes", "other.cast"])


@requirement("recording:quota")
def test_a_recording_that_is_too_large_ends_with_a_mark(tmp_path):
    recorder = TerminalRecorder(tmp_path, quota=3 << 20)
    tap = recorder.record("sh", CastHeader())
    for _ in range(100):
        tap.output(1, "pty", b"x" * 100_000)
    tap.closed()
    recorder.close()
    (path,) = recordings(tmp_path)
    assert path.stat().st_size < 5 << 20
    assert events(path)[-1].data == "the recording ends here: the quota is used up"


def test_names_are_new_and_fit_for_files(tmp_path):
    files = RecordingFiles(tmp_path)
    first = files.new_path("../../etc/pass wd")
    assert first.parent == tmp_path and first.name.endswith("-etc-pass-wd.cast")
    first.write_text("")
    assert files.new_path("") != files.new_path("x")
    with pytest.raises(FileNotFoundError):
        write_cast(tmp_path / "none" / "a.cast", [])
