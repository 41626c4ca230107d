"""`exec-server web`: what it prints, refuses, and how it ends."""

from __future__ import annotations

import asyncio
import json
import signal

import aiohttp
import pytest

from exec_server.cli.main import main
from tests.requirements import requirement
from tests.support.cli import running

pytestmark = pytest.mark.timeout(240)

# The program takes long to start on a busy machine.
PATIENCE = 100.0


@requirement("web/cli:prints")
@pytest.mark.one_loop
async def test_it_prints_the_url_and_ends_by_ctrl_c(home):
    async with asyncio.timeout(PATIENCE), running("web", "ws://127.0.0.1:1/?secret=x") as process:
        assert process.stdout is not None and process.stderr is not None
        url = (await process.stdout.readline()).decode().strip()
        address, _, secret = url.partition("#token=")
        assert address.startswith("http://127.0.0.1:") and len(secret) > 40
        async with aiohttp.ClientSession() as http:
            async with http.get(address) as answer:
                assert answer.status == 200 and "exec-server" in await answer.text()
            body, headers = {"token": secret}, {"Origin": address.rstrip("/")}
            async with http.post(f"{address}session", json=body, headers=headers) as answer:
                assert answer.status == 200
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
        told = (await process.stderr.read()).decode()
        assert "for another browser: http" in told and secret not in told


@requirement("web/cli:prints")
@pytest.mark.one_loop
async def test_it_prints_the_url_as_json(home):
    async with asyncio.timeout(PATIENCE), running("web", "-o", "json", "local") as process:
        assert process.stdout is not None
        facts = json.loads(await process.stdout.readuntil(b"}"))
        assert facts["url"].startswith(facts["address"]) and facts["signIn"] == "link"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


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
def test_what_is_wrong_is_refused(home, capsys, words, expected):
    assert main(["web", *words]) == 1
    told = capsys.readouterr()
    assert expected in told.err and told.out == ""
