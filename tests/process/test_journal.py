"""The journal of a durable job: what is written once is read once, under the same number."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import exec_server
from exec_server.process.journal import Journal
from exec_server.process.journaling import journal_files
from exec_server.process.journaling.journal_format import NOTES, EndOfStream, Record
from exec_server.process.journaling.terminal_output import take_terminal
from tests.requirements import requirement
from tests.support.leaks import open_descriptors

MANY = 1 << 20
PIPES = ("stdout", "stderr")


def create(folder: Path, streams: tuple[str, ...] = PIPES, **bounds: int) -> Journal:
    return Journal.create(folder, streams, **{"max_bytes": MANY, "max_records": MANY, **bounds})


def reopen(folder: Path, *, max_bytes: int = MANY, max_records: int = MANY) -> Journal:
    return Journal.open(folder, max_bytes=max_bytes, max_records=max_records)


def told(journal: Journal, after: int = 0) -> list[tuple[int, str, Any]]:
    """Every record with its bytes or its value."""
    return [
        (record.seq, record.kind, journal.read(record) if record.length else record.value)
        for record in journal.records(after)
    ]


def output(journal: Journal, stream: str) -> bytes:
    return b"".join(journal.read(record) for record in journal.records() if record.kind == stream)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "job"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    yield ends
    for fd in ends:
        try:
            os.close(fd)
        except OSError as exc:
            assert exc.errno == errno.EBADF


def test_output_is_numbered_in_the_order_in_which_it_was_taken(folder, pipe):
    reader, writer = pipe
    journal = create(folder)
    assert journal.take("stdout", reader, 100) is None
    assert not journal.is_stalled
    os.write(writer, b"hello world")
    assert journal.take("stdout", reader, 5) == Record(1, "stdout", 0, 5)
    assert journal.append("stderr", b"oh") == Record(2, "stderr", 0, 2)
    assert journal.append("stderr", b"") is None
    assert journal.take("stdout", reader, 100) == Record(3, "stdout", 5, 6)
    assert journal.note("exited", -9) == 4
    os.close(writer)
    with pytest.raises(EndOfStream):
        journal.take("stdout", reader, 100)
    assert journal.note("closed") == 5
    expected = [
        (1, "stdout", b"hello"),
        (2, "stderr", b"oh"),
        (3, "stdout", b" world"),
        (4, "exited", -9),
        (5, "closed", 0),
    ]
    assert told(journal) == expected
    assert told(journal, after=3) == expected[3:]
    assert (journal.size("stdout"), journal.size("stderr"), journal.next_seq) == (11, 2, 6)
    journal.close()
    again = reopen(folder)
    assert told(again) == expected
    assert again.notes["exited"].value == -9
    assert again.damage == []
    again.close()


def test_what_lies_behind_the_index_gets_the_next_number(folder, pipe):
    journal = create(folder)
    journal.append("stdout", b"told")
    journal.close()
    for name, data in (("stdout", b" untold"), ("stderr", b"untold, too")):
        with (folder / name).open("ab") as file:
            file.write(data)
    again = reopen(folder)
    assert told(again) == [
        (1, "stdout", b"told"),
        (2, "stdout", b" untold"),
        (3, "stderr", b"untold, too"),
    ]
    assert again.damage == []
    again.close()
    reopened = reopen(folder)
    assert [seq for seq, *_ in told(reopened)] == [1, 2, 3]
    assert reopened.next_seq == 4
    reopened.close()


@requirement("durable:bounds")
def test_a_bound_drops_whole_records_from_the_oldest_on(folder):
    journal = create(folder, max_bytes=80)
    for number in range(9):
        journal.append("stdout", b"%010d" % number)
    # The ninth record is one too many, and a little more goes with it.
    assert [seq for seq, *_ in told(journal)] == [3, 4, 5, 6, 7, 8, 9]
    assert (journal.dropped_bytes, journal.dropped_seq, journal.retained_bytes) == (20, 2, 70)
    assert journal.size("stdout") == 90
    assert journal.read(Record(1, "stdout", 0, 10)) == b""
    journal.close()
    again = reopen(folder)
    assert (again.dropped_bytes, again.dropped_seq) == (20, 2)
    assert told(again)[0] == (3, "stdout", b"%010d" % 2)
    again.close()


def test_the_newest_record_is_never_dropped_by_a_bound(folder):
    journal = create(folder, max_bytes=10)
    record = journal.append("stdout", b"x" * 100)
    assert record is not None
    assert journal.read(record) == b"x" * 100
    journal.append("stdout", b"y")
    assert told(journal) == [(2, "stdout", b"y")]
    assert journal.dropped_bytes == 100
    journal.close()


@requirement("durable:window")
def test_records_that_a_window_still_needs_are_kept(folder):
    journal = create(folder, max_bytes=10, max_records=2)
    journal.keep_from = 2
    for letter in b"abcde":
        journal.append("stdout", bytes([letter]) * 10)
    assert [seq for seq, *_ in told(journal)] == [2, 3, 4, 5]
    journal.keep_from = 5
    journal.trim(10)
    assert [seq for seq, *_ in told(journal)] == [5]
    journal.close()


def test_a_note_survives_that_its_place_is_dropped(folder):
    journal = create(folder, max_records=4)
    journal.append("stdout", b"first")
    journal.note("exited", 7)
    for _ in range(10):
        journal.append("stdout", b"still printing")
    assert told(journal)[0] == (2, "exited", 7)
    journal.close()
    again = reopen(folder)
    assert told(again)[0] == (2, "exited", 7)
    assert told(again, after=2)[0][1] == "stdout"
    again.close()


def test_dropped_output_gives_its_space_back(folder, pipe):
    reader, writer = pipe
    journal = create(folder, max_bytes=64 * 1024, max_records=1000)
    for _ in range(64):
        os.write(writer, b"x" * 32 * 1024)
        assert journal.take("stdout", reader, 1 << 20)
    for _ in range(5000):
        journal.append("stderr", b"y")
    # One block that is only partly free may stay at each end.
    assert (folder / "stdout").stat().st_blocks * 512 <= 72 * 1024
    assert (folder / "index").stat().st_blocks * 512 <= 1000 * 64 + 3 * 4096
    journal.close()


def without_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_files, "punch_hole", lambda *_: False)


def test_without_holes_what_remains_is_copied(folder, pipe, monkeypatch):
    without_holes(monkeypatch)
    reader, writer = pipe
    journal = create(folder, max_bytes=64 * 1024, max_records=100)
    expected = b""
    for number in range(500):
        data = b"%04d" % number * 1024
        os.write(writer, data)
        assert journal.take("stdout", reader, 1 << 20)
        expected += data
        if number % 50 == 0:
            journal.close()
            journal = reopen(folder, max_bytes=64 * 1024, max_records=100)
    kept = output(journal, "stdout")
    assert expected.endswith(kept)
    assert len(kept) >= 48 * 1024
    assert len(kept) + journal.dropped_bytes == len(expected)
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 3 * 64 * 1024
    assert len(list(folder.iterdir())) == 3
    journal.close()


def test_a_copy_waits_for_a_free_descriptor(folder, monkeypatch):
    without_holes(monkeypatch)
    journal = create(folder, max_bytes=100, max_records=10)
    expected = b""

    def refuse(_folder: str) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    for refuses in (True, False, True):
        with monkeypatch.context() as patch:
            if refuses:
                patch.setattr(journal_files, "open_folder", refuse)
            for number in range(100):
                data = b"%010d" % number
                assert journal.append("stdout", data)
                expected += data
    journal.close()
    journal = reopen(folder)
    assert not journal.damage
    kept = output(journal, "stdout")
    assert kept and expected.endswith(kept)
    assert len(kept) + journal.dropped_bytes == len(expected)
    journal.close()


def test_an_interrupted_copy_is_completed_or_removed(folder, monkeypatch):
    without_holes(monkeypatch)
    journal = create(folder, max_bytes=100)
    for number in range(100):
        journal.append("stdout", b"%010d" % number)
    expected = told(journal)
    journal.close()
    (copied,) = folder.glob("stdout+*")
    # A process died before it removed the old file, another one before its copy was complete.
    for name in ("stdout", "new"):
        (folder / name).write_bytes(b"old")
        (folder / name).chmod(0o600)
    again = reopen(folder)
    assert told(again) == expected
    assert again.damage == []
    assert sorted(file.name for file in folder.iterdir()) == ["index", "stderr", copied.name]
    again.close()


@pytest.mark.parametrize("punches", [True, False])
def test_a_file_system_without_splice_is_read_and_written(folder, pipe, monkeypatch, punches):
    def refuse(*_: Any, **__: Any) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "splice", refuse)
    if not punches:
        without_holes(monkeypatch)
    reader, writer = pipe
    journal = create(folder)
    assert journal.take("stdout", reader, 100) is None
    os.write(writer, b"hello")
    assert journal.take("stdout", reader, 3) == Record(1, "stdout", 0, 3)
    assert journal.take("stdout", reader, 3) == Record(2, "stdout", 3, 2)
    os.close(writer)
    with pytest.raises(EndOfStream):
        journal.take("stdout", reader, 100)
    assert output(journal, "stdout") == b"hello"
    journal.close()


# Who may see it.


@requirement("durable:private")
def test_files_and_folders_are_private_whatever_the_umask(folder):
    before = os.umask(0o277)
    try:
        create(folder).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert sorted(file.name for file in folder.iterdir()) == ["index", "stderr", "stdout"]


@requirement("durable:private")
def test_a_folder_that_is_a_link_is_refused(folder, tmp_path):
    create(folder).close()
    link = tmp_path / "link"
    link.symlink_to(folder)
    with pytest.raises(NotADirectoryError):
        reopen(link)
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o700)
    (tmp_path / "other").symlink_to(empty)
    with pytest.raises(NotADirectoryError):
        create(tmp_path / "other")
    assert list(empty.iterdir()) == []


@requirement("durable:private")
@pytest.mark.parametrize("name", ["stdout", "index"])
def test_a_file_that_is_a_link_is_refused(folder, tmp_path, name):
    create(folder).close()
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    before = open_descriptors(os.getpid())
    with pytest.raises(OSError, match=name):
        reopen(folder)
    assert open_descriptors(os.getpid()) == before


@requirement("durable:private")
@pytest.mark.parametrize("name", ["", "stdout", "index"])
def test_what_others_can_open_is_refused(folder, name):
    create(folder).close()
    path = folder / name
    path.chmod(path.stat().st_mode | 0o040)
    with pytest.raises(PermissionError, match="private"):
        reopen(folder)


@requirement("durable:private")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["", "stdout", "index"])
def test_what_belongs_to_another_user_is_refused(folder, name):
    create(folder).close()
    os.chown(folder / name, 65534, 65534)
    with pytest.raises(PermissionError, match="private"):
        reopen(folder)


def test_a_folder_is_used_once(folder):
    create(folder).close()
    before = open_descriptors(os.getpid())
    with pytest.raises(FileExistsError):
        create(folder)
    assert open_descriptors(os.getpid()) == before


def test_a_keeper_loads_it_without_typing_and_without_the_rest_of_the_package(folder):
    script = f"""
