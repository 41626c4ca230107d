"""Output in bulk rests after small input, never for long, and not for processes that are silent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from exec_server.process.echo_first import BYTES_BETWEEN, EchoFirst
from exec_server.process.pump import SMALL_READ, OutputGate, Pump
from tests.support import leaks


class Process:
    """A process that small input is written to."""

    answers_soon = True


async def rested(echo: EchoFirst) -> None:
    await leaks.eventually(lambda: echo.gate.is_open, "the rest did not end")


async def test_without_bulk_output_nothing_rests():
    echo = EchoFirst()
    echo.typed(Process())
    assert echo.gate.is_open


async def test_a_rest_ends_and_bulk_output_has_its_turn_before_the_next_one():
    echo, process = EchoFirst(), Process()
    echo.bytes_due = 0
    echo.typed(process)
    assert not echo.gate.is_open
    # The process has answered.
    echo.typist = None
    await rested(echo)
    assert process.answers_soon
    echo.bytes_due -= BYTES_BETWEEN - 1
    echo.typed(process)
    assert echo.gate.is_open
    echo.bytes_due -= 1
    echo.typed(process)
    assert not echo.gate.is_open
    await rested(echo)


async def test_bulk_output_rests_after_its_turn_if_a_process_has_not_answered_meanwhile():
    echo, process = EchoFirst(), Process()
    echo.bytes_due = 100
    echo.small_input(process)
    assert echo.gate.is_open
    echo.bulk_passed(99)
    assert echo.gate.is_open
    echo.bulk_passed(1)
    assert not echo.gate.is_open
    echo.typist = None
    await rested(echo)
    # The next key is answered in the turn of the bulk output.
    echo.small_input(process)
    echo.typist = None
    echo.bulk_passed(BYTES_BETWEEN)
    assert echo.gate.is_open


async def test_a_process_that_is_silent_for_a_rest_is_known_afterwards():
    echo, process = EchoFirst(), Process()
    echo.bytes_due = 0
    echo.typed(process)
    await rested(echo)
    assert not process.answers_soon


async def test_a_second_process_does_not_make_a_rest_longer():
    echo, first, second = EchoFirst(), Process(), Process()
    echo.bytes_due = 0
    echo.typed(first)
    echo.typed(second)
    assert echo.typist is first
    await rested(echo)


def pump_of(
    reader: int, gate: OutputGate, chunks: list[bytes], on_end: Callable[[], None] = lambda: None
) -> Pump:
    return Pump(
        reader,
        loop=asyncio.get_running_loop(),
        gate=OutputGate(),
        bulk_gate=gate,
        chunk_bytes=SMALL_READ,
        is_terminal=False,
        on_data=chunks.append,
        on_end=on_end,
    )


async def test_a_pump_with_much_to_read_rests_and_loses_nothing(no_leaks):
    reader, writer = os.pipe()
    gate = OutputGate()
    chunks: list[bytes] = []
    ends: list[bool] = []
    pump = pump_of(reader, gate, chunks, lambda: ends.append(True))
    os.write(writer, b"a" * SMALL_READ)
    pump.resume()
    await leaks.eventually(lambda: chunks, "the first chunk was not read")
    gate.close()
    os.write(writer, b"b" * SMALL_READ)
    os.close(writer)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(chunks) == 1
    gate.open()
    await leaks.eventually(lambda: ends, "the pump did not end")
    assert b"".join(chunks) == b"a" * SMALL_READ + b"b" * SMALL_READ


async def test_a_pump_with_little_to_read_does_not_rest(no_leaks):
    reader, writer = os.pipe()
    gate = OutputGate()
    chunks: list[bytes] = []
    pump = pump_of(reader, gate, chunks)
    pump.resume()
    gate.close()
    os.write(writer, b"x")
    await leaks.eventually(lambda: chunks, "the key was not read")
    os.close(writer)
    pump.close()
