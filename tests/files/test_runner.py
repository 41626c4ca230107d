"""The runner of one connection's file work."""

from __future__ import annotations

import asyncio

import pytest

from exec_server.files.runner import Runner
from exec_server.files.workers import Workers
from exec_server.limits import MIB
from exec_server.process.echo_first import EchoFirst


@pytest.fixture
async def runner():
    workers = Workers(limit=1, idle_seconds=1.0)
    yield Runner(workers, width=1)
    workers.stop()


async def test_large_answers_leave_the_loop_to_others_between_them(runner):
    turns = 0
    is_over = False

    def count() -> None:
        nonlocal turns
        turns += 1
        if not is_over:
            asyncio.get_running_loop().call_soon(count)

    def answer() -> int:
        assert not runner.is_behind
        runner.answer_now(MIB)
        return turns

    asyncio.get_running_loop().call_soon(count)
    answered = [await runner.later(answer) for _ in range(5)]
    is_over = True
    assert answered == sorted(set(answered))


async def test_small_answers_need_not_wait_for_one_another(runner):
    for _ in range(1000):
        runner.answer_now(4096)
        assert not runner.is_behind
    runner.answer_now(MIB)
    assert runner.is_behind
    async with asyncio.timeout(60):
        assert await runner.later(lambda: 1) == 1


async def test_a_client_that_does_not_read_is_not_answered(runner):
    runner.fall_behind()
    waiting = asyncio.ensure_future(runner.later(lambda: 1))
    runner.answer_now(MIB)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    runner.catch_up()
    async with asyncio.timeout(60):
        assert await waiting == 1


class Typewriter:
    """A process that repeats what is typed."""

    answers_soon = True


async def test_large_answers_rest_while_another_client_types_and_small_ones_do_not(runner):
    echo = EchoFirst()
    resting = Runner(runner.workers, width=1, rests=echo)
    resting.answer_now(MIB)
    await asyncio.sleep(0)
    assert not resting.must_wait(MIB)
    echo.typed(Typewriter())
    assert resting.must_wait(MIB)
    assert not resting.must_wait(4096)
    async with asyncio.timeout(60):
        assert await resting.later(lambda: echo.is_resting) is False
    # The next rest comes after the next large answer.
    echo.typed(Typewriter())
    assert not resting.must_wait(MIB)
    resting.answer_now(MIB)
    echo.typed(Typewriter())
    assert resting.must_wait(MIB)
    async with asyncio.timeout(60):
        await echo.rested()


async def test_a_call_that_was_cancelled_in_a_rest_does_not_harm_the_others(runner):
    echo = EchoFirst()
    resting = Runner(runner.workers, width=1, rests=echo)
    resting.answer_now(MIB)
    await asyncio.sleep(0)
    echo.typed(Typewriter())
    cancelled, waiting = (asyncio.ensure_future(resting.later(lambda: 1)) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    async with asyncio.timeout(60):
        assert await waiting == 1
    assert cancelled.cancelled()
