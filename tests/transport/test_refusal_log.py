"""Which refusals are logged, and that a flood of them neither fills the log nor the memory."""

from __future__ import annotations

import asyncio
import logging
from hashlib import sha256

import pytest

from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import serve
from exec_server.transport.refusal_log import RefusalLog
from tests.requirements import requirement
from tests.support.raw import UPGRADE, http, request_head


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@requirement("refusals:log-bounded")
def test_one_line_for_an_address_and_interval_and_the_number_of_the_others():
    clock = Clock()
    log = RefusalLog(clock)
    assert log.refused("192.0.2.1", "origin") == ""
    assert [log.refused("192.0.2.1", "origin") for _ in range(5)] == [None] * 5
    assert log.refused("192.0.2.1", "malformed") == ""
    assert log.refused("192.0.2.2", "origin") == ""
    clock.now += 61
    assert log.refused("192.0.2.1", "origin") == " (5 more like this were not logged)"
    assert log.refused("192.0.2.1", "origin") is None
    assert log.counts == {"origin": 9, "malformed": 1}


@requirement("refusals:log-bounded")
def test_an_ipv6_network_is_one_address_and_the_memory_is_bounded():
    log = RefusalLog(Clock())
    assert log.refused("2001:db8::1", "tls") == ""
    assert log.refused("2001:db8::2", "tls") is None
    for number in range(5000):
        log.refused(f"10.0.{number // 256}.{number % 256}", "malformed")
    assert len(log) == 1024


@requirement("refusals:log-bounded", "refusals:logins")
@pytest.mark.parametrize(
    ("headers", "lines", "text"),
    [
        ({**UPGRADE, "Authorization": "Bearer s3cret-guess"}, 20, "invalid websocket bearer token"),
        ({**UPGRADE, "Origin": "https://evil.test"}, 1, "https://evil.test"),
        ({}, 1, "Connection header"),
    ],
)
async def test_a_flood_of_refusals_has_few_lines(no_leaks, caplog, headers, lines, text):
    caplog.set_level(logging.WARNING)
    async with serve(authenticator=CapabilityToken(sha256(b"right").digest())) as server:
        answers = await asyncio.gather(
            *(http(server.url, request_head("GET", "/", headers)) for _ in range(40))
        )
    assert len({answer.status for answer in answers}) == 1
    found = [each for each in caplog.messages if "refused 127.0.0.1:" in each]
    assert len(found) == lines and all(text in each for each in found)
    assert "s3cret" not in caplog.text
