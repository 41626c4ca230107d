"""Escape keys in what is typed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.cli.process.own_terminal.escape_keys import EscapeKeys
from exec_server.cli.process.own_terminal.type_ahead import TypeAhead
from tests.requirements import requirement


def parts(pieces: Iterable[bytes]) -> list[bytes | str]:
    """The output, with neighbouring bytes joined."""
    keys = EscapeKeys()
    found: list[bytes | str] = []
    for part in (part for piece in pieces for part in keys.feed(piece)):
        if found and isinstance(found[-1], bytes) and isinstance(part, bytes):
            found[-1] += part
        else:
            found.append(part)
    return found


@requirement("cli/escape:any-split")
def test_keys_that_go_nowhere_begin_no_line():
    keys = EscapeKeys()
    assert list(keys.feed(b"a")) == [b"a"]
    keys.begin_line()
    assert list(keys.feed(b"~")) == []
    keys.begin_line()
    assert list(keys.feed(b"t")) == ["take"]


@requirement("cli/escape:any-split")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (b"~.", ["leave"]),
        (b"ls\r~d", [b"ls\r", "detach"]),
        (b"a\n~?b", [b"a\n", "help", b"b"]),
        (b"~?~.", ["help", "leave"]),
        (b"~~.", [b"~."]),
        (b"a~.", [b"a~."]),
        (b"~x", [b"~x"]),
        (b"~\r~.", [b"~\r", "leave"]),
        (b"~~\r~~~.", [b"~\r~~."]),
        (b"~", []),
    ],
)
def test_keys_count_at_the_start_of_a_line(typed, expected):
    assert parts([typed]) == expected


@requirement("cli/escape:any-split")
@given(st.lists(st.text(alphabet="~.d?x\r\n", max_size=4).map(str.encode), max_size=8))
def test_any_split_gives_the_same(pieces):
    assert parts(pieces) == parts([b"".join(pieces)])


@requirement("cli/escape:any-split")
@given(st.binary())
def test_without_the_escape_everything_passes(data):
    data = data.replace(b"~", b"")
    assert b"".join(EscapeKeys().feed(data)) == data  # type: ignore[arg-type]


async def test_what_was_typed_is_passed_on_in_order():
    written = bytearray()

    async def write(data: bytes) -> None:
        written.extend(data)

    typed = TypeAhead(write)
    writing = asyncio.ensure_future(typed.pass_on())
    for number in range(1000):
        await typed.put(b"%d\n" % number)
    typed.end()
    await writing
    assert written.split() == [b"%d" % number for number in range(1000)]


async def test_too_much_waits_until_it_is_wanted():
    may_write = asyncio.Event()

    async def write(data: bytes) -> None:
        await may_write.wait()

    typed = TypeAhead(write)
    putting = asyncio.ensure_future(typed.put(bytes(1 << 20)))
    await asyncio.sleep(0)
    assert not putting.done()
    may_write.set()
    writing = asyncio.ensure_future(typed.pass_on())
    await putting
    typed.end()
    await writing


async def test_input_does_not_wait_for_a_process_that_takes_no_more():
    async def write(data: bytes) -> None:
        raise BrokenPipeError

    typed = TypeAhead(write)
    putting = asyncio.ensure_future(typed.put(bytes(1 << 20)))
    with pytest.raises(BrokenPipeError):
        await typed.pass_on()
    await putting
    await typed.put(bytes(1 << 20))
