"""Input that a server writes itself: the keeper goes on at the next byte, whenever it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import tty
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.process.durable import direct_input
from exec_server.process.durable.durable_stdin import DurableStdin
from exec_server.process.durable.kept_input import (
    REMEMBERED_IDS,
    InputLog,
    KeptInput,
    key_of,
)
from tests.requirements import requirement
from tests.support.durable import read_all
from tests.support.wire import Wire


def new_file() -> int:
    return os.memfd_create("log", os.MFD_CLOEXEC)


def new_keeper(fd: int, *, is_terminal: bool = False) -> KeptInput:
    return KeptInput(fd, is_terminal=is_terminal, forget=lambda _: None)


def shared_log(kept: KeptInput) -> InputLog:
    """The log as the next server has it."""
    log = kept.share(new_file())
    assert log is not None
    return InputLog(os.dup(log.fd))


@contextlib.contextmanager
def small_pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    yield reader, writer
    os.close(reader)


def read_now(fd: int) -> bytes:
    found = b""
    with contextlib.suppress(BlockingIOError):
        while data := os.read(fd, 1 << 16):
            found += data
    return found


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.binary(min_size=0, max_size=3000)),
        st.tuples(st.just("repeat"), st.integers(0, 50)),
        st.tuples(st.just("read"), st.none()),
        st.tuples(st.just("die"), st.binary(max_size=50)),
    ),
    max_size=30,
)


@requirement("durable:input-once")
@given(steps=STEPS)
def test_every_accepted_byte_is_done_once_whichever_server_writes(steps):
    with small_pipe() as (reader, writer):
        kept = new_keeper(writer)
        written: list[bytes] = []
        got = b""
        server = shared_log(kept)
        for kind, value in steps:
            if kind == "write":
                server.append(key_of(f"w{len(written)}"), value)
                written.append(value)
            elif kind == "repeat" and written:
                number = value % len(written)
                assert (key_of(f"w{number}") in InputLog(server.fd).keys) == (
                    number >= len(written) - REMEMBERED_IDS
                )
            elif kind == "read":
                got += read_now(reader)
            elif kind == "die":
                # It has written bytes that no slot accepts, and is killed.
                os.pwrite(server.fd, value, server.end)
                server.close()
                kept.take_back()
                kept.flush()
                server = shared_log(kept)
            with contextlib.suppress(BlockingIOError):
                while server.pending:
                    server.move(writer, is_terminal=False)
        server.close()
        kept.take_back()
        while kept.is_blocked:
            got += read_now(reader)
            kept.flush()
        kept.close()
        assert got + read_now(reader) == b"".join(written)


def test_a_terminal_takes_a_part_and_the_position_says_which():
    master, slave = pty.openpty()
    tty.setraw(slave)
    os.set_blocking(master, False)
    os.set_blocking(slave, False)
    data = os.urandom(100_000)
    log = InputLog.create(new_file(), [], b"")
    log.append(0, data)
    got = b""
    while len(got) < len(data):
        with contextlib.suppress(BlockingIOError):
            while log.pending:
                log.move(master, is_terminal=True)
        assert InputLog(log.fd).position == log.position
        got += read_now(slave)
    assert got == data
    log.close()
    os.close(master)
    os.close(slave)


def test_ids_that_are_alike_have_keys_of_their_own():
    ids = [f"{prefix}{number}" for prefix in ("", "a" * 40, "\0", "é") for number in range(2000)]
    assert len({key_of(each) for each in ids}) == len(ids)
    assert all(0 < key_of(each) < 1 << 62 for each in (*ids, "", "\ud800"))


class FakeJob:
    """A job whose keeper is in this process."""

    def __init__(self, kept: KeptInput, *, can_share: bool = True) -> None:
        self.kept = kept
        self.can_share = can_share
        self.shares = 0

    def write(self, write_id, data, accepted) -> None:
        assert self.kept.write(1, write_id, data)
        self.kept.flush()
        accepted()

    def finish(self) -> None:
        self.kept.finish()
        self.kept.flush()

    def share_input(self, shared) -> None:
        log = self.kept.share(new_file()) if self.can_share else None
        self.shares += log is not None
        fds = [] if log is None else [os.dup(self.kept.fd), os.dup(log.fd)]
        asyncio.get_running_loop().call_soon(shared, fds)

    def give_back_input(self) -> None:
        self.kept.take_back()
        self.kept.flush()

    def rest(self, reader: int) -> bytes:
        """What the program reads if nothing more is written; the keeper has the input."""
        found = b""
        while self.kept.is_blocked:
            found += read_now(reader)
            self.kept.flush()
        return found + read_now(reader)


async def accept(stdin: DurableStdin, data: bytes, write_id: str | None = None) -> None:
    accepted = stdin.write(data, write_id)
    if accepted is not None:
        await accepted


@pytest.mark.parametrize("can_share", [True, False])
async def test_writes_and_the_end_come_in_order(can_share):
    with small_pipe() as (reader, writer):
        job = FakeJob(new_keeper(writer), can_share=can_share)
        stdin = DurableStdin(job, is_terminal=False, is_closing=False)
        for each in (b"a", b"b", b"c"):
            await accept(stdin, each, each.decode())
            await accept(stdin, each, each.decode())
        stdin.end()
        assert job.rest(reader) == b"abc"
        assert os.read(reader, 10) == b""
        assert job.shares == can_share


async def test_a_log_that_is_used_up_gives_way_to_a_new_one(monkeypatch):
    monkeypatch.setattr(direct_input, "_LOG_BYTES", 20_000)
    with small_pipe() as (reader, writer):
        job = FakeJob(new_keeper(writer))
        stdin = DurableStdin(job, is_terminal=False, is_closing=False)
        got, sent = b"", b""
        for number in range(40):
            data = b"%03d " % number * 250
            sent += data
            await accept(stdin, data, f"w{number}")
            await accept(stdin, data, f"w{number}")
            await asyncio.sleep(0)
            got += read_now(reader)
            await asyncio.sleep(0)
        stdin.end()
        got += job.rest(reader)
        assert (got, job.shares > 2) == (sent, True)


async def test_a_kernel_that_cannot_move_the_bytes_leaves_them_to_the_keeper(monkeypatch):
    def refuse(*_, **__):
        raise OSError(22, "")

    monkeypatch.setattr(InputLog, "move", refuse)
    with small_pipe() as (reader, writer):
        job = FakeJob(new_keeper(writer))
        stdin = DurableStdin(job, is_terminal=False, is_closing=False)
        for each in (b"a", b"b", b"c"):
            await accept(stdin, each, each.decode())
        assert job.rest(reader) == b"abc"
        stdin.close()
        job.kept.close()


async def test_a_write_that_finds_no_memory_goes_through_the_keeper(monkeypatch):
    with small_pipe() as (reader, writer):
        job = FakeJob(new_keeper(writer))
        stdin = DurableStdin(job, is_terminal=False, is_closing=False)
        await accept(stdin, b"a", "1")

        def refuse(*_):
            raise OSError(28, "")

        monkeypatch.setattr(InputLog, "append", refuse)
        waiting = [stdin.write(each, each.decode()) for each in (b"b", b"c")]
        await asyncio.gather(*(each for each in waiting if each is not None))
        assert job.rest(reader) == b"abc"
        stdin.close()
        job.kept.close()


async def test_a_full_input_waits_and_a_reader_that_left_ends_the_wait():
    reader, writer = os.pipe()
    job = FakeJob(new_keeper(writer))
    stdin = DurableStdin(job, is_terminal=False, is_closing=False)
    await accept(stdin, bytes(3 << 20), "1")
    waiting = stdin.write(b"more", "2")
    assert waiting is not None and not waiting.done()
    os.close(reader)
    async with asyncio.timeout(60):
        await waiting
    assert stdin.write(b"more", "3") is None
    stdin.close()
    job.kept.close()


@pytest.mark.one_loop
@requirement("durable:input-once")
@pytest.mark.parametrize("is_tty", [True, False])
async def test_accepted_input_that_was_not_read_outlives_the_server(servers, tmp_path, is_tty):
    go = tmp_path / "go"
    os.mkfifo(go)
    script = f"{'stty raw -echo; ' if is_tty else ''}echo ready; read x < {go}; head -c 200000"
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        start = {"tty": True} if is_tty else {"pipeStdin": True}
        await wire.start("a", ["sh", "-c", script], durable=True, **start)
        await wire.output_until("a", b"ready")
        for number in range(20):
            data = b"%09d\n" % number * 1000
            assert await wire.write("a", data, f"w{number}") == "accepted"
        servers.kill()
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        # The last one was accepted, and its client has not heard it.
        assert await wire.write("a", data, "w19") == "accepted"
        go.write_text("go\n")
        got, _ = await read_all(wire, "a")
    expected = b"".join(b"%09d\n" % number * 1000 for number in range(20))
    assert got.split()[1:] == expected.split()