import sys
package = sys.modules["exec_server"] = type(sys)("exec_server")
package.__path__ = {exec_server.__path__!r}
from exec_server.process.journal import Journal
journal = Journal.create({str(folder)!r}, ("pty",), max_bytes=100, max_records=10)
journal.append("pty", b"hello")
unwanted = {{"typing", "dataclasses", "re", "ctypes"}} & sys.modules.keys()
process = "exec_server.process"
parts = ("exec_server", process, process + ".journal", process + ".journaling")
ours = {{name for name in sys.modules if name.startswith("exec_server")}} - set(parts)
unwanted |= {{name for name in ours if not name.startswith(process + ".journaling.")}}
sys.exit(str(unwanted) if unwanted else 0)
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    journal = reopen(folder)
    assert told(journal) == [(1, "pty", b"hello")]
    journal.close()


# Terminals.


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    master, slave = os.openpty()
    os.set_blocking(master, False)
    yield master, slave
    os.close(master)


def taken_from_terminal(journal: Journal, master: int, pipe: tuple[int, int]) -> None:
    """Take until the terminal is closed."""
    while True:
        try:
            take_terminal(journal, master, pipe, 1 << 16)
        except EndOfStream:
            return


@pytest.mark.parametrize("splices", [True, False])
def test_a_terminal_is_taken_through_a_pipe(folder, pipe, terminal, monkeypatch, splices):
    if not splices:

        def refuse(*_: Any, **__: Any) -> int:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(os, "splice", refuse)
    master, slave = terminal
    journal = create(folder, ("pty",))
    assert take_terminal(journal, master, pipe, 1 << 16) is None
    program = "import os\nfor n in range(3000): os.write(1, b'%08d\\n' % n)"
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", program], stdout=slave):
        os.close(slave)
        taken_from_terminal(journal, master, pipe)
    assert output(journal, "pty") == b"".join(b"%08d\r\n" % n for n in range(3000))
    assert [seq for seq, *_ in told(journal)] == list(range(1, journal.next_seq))
    journal.close()


