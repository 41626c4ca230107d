"""The process that writes recordings: its death loses nothing, and it ends with the recorder."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from exec_server.recording.cast_format import CastHeader
from exec_server.recording.recorder import SPOOL_BYTES, TerminalRecorder
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
import os, sys, threading
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
    os.write(1, b"%d\\n" % number)
"""


@requirement("recording:writer", "recording:whole-lines", "recording:spool")
def test_nothing_is_lost_when_the_recorder_is_killed(tmp_path):
    words = [sys.executable, "-c", _RECORDS, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as recording:
        try:
            assert recording.stdout is not None
            pid = int(recording.stdout.readline())
            told = [b"0"]
            while int(told[-1]) < 2000:
                told.append(recording.stdout.readline())
        finally:
            recording.kill()
        last = int([*told, *recording.stdout.read().split()][-1])
    assert ends(pid)
    (path,) = tmp_path.glob("*.cast")
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(json.loads(line) for line in path.read_bytes().splitlines())
    shown = output(path)
    assert shown.startswith("first hunter2-Tr0line 0")
    numbers = [int(each) for each in re.findall(r"line (\d+)\r\n", shown)]
    whole = [number for number in range(last + 1) for _ in range(100)]
    assert numbers[: len(whole)] == whole
    # The recorder was killed before it could say that more was printed.
    assert set(numbers[len(whole) :]) <= {last + 1, last + 2}
    assert not any(event.code == "m" for event in events(path))


@requirement("recording:lag")
def test_output_is_in_the_file_soon_without_being_asked_for(recorder, tmp_path):
    tap = recorder.record("sh", CastHeader())
    written(recorder)
    (path,) = tmp_path.glob("*.cast")
    for text in ("one ", "two ", "three "):
        tap.output(1, "pty", text.encode())
        until(partial(_ends_with, path, text))
    assert output(path) == "one two three "


@requirement("recording:lag", "recording:spool")
def test_a_flood_without_an_end_is_converted_while_it_goes_on(recorder, tmp_path):
    tap = recorder.record("sh", CastHeader())
    written(recorder)
    (path,) = tmp_path.glob("*.cast")
    line = b"x" * 998 + b"\r\n"
    printed = 0
    # More than the spool has room for, and no pause.
    while printed < 1.25 * SPOOL_BYTES:
        until(partial(recorder.has_room, 32 * len(line)))
        tap.output(1, "pty", line * 32)
        printed += 32 * len(line)
    assert path.stat().st_size > printed - SPOOL_BYTES
    tap.closed()
    written(recorder)
    assert len(output(path)) == printed
    assert not any(event.code == "m" for event in events(path))


@requirement("recording:spool")
def test_memory_is_given_back_after_a_flood(recorder):
    tap = recorder.record("sh", CastHeader())
    for _ in range(200):
        tap.output(1, "pty", b"x" * 100_000)
    assert spooled() > 10_000_000
    written(recorder)
    until(lambda: spooled() < 100_000)


@requirement("recording:writer")
def test_terminals_of_one_second_have_files_of_their_own(recorder, tmp_path):
    taps = [recorder.record("sh", CastHeader()) for _ in range(5)]
    for number, tap in enumerate(taps):
        tap.output(1, "pty", b"terminal %d" % number)
        tap.closed()
    pid = written(recorder)
    assert {tap.path for tap in taps} == {str(path) for path in tmp_path.glob("*.cast")}
    assert [output(Path(tap.path)) for tap in taps] == [f"terminal {n}" for n in range(5)]
    os.kill(pid, signal.SIGKILL)
    recorder.record("sh", CastHeader()).closed()
    written(recorder)
    assert len(list(tmp_path.glob("*.cast"))) == 6


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        os.sched_yield()


def spooled() -> int:
    """The bytes of the segments that this process holds."""
    total = 0
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(entry.path).startswith("/memfd:recordings"):
                total += os.stat(entry.path).st_size
    return total


def _ends_with(path: Path, text: str) -> bool:
    return output(path).endswith(text)
