"""A process that writes a journal is killed: every byte is in the pipe or in the journal, once."""

from __future__ import annotations

import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import exec_server
from exec_server.process.journal import Journal
from exec_server.process.journaling import journal_files
from exec_server.process.journaling.journal_format import EndOfStream, Record
from exec_server.process.journaling.terminal_output import take_terminal
from tests.requirements import requirement
from tests.support.children import child

MANY = 1 << 40
PATIENCE = 60.0
ROUNDS = 25
EVENT = struct.Struct("<QQ")


def open_journal(folder: Path, max_bytes: int = MANY, max_records: int = MANY) -> Journal:
    return Journal.open(folder, max_bytes=max_bytes, max_records=max_records)


# Killed at every single call.


class KilledError(BaseException):
    """Stands for SIGKILL: the code that it interrupts does not go on."""


class KilledAt:
    """Lets so many calls that change files pass, then kills before or after the next one."""

    CALLS = ("splice", "pwrite", "ftruncate", "rename", "unlink")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: int, *, is_done: bool) -> None:
        self.left = call
        self.is_done = is_done
        for name in self.CALLS:
            monkeypatch.setattr(os, name, self.counted(getattr(os, name)))
        monkeypatch.setattr(journal_files, "punch_hole", self.counted(journal_files.punch_hole))

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self.is_done:
                raise KilledError
            try:
                return function(*args, **options)
            finally:
                if self.left == 0:
                    raise KilledError

        return call


class Work:
    """A job's output, taken, dropped and noted; what was told before the process was killed."""

    BOUNDS = (6000, 12)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reader, self.writer = os.pipe2(os.O_NONBLOCK)
        self.printed = b""
        self.told: dict[int, tuple[str, Any]] = {}
        self.journal = Journal.create(folder, ("stdout",), max_bytes=6000, max_records=12)

    def run(self) -> None:
        self.journal.close()
        self.journal = open_journal(self.folder, *self.BOUNDS)
        for number in range(16):
            data = b"%04d " % number * (200 if number % 3 else 7)
            os.write(self.writer, data)
            self.printed += data
            self.take(500)
            self.take(4096)
            if number == 5:
                self.told[self.journal.note("exited", 5)] = ("exited", 5)
        self.journal.trim(100)

    def take(self, max_bytes: int) -> None:
        record = self.journal.take("stdout", self.reader, max_bytes)
        if record is not None:
            self.told[record.seq] = (record.kind, self.journal.read(record))

    def close(self) -> None:
        self.journal.close()
        for fd in (self.reader, self.writer):
            os.close(fd)

    def check(self) -> None:
        """Open the journal as the next process does."""
        self.journal.close()
        self.journal = open_journal(self.folder, *self.BOUNDS)
        assert self.journal.damage == []
        kept = b""
        for record in self.journal.records():
            if record.kind == "stdout":
                data = self.journal.read(record)
                kept += data
                assert self.told.get(record.seq, ("stdout", data)) == ("stdout", data)
            else:
                assert self.told.get(record.seq, ("exited", 5)) == (record.kind, record.value)
        assert self.journal.next_seq > max(self.told, default=0)
        taken = self.journal.size("stdout")
        assert self.journal.dropped_bytes + len(kept) == taken
        assert kept == self.printed[taken - len(kept) : taken]
        assert any(kind == "exited" for kind, _ in self.told.values()) <= (
            "exited" in self.journal.notes
        )
        try:
            left = os.read(self.reader, 1 << 16)
        except BlockingIOError:
            left = b""
        assert left == self.printed[taken:]


@requirement("durable:random-kills")
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("punches", [True, False], ids=["holes", "copies"])
def test_a_kill_at_any_call_loses_and_repeats_nothing(tmp_path, monkeypatch, punches, is_done):
    if not punches:
        monkeypatch.setattr(journal_files, "punch_hole", lambda *_: False)
    call, was_killed = 0, True
    while was_killed:
        call += 1
        work = Work(tmp_path / str(call))
        with monkeypatch.context() as patches:
            KilledAt(patches, call, is_done=is_done)
            try:
                work.run()
                was_killed = False
            except KilledError:
                pass
        work.check()
        work.close()
    assert call > 60


@requirement("durable:random-kills")
def test_a_kill_while_a_journal_is_made_damages_nothing(tmp_path, monkeypatch):
    """The program may print already: its output waits in the pipe for the next process."""
    call, was_killed = 0, True
    while was_killed:
        call += 1
        folder = tmp_path / str(call)
        folder.mkdir(mode=0o700)
        with monkeypatch.context() as patches:
            killing = KilledAt(patches, call, is_done=False)
            patches.setattr(
                journal_files, "create_file", killing.counted(journal_files.create_file)
            )
            try:
                Journal.create(folder, ("stdout", "stderr"), max_bytes=9, max_records=9).close()
                was_killed = False
            except KilledError:
                pass
        journal = Journal.open(folder, max_bytes=9, max_records=9, streams=("stdout", "stderr"))
        assert (journal.damage, journal.next_seq, list(journal.records())) == ([], 1, [])
        journal.append("stderr", b"late")
        journal.close()
        again = open_journal(folder)
        assert [again.read(record) for record in again.records()] == [b"late"]
        assert again.damage == []
        again.close()
    assert call == 6


