"""Servers as the oldest documents describe them."""

from __future__ import annotations

import asyncio

import pytest

from exec_server.client_urls import connect
from exec_server.errors import InvalidParams
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")


@requirement("client/dialect:oldest")
async def test_a_server_from_before_sessions_works():
    starts = []

    async def script(talk: Talk) -> None:
        await talk.shake_hands({})
        await talk.refuse(await talk.expect("environment/info"), -32601, "unknown method")
        request = await talk.expect("process/start")
        starts.append(request["params"])
        process_id = request["params"]["processId"]
        await talk.answer(request, {"processId": process_id})
        await talk.output(process_id, 1, b"hello ", stream="stdout")
        await talk.output(process_id, 3, b"world", stream="stdout")
        await talk.event("process/closed", process_id)
        await talk.event("process/exited", process_id, seq=2, exitCode=0)
        write = await talk.expect("process/write")
        await talk.answer(write, {"status": "accepted"})
        await talk.answer(
            await talk.expect("process/read"),
            {"chunks": [], "nextSeq": 4, "exited": True, "exitCode": 0, "closed": True,
             "failure": None},
        )  # fmt: skip
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        assert client.session_id is None and client.concurrency == 1
        process = await client.start(["greet"], tty=True)
        async with asyncio.timeout(PATIENCE):
            assert await process.stdout.read() == b"hello world"
            assert await process.wait() == 0
        assert process.sandbox_type is None
        assert await client.write(process.process_id, b"x") == "accepted"
        assert not (await client.read(process.process_id)).sandbox_denied
    # Native, and nothing but what such a server needs to know beside it.
    assert starts[0]["cwd"] == "/"
    assert {"processId", "argv", "cwd", "env", "tty"} <= set(starts[0])


@requirement("client/dialect:oldest")
async def test_a_server_from_before_sessions_is_given_native_paths():
    async def script(talk: Talk) -> None:
        await talk.shake_hands({})
        request = await talk.expect("process/start")
        assert request["params"]["cwd"] == "/srv/100%"
        await talk.answer(request, {"processId": request["params"]["processId"]})
        await talk.event("process/closed", request["params"]["processId"])
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        process = await client.start(["x"], cwd="/srv/100%")
        assert await process.stdout.read() == b""


@requirement("client/dialect:uri-without-session")
async def test_a_server_without_sessions_may_want_uris():
    seen = []

    async def script(talk: Talk) -> None:
        await talk.shake_hands({})
        request = await talk.expect("process/start")
        seen.append(request["params"]["cwd"])
        await talk.refuse(request, -32602, "invalid URI: relative URL without a base")
        seen.append((await talk.start())["cwd"])
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        await client.start(["x"], cwd="/srv")
    assert seen == ["/srv", "file:///srv"]


async def test_a_newer_server_is_not_asked_twice():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.refuse(await talk.expect("process/start"), -32602, "no")
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        with pytest.raises(InvalidParams):
            await client.start(["x"], cwd="/srv")