def test_what_another_process_left_in_the_pipe_comes_first(folder, pipe, terminal):
    master, slave = terminal
    journal = create(folder, ("pty",))
    os.write(pipe[1], b"left ")
    os.write(slave, b"new")
    os.close(slave)
    taken_from_terminal(journal, master, pipe)
    assert output(journal, "pty") == b"left new"
    journal.close()


def test_a_full_pipe_holds_a_terminal_back_and_loses_nothing(folder, pipe, terminal):
    master, slave = terminal
    journal = create(folder, ("pty",))
    filling = b"x" * 4096
    expected = b""
    try:
        while True:
            expected += filling[: os.write(pipe[1], filling)]
    except BlockingIOError:
        pass
    os.write(slave, b"after")
    os.close(slave)
    taken_from_terminal(journal, master, pipe)
    assert output(journal, "pty") == expected + b"after"
    journal.close()


# Everything together, compared with lists.


class JournalModel(RuleBasedStateMachine):
    """Any order of calls gives what a list would give, and every number comes once."""

    root: Path

    @initialize(max_bytes=st.integers(1, 200), max_records=st.integers(1, 20))
    def begin(self, max_bytes: int, max_records: int) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=self.root))
        self.bounds = {"max_bytes": max_bytes, "max_records": max_records}
        self.journal = create(self.folder, PIPES, **self.bounds)
        self.pipes = {stream: os.pipe2(os.O_NONBLOCK) for stream in PIPES}
        self.waiting = dict.fromkeys(PIPES, b"")
        self.kept: list[tuple[int, str, Any]] = []
        self.notes: list[tuple[int, str, int]] = []
        self.next_seq = 1
        self.dropped = 0

    def expect(self, kind: str, what: Any) -> None:
        self.kept.append((self.next_seq, kind, what))
        self.next_seq += 1

    def expect_output(self, kind: str, data: bytes) -> None:
        self.expect(kind, data)
        max_bytes, max_records = self.bounds.values()
        if self.bytes_kept() > max_bytes or len(self.kept) > max_records:
            self.expect_trim(max_bytes - max_bytes // 8, max_records - max_records // 8)

    def bytes_kept(self) -> int:
        return sum(len(what) for _, kind, what in self.kept if kind in PIPES)

    def expect_trim(self, keep_bytes: int, keep_records: int) -> None:
        while len(self.kept) > 1 and (
            self.bytes_kept() > keep_bytes or len(self.kept) > keep_records
        ):
            _, kind, what = self.kept.pop(0)
            self.dropped += len(what) if kind in PIPES else 0

    @rule(stream=st.sampled_from(PIPES), data=st.binary(min_size=1, max_size=60))
    def print(self, stream: str, data: bytes) -> None:
        os.write(self.pipes[stream][1], data)
        self.waiting[stream] += data

    @rule(stream=st.sampled_from(PIPES), max_bytes=st.integers(1, 60))
    def take(self, stream: str, max_bytes: int) -> None:
        record = self.journal.take(stream, self.pipes[stream][0], max_bytes)
        data = self.waiting[stream][:max_bytes]
        assert (record is None) == (not data)
        if record is not None:
            assert self.journal.read(record) == data
            assert record.seq == self.next_seq
            self.waiting[stream] = self.waiting[stream][max_bytes:]
            self.expect_output(stream, data)

    @rule(stream=st.sampled_from(PIPES), data=st.binary(min_size=1, max_size=60))
    def append(self, stream: str, data: bytes) -> None:
        record = self.journal.append(stream, data)
        assert record is not None and record.seq == self.next_seq
        self.expect_output(stream, data)

    @precondition(lambda self: len(self.notes) < 3)
    @rule(value=st.integers(-(1 << 40), 1 << 40))
    def note(self, value: int) -> None:
        kind = NOTES[len(self.notes)]
        assert self.journal.note(kind, value) == self.next_seq
        self.notes.append((self.next_seq, kind, value))
        self.expect(kind, value)

    @rule(keep_bytes=st.integers(0, 100), keep_records=st.integers(0, 10))
    def trim(self, keep_bytes: int, keep_records: int) -> None:
        before = self.dropped
        self.expect_trim(keep_bytes, keep_records)
        assert self.journal.trim(keep_bytes, keep_records) == self.dropped - before

    @rule()
    def close_and_open(self) -> None:
        self.journal.close()
        self.journal = reopen(self.folder, **self.bounds)

    @rule(stream=st.sampled_from(PIPES), data=st.binary(min_size=1, max_size=60))
    def die_before_the_index_is_written(self, stream: str, data: bytes) -> None:
        self.journal.close()
        (file,) = (path for path in self.folder.iterdir() if path.name.startswith(stream))
        with file.open("ab") as appended:
            appended.write(data)
        self.journal = reopen(self.folder, **self.bounds)
        self.expect_output(stream, data)

    @invariant()
    def equals_the_list(self) -> None:
        if hasattr(self, "journal"):
            first = self.kept[0][0] if self.kept else self.next_seq
            carried = [note for note in self.notes if note[0] < first]
            assert told(self.journal) == carried + self.kept
            assert self.journal.next_seq == self.next_seq
            assert self.journal.dropped_bytes == self.dropped
            assert self.journal.dropped_seq == first - 1
            assert self.journal.damage == []

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.journal.close()
            for ends in self.pipes.values():
                for fd in ends:
                    os.close(fd)


@pytest.mark.parametrize("punches", [True, False], ids=["holes", "copies"])
def test_any_order_of_calls_gives_what_a_list_would_give(tmp_path, monkeypatch, punches):
    if not punches:
        without_holes(monkeypatch)
    machine = type("Machine", (JournalModel,), {"root": tmp_path})
    run_state_machine_as_test(machine, settings=settings(settings.default, stateful_step_count=40))
