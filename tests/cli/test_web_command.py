"""`exec-server web`: what it prints, refuses, and how it ends."""

from __future__ import annotations

import json
import signal

import aiohttp
import pytest

from tests.requirements import requirement
from tests.support.cli import finished, line, running, status

pytestmark = pytest.mark.one_loop


@requirement("web/cli:prints")
async def test_it_prints_the_url_and_ends_by_ctrl_c(home):
    async with running("web", "ws://127.0.0.1:1/?secret=x") as process:
        url = (await line(process)).decode().strip()
        address, _, secret = url.partition("#token=")
        assert address.startswith("http://127.0.0.1:") and len(secret) > 40
        async with aiohttp.ClientSession() as http:
            async with http.get(address) as answer:
                assert answer.status == 200 and "exec-server" in await answer.text()
            body, headers = {"token": secret}, {"Origin": address.rstrip("/")}
            async with http.post(f"{address}session", json=body, headers=headers) as answer:
                assert answer.status == 200
        process.send_signal(signal.SIGINT)
        assert await status(process) == 0
        assert process.stderr is not None
        told = (await process.stderr.read()).decode()
        assert "for another browser: http" in told and secret not in told


@requirement("web/cli:prints")
async def test_it_prints_the_url_as_json(home):
    async with running("web", "-o", "json", "local") as process:
        assert process.stdout is not None
        printed = await process.stdout.readuntil(b"}")
        facts = json.loads(printed)
        assert facts["url"].startswith(facts["address"]) and facts["signIn"] == "link"
        process.send_signal(signal.SIGTERM)
        assert await status(process) == 0


@requirement("web/access:elsewhere")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--listen", "0.0.0.0:0"], "--tls-cert"),
        (["--listen", "example.net:80"], "expected IP:PORT"),
        (["--listen", "nonsense"], "expected IP:PORT"),
        (["nowhere"], "`nowhere` is not configured"),
        (["--tls-key", "x"], "go together"),
    ],
)
async def test_what_is_wrong_is_refused(home, words, expected):
    done = await finished("web", *words)
    assert done.status == 1 and expected in done.stderr and done.stdout == b""
