"""What the log says of attempts to connect."""

from __future__ import annotations

import logging

import pytest

from tests.requirements import requirement
from tests.support.proxied import Decides, proxy, socks


@pytest.mark.parametrize(
    "name",
    [
        b"x\n2026-01-01 00:00:00,000 INFO exec_server: forged",
        b"x\r\x1b[2Jy",
        "a\u2028b\u202ec".encode(),
        b"\xff\xfe\n" + b"x" * 250,
    ],
)
@requirement("security/logs:no-forged-lines")
async def test_a_name_of_a_process_is_one_line_of_the_log(no_leaks, caplog, name):
    caplog.set_level(logging.INFO)
    async with proxy(client=Decides(), domains={"*": "allow"}) as made:
        _, writer, _ = await socks(made.any, name, 80)
        writer.close()
    (line,) = [record.getMessage() for record in caplog.records if "socks5" in record.getMessage()]
    assert line.isprintable()
    assert len(line) < 500
    assert made.client.told[0].host.isprintable()
