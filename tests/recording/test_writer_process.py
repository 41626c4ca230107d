"""The process that writes recordings: its death loses nothing, and it ends with the recorder."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from exec_server.recording.cast_format import CastHeader
from exec_server.recording.recorder import TerminalRecorder
from tests.requirements import requirement
from tests.support.casts import events, output
from tests.support.wire import PATIENCE

SECRET = "hunter2-Tr0ub4dor"


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[TerminalRecorder]:
    with closing(TerminalRecorder(tmp_path, quota=1 << 30, secrets=[SECRET])) as made:
        yield made


def written(recorder: TerminalRecorder) -> int:
    """Wait until everything is in the files; returns the process that has written it."""
    done = threading.Event()
    recorder.put(done.set)
    assert done.wait(PATIENCE)
    pid = recorder.writer_pid
    assert pid is not None
    return pid


def ends(pid: int) -> bool:
    """Wait until a process, which need not be a child, has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], PATIENCE)[0])
    finally:
        os.close(fd)


@requirement("recording:writer")
def test_the_death_of_the_writer_loses_nothing(recorder, tmp_path):
    tap, other = recorder.record("sh", CastHeader()), recorder.record("sh", CastHeader())
    tap.output(1, "pty", f"é one {SECRET[:6]}".encode())
    pid = written(recorder)
    os.kill(pid, signal.SIGKILL)
    # A character and a secret go on in the next process.
    tap.output(2, "pty", f"{SECRET[6:]} two é".encode()[:-1])
    other.output(1, "pty", b"other")
    second = written(recorder)
    assert second != pid
    os.kill(second, signal.SIGKILL)
    tap.output(3, "pty", "é".encode()[1:] + b" drei")
    tap.resized(30, 90)
    for each in (tap, other):
        each.exit_status = lambda: 0
        each.closed()
    written(recorder)
    first, last = sorted(tmp_path.glob("*.cast"), key=lambda each: -each.stat().st_size)
    assert output(first) == f"é one {'*' * len(SECRET)} two é drei"
    assert [event.code for event in events(first)][-2:] == ["r", "x"]
    assert output(last) == "other"


@requirement("recording:writer")
def test_the_writer_is_killed_while_it_writes(recorder, tmp_path):
    lines = [b"\x1b[3%dmline %d\x1b[m %s\r\n" % (n % 8, n, b"x" * 4000) for n in range(3000)]
    tap = recorder.record("sh", CastHeader())
    pid = written(recorder)
    for number, line in enumerate(lines):
        tap.output(number, "pty", line)
        if number == 1500:
            os.kill(pid, signal.SIGKILL)
    tap.closed()
    written(recorder)
    (path,) = tmp_path.glob("*.cast")
    assert output(path) == b"".join(lines).decode()


@requirement("recording:writer", "recording:never-waits")
def test_a_writer_that_always_dies_ends_the_recordings(recorder, caplog):
    tap = recorder.record("sh", CastHeader())
    for number in range(4):
        os.kill(written(recorder), signal.SIGKILL)
        tap.output(number, "pty", b"x")
    done = threading.Event()
    recorder.put(done.set)
    assert done.wait(PATIENCE)
    tap.output(9, "pty", b"y")
    tap.closed()
    recorder.close()
    told = [record.message for record in caplog.records if "ended too often" in record.message]
    assert len(told) == 1


@requirement("recording:writer")
def test_signals_for_the_server_do_not_end_the_writer(recorder, tmp_path):
    tap = recorder.record("sh", CastHeader())
    pid = written(recorder)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, signum)
    tap.output(1, "pty", b"still here")
    assert written(recorder) == pid
    tap.closed()
    recorder.close()
    assert ends(pid)
    (path,) = tmp_path.glob("*.cast")
    assert output(path) == "still here"


@requirement("recording:writer-gives-way")
def test_the_writer_gives_way_to_what_it_records(recorder):
    tap = recorder.record("sh", CastHeader())
    pid = written(recorder)
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, ours + 5)
    tap.closed()


_RECORDS = """
import sys, threading
from exec_server.recording.cast_format import CastHeader
from exec_server.recording.recorder import TerminalRecorder
recorder = TerminalRecorder(sys.argv[1], quota=1 << 30, secrets=["hunter2-Tr0ub4dor"])
tap = recorder.record("sh", CastHeader())
tap.output(0, "pty", b"first hunter2-Tr0")
done = threading.Event()
recorder.put(done.set)
done.wait()
print(recorder.writer_pid, flush=True)
for number in range(1 << 30):
    tap.output(number, "pty", b"line %d\\r\\n" % number * 100)
"""


@requirement("recording:writer", "recording:whole-lines")
def test_the_writer_ends_with_a_recorder_that_is_killed(tmp_path):
    words = [sys.executable, "-c", _RECORDS, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as recording:
        try:
            assert recording.stdout is not None
            pid = int(recording.stdout.readline())
        finally:
            recording.kill()
    assert ends(pid)
    (path,) = tmp_path.glob("*.cast")
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(json.loads(line) for line in path.read_bytes().splitlines())
    assert output(path).startswith("first *") or output(path).startswith("first hunter2-Tr0line 0")
    assert SECRET not in path.read_text()
