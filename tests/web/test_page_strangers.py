"""Silent connections to the page: they end, and the page is still there for a browser."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack, suppress

import msgspec
import pytest

from exec_server.web.page_program import PAGE_LIMITS
from tests.requirements import requirement
from tests.support.certificates import make_certificates
from tests.support.page import LOOPBACK, PATIENCE, browsing, place_of

NOWHERE = place_of("ws://127.0.0.1:1")
IMPATIENT = msgspec.structs.replace(PAGE_LIMITS, http_head_timeout=0.2, hub_idle_seconds=0.2)
# An honest request is in time, also on a busy machine.
PATIENT = msgspec.structs.replace(PAGE_LIMITS, http_head_timeout=3.0)
SMALL = msgspec.structs.replace(PAGE_LIMITS, hub_connections=8)


async def connect(origin: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = origin.partition("://")[2].rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def is_closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionResetError):
            await reader.read()
    return True


@requirement("web/safety:strangers")
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: ",
        b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /session HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
    ],
    ids=["nothing", "half a head", "one request", "a head without its body"],
)
async def test_a_connection_that_stays_silent_is_closed(sent):
    async with browsing(NOWHERE, limits=IMPATIENT) as browser:
        reader, writer = await connect(browser.origin)
        writer.write(sent)
        assert await is_closed(reader)
        writer.close()


@requirement("web/safety:strangers")
@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
async def test_silent_connections_give_way_to_a_browser(is_secure, tmp_path):
    options, trusted = LOOPBACK, None
    if is_secure:
        authority = make_certificates(tmp_path).authority
        pem = str(authority.with_name("server.pem"))
        options = msgspec.structs.replace(LOOPBACK, tls_certificate=pem, tls_key=pem)
        trusted = ssl.create_default_context(cafile=str(authority))
    async with browsing(NOWHERE, options=options, limits=SMALL) as browser:
        port = browser.page.url.rstrip("/").rpartition(":")[2]
        async with AsyncExitStack() as stack:
            for _ in range(30):
                _, writer = await connect(f"tcp://127.0.0.1:{port}")
                stack.callback(writer.close)
            for _ in range(3):
                async with browser.http.get(browser.url("/"), ssl=trusted or True) as answer:
                    assert answer.status == 200


@requirement("web/safety:strangers")
async def test_an_upload_may_take_longer_than_a_stranger(server, tmp_path):
    async with browsing(place_of(server.url), limits=PATIENT) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            await tab.call("place.connect", place="p0")
            words = {"place": "p0", "path": str(tmp_path / "slow"), "size": 8, "stamp": 1}
            part = (await tab.call("upload.begin", **words))["part"]

            async def pieces():
                yield b"half"
                # By then a stranger who came later is gone.
                reader, writer = await connect(browser.origin)
                assert await is_closed(reader)
                writer.close()
                yield b"half"

            async with browser.http.put(
                browser.url("/upload/p0"),
                params={"path": part, "offset": "0"},
                data=pieces(),
                headers={**browser.headers, "Content-Length": "8"},
            ) as answer:
                assert (answer.status, await answer.json()) == (200, {"offset": 8})
            await tab.call("upload.finish", **words)
    assert (tmp_path / "slow").read_bytes() == b"halfhalf"
