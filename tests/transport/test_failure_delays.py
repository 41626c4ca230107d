"""Wrong tokens are answered more and more slowly."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import serve
from exec_server.transport import failure_delays
from exec_server.transport.failure_delays import FailureDelays
from tests.requirements import requirement
from tests.support.wire import Wire


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@requirement("auth:slowed")
def test_the_delay_of_an_address_grows_up_to_a_bound():
    delays = FailureDelays(Clock())
    found = [delays.failed("here") for _ in range(20)]
    assert found[:5] == [0.0] * 5
    assert found[5:11] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert set(found[10:]) == {1.0}
    assert delays.failed("elsewhere") == 0.0


@requirement("auth:slowed")
def test_failures_are_forgotten():
    clock = Clock()
    delays = FailureDelays(clock)
    for _ in range(8):
        delays.failed("here")
    clock.now += 1000
    assert delays.failed("here") == 0.0


@requirement("auth:slowed")
def test_the_number_of_addresses_is_bounded():
    delays = FailureDelays(Clock())
    for _ in range(8):
        delays.failed("first")
    for number in range(2 * failure_delays._ADDRESSES):
        delays.failed(str(number))
    assert len(delays) == failure_delays._ADDRESSES
    assert delays.failed("first") == 0.0


@requirement("auth:slowed")
async def test_wrong_tokens_are_slowed_down_and_right_ones_are_not(no_leaks, monkeypatch):
    from hashlib import sha256

    # A failure that is half forgotten shortens the delays.
    monkeypatch.setattr(failure_delays, "_FORGET_SECONDS", math.inf)
    right = CapabilityToken(sha256(b"right").digest())
    async with serve(authenticator=right) as server:

        async def attempt(token: str) -> bool:
            try:
                async with Wire(server.url, headers={"Authorization": f"Bearer {token}"}):
                    return True
            except Exception as exc:
                assert "401" in str(exc)
                return False

        begun = time.monotonic()
        assert not any([await attempt("wrong") for _ in range(9)])
        # The answers of the last four come 0.05, 0.1, 0.2 and 0.4 s late; uvloop's timers count
        # whole milliseconds.
        assert time.monotonic() - begun >= 0.75 - 4 * 0.001
        # All others of that address wait, here for minutes; a right token is accepted at once.
        monkeypatch.setattr(failure_delays, "_FIRST_DELAY", 600.0)
        monkeypatch.setattr(failure_delays, "_LONGEST_DELAY", 600.0)
        others = [asyncio.ensure_future(attempt("wrong")) for _ in range(3)]
        async with asyncio.timeout(60):
            assert await attempt("right")
        assert not any(other.done() for other in others)
        for other in others:
            other.cancel()
        await asyncio.wait(others)


@pytest.mark.parametrize("count", [0, 3])
async def test_a_server_ends_while_answers_are_delayed(no_leaks, count):
    from hashlib import sha256

    async with serve(authenticator=CapabilityToken(sha256(b"right").digest())) as server:
        host, port = server.url.removeprefix("ws://").split(":")
        writers = []
        for _ in range(5 + count):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            writers.append(writer)
    for writer in writers:
        writer.close()