# Killed from outside.


class Events:
    """What a process has told before it was killed, as a client would have received it."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(self.writer, True)
        self._input = b""
        self.told: list[tuple[int, bytes]] = []

    def receive(self) -> bool:
        """Read what is there; False if it was nothing."""
        try:
            self._input += os.read(self.reader, 1 << 20)
        except BlockingIOError:
            return False
        while len(self._input) >= EVENT.size:
            seq, length = EVENT.unpack_from(self._input)
            end = EVENT.size + length
            if len(self._input) < end:
                break
            self.told.append((seq, self._input[EVENT.size : end]))
            self._input = self._input[end:]
        return True

    def receive_until(self, count: int, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(self.told) < count and process.poll() is None:
            assert time.monotonic() < deadline
            select.select([self.reader], [], [], 1.0)
            self.receive()

    def forget_half(self) -> None:
        """What a killed process had written of an event."""
        while self.receive():
            pass
        self._input = b""

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)


@pytest.fixture
def events() -> Iterator[Events]:
    received = Events()
    yield received
    received.close()


PRINTS = """
import os, select
count = 0
while not select.select([0], [], [], 0)[0]:
    os.write(1, b"%08d," % count * (1 + count * 7919 % 400))
    count += 1
os.write(2, b"%d" % count)
"""


class Printing:
    """A program that prints until it is told to stop."""

    def __init__(self, stdout: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PRINTS],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
        os.close(stdout)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def printed(self) -> bytes:
        """Everything that it has printed, after its end."""
        with self._process:
            assert self._process.stderr is not None
            count = int(self._process.stderr.read())
        return b"".join(b"%08d," % n * (1 + n * 7919 % 400) for n in range(count))


def pump_and_kill(folder: Path, stream: str, source: int, events: Events, *more: int) -> None:
    """Let processes pump, one after the other, each killed at a moment of its own."""
    chance = random.Random(folder.name)
    for _ in range(ROUNDS):
        argv = child("pumps_into_a_journal.py", exec_server.__path__[0], folder, stream, *more[:1])
        pump = subprocess.Popen(argv, stdin=source, stdout=events.writer, pass_fds=more)
        events.receive_until(len(events.told) + chance.randrange(1, 40), pump)
        pump.kill()
        pump.wait(PATIENCE)
        events.forget_half()


def check_told(journal: Journal, events: Events, stream: str, expected: bytes) -> None:
    assert journal.damage == []
    records = list(journal.records())
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert b"".join(map(journal.read, records)) == expected
    for seq, data in events.told:
        assert records[seq - 1].kind == stream
        assert journal.read(records[seq - 1]) == data
    assert len({seq for seq, _ in events.told}) == len(events.told)


def rest_of(take: Callable[[], Record | None], source: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline
        select.select([source], [], [], 1.0)
        try:
            take()
        except EndOfStream:
            return


@requirement("durable:random-kills")
def test_processes_that_pump_are_killed_and_no_byte_is_lost(tmp_path, events):
    folder = tmp_path / "pipe"
    Journal.create(folder, ("stdout",), max_bytes=MANY, max_records=MANY).close()
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reader, False)
    printing = Printing(writer)
    pump_and_kill(folder, "stdout", reader, events)
    printing.stop()
    journal = open_journal(folder)
    rest_of(lambda: journal.take("stdout", reader, 1 << 16), reader)
    check_told(journal, events, "stdout", printing.printed())
    assert len(events.told) > ROUNDS
    journal.close()
    os.close(reader)


@requirement("durable:random-kills")
def test_a_terminal_that_is_pumped_by_killed_processes_loses_no_byte(tmp_path, events):
    folder = tmp_path / "terminal"
    Journal.create(folder, ("pty",), max_bytes=MANY, max_records=MANY).close()
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    master, slave = os.openpty()
    os.set_blocking(master, False)
    # The child expects the pipe's writer behind the terminal's master.
    given = fcntl.fcntl(master, fcntl.F_DUPFD_CLOEXEC, 100)
    os.dup2(writer, given + 1, inheritable=False)
    printing = Printing(slave)
    pump_and_kill(folder, "pty", reader, events, given, given + 1)
    printing.stop()
    journal = open_journal(folder)
    rest_of(lambda: take_terminal(journal, master, (reader, writer), 1 << 16), master)
    check_told(journal, events, "pty", printing.printed())
    journal.close()
    for fd in (reader, writer, master, given, given + 1):
        os.close(fd)
