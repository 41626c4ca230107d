"""A child's input: in order, bounded, and without blocking the server."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import tty
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.process.stdin import Stdin
from tests.requirements import requirement
from tests.support import leaks

CAPACITY = 4096


class End:
    """The child's end of an input."""

    def __init__(self, *, is_terminal: bool = False, max_writes: int = 3) -> None:
        if is_terminal:
            fd, self.fd = os.openpty()
            tty.setraw(self.fd)
        else:
            self.fd, fd = os.pipe()
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, CAPACITY)
        os.set_blocking(self.fd, False)
        self.stdin = Stdin(
            fd,
            loop=asyncio.get_running_loop(),
            max_writes=max_writes,
            max_bytes=1 << 20,
            is_terminal=is_terminal,
        )

    def read(self) -> bytes | None:
        """Read what is there now; None when there is nothing yet."""
        try:
            return os.read(self.fd, 1 << 20)
        except BlockingIOError:
            return None

    async def read_all(self, size: int) -> bytes:
        """Read *size* bytes, however long they take."""
        data = bytearray()

        def has_all() -> bool:
            data.extend(self.read() or b"")
            return len(data) >= size

        await leaks.eventually(has_all, f"{size} bytes did not come")
        return bytes(data)

    def close(self) -> None:
        self.stdin.close()
        with contextlib.suppress(OSError):
            os.close(self.fd)


@pytest.fixture
async def end(no_leaks: None) -> AsyncIterator[End]:
    end = End()
    yield end
    end.close()


async def test_a_write_arrives_at_once(end):
    assert end.stdin.write(b"hello") is None
    assert end.stdin.write(b"") is None
    assert end.read() == b"hello"


@requirement("flow:stdin-queue")
async def test_the_queue_holds_its_number_of_writes_and_the_one_under_way(end):
    block = b"x" * CAPACITY
    # One write fills the pipe, one is under way, three wait in the queue.
    assert [end.stdin.write(block) for _ in range(5)] == [None] * 5
    late = end.stdin.write(b"late")
    later = end.stdin.write(b"later")
    assert late is not None
    assert later is not None
    assert not late.done()
    assert await end.read_all(5 * CAPACITY + 9) == block * 5 + b"latelater"
    assert late.done()
    assert later.done()


@requirement("flow:stdin-queue-bytes")
async def test_a_queue_of_too_many_bytes_is_full_as_well(no_leaks):
    end = End(max_writes=1000)
    half = b"x" * (1 << 19)
    written = 0
    while (late := end.stdin.write(half)) is None:
        written += 1
        assert written < 10
    # There are a large pipe, a queue that is just not full, and the write that fills it.
    assert written <= 2 + 2 + 1
    assert await end.read_all((written + 1) * len(half)) == half * (written + 1)
    assert late.done()
    end.close()


@requirement("flow:stdin-abandoned-writes")
async def test_a_write_that_was_given_up_is_neither_done_nor_kept(end):
    block = b"x" * CAPACITY
    for _ in range(5):
        end.stdin.write(block)
    for _ in range(10):
        abandoned = end.stdin.write(b"never" * 1000)
        assert abandoned is not None
        abandoned.cancel()
        await asyncio.sleep(0)
        assert not end.stdin._waiting
    kept = end.stdin.write(b"kept")
    assert kept is not None
    assert await end.read_all(5 * CAPACITY + 4) == block * 5 + b"kept"


@requirement("process/closeStdin:after-the-queue")
async def test_the_end_comes_after_what_is_queued(end):
    block = b"x" * (3 * CAPACITY)
    end.stdin.write(block)
    end.stdin.end()
    end.stdin.end()
    assert end.stdin.is_closing
    assert await end.read_all(len(block)) == block
    await leaks.eventually(lambda: end.read() == b"", "the input did not end")


async def test_writes_that_wait_when_the_end_is_asked_for_come_before_it(end):
    block = b"x" * CAPACITY
    for _ in range(5):
        end.stdin.write(block)
    waiting = end.stdin.write(b"last")
    end.stdin.end()
    assert await end.read_all(5 * CAPACITY + 4) == block * 5 + b"last"
    assert waiting is not None
    assert waiting.done()
    await leaks.eventually(lambda: end.read() == b"", "the input did not end")


@requirement("flow:stdin-of-a-deaf-child")
async def test_what_a_child_will_not_read_is_accepted_and_dropped(end):
    block = b"x" * CAPACITY
    for _ in range(5):
        end.stdin.write(block)
    waiting = end.stdin.write(b"late")
    assert waiting is not None
    os.close(end.fd)
    async with asyncio.timeout(60):
        await waiting
    assert end.stdin.write(b"more") is None


async def test_closing_settles_every_write_that_waits(end):
    for _ in range(5):
        end.stdin.write(b"x" * CAPACITY)
    waiting = end.stdin.write(b"late")
    end.stdin.close()
    end.stdin.close()
    assert waiting is not None
    assert waiting.done()
    assert end.stdin.write(b"more") is None


async def test_on_a_terminal_the_end_is_a_character(no_leaks):
    end = End(is_terminal=True)
    end.stdin.write(b"hello")
    end.stdin.end()
    assert await end.read_all(6) == b"hello\x04"
    assert not end.stdin.is_closing
    end.close()


async def test_a_terminal_whose_reader_is_slow_gets_everything(no_leaks):
    end = End(is_terminal=True, max_writes=128)
    data = os.urandom(100_000)
    for start in range(0, len(data), 1000):
        assert end.stdin.write(data[start : start + 1000]) is None
    assert await end.read_all(len(data)) == data
    end.close()


@requirement("flow:nothing-lost")
@given(st.lists(st.binary(max_size=3 * CAPACITY), max_size=10), st.integers(1, 5000))
def test_any_writes_arrive_whole_and_in_order(writes, step):
    async def run() -> None:
        end = End()
        waiting = [future for data in writes if (future := end.stdin.write(data)) is not None]
        expected = b"".join(writes)
        seen = b""

        def has_all() -> bool:
            nonlocal seen
            with contextlib.suppress(BlockingIOError):
                seen += os.read(end.fd, step)
            return len(seen) == len(expected)

        await leaks.eventually(has_all, "not everything came")
        assert seen == expected
        assert all(future.done() for future in waiting)
        end.close()

    asyncio.run(run())
