"""A session that another run of the server continues, and processes whose end stays unknown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client.process.output_buffer import Closed, Exited, OutputChunk
from exec_server.client_urls import connect
from exec_server.errors import ConnectionClosed, MethodNotFound, ProcessLost
from exec_server.limits import Limits
from tests.requirements import requirement
from tests.support.fake_server import Script, Talk, fake_server
from tests.support.leaks import children
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")

QUICK = Limits(recovery_pause=0.01)
NEWS = {"exited": False, "exitCode": None, "closed": False, "failure": None}
LOST = {**NEWS, "exited": True, "closed": True, "lost": "machine restarted"}


def hello(instance: str, *capabilities: str) -> dict[str, Any]:
    """The result of `initialize` from one run of a server."""
    info = {
        "shell": {"name": "sh", "path": "/bin/sh"},
        "capabilities": dict.fromkeys(("processList", "processDurable", *capabilities), True),
    }
    return {"sessionId": "s", "serverInstance": instance, "environmentInfo": info}


@contextlib.asynccontextmanager
async def talking(*scripts: Script) -> AsyncIterator[ExecServerClient]:
    """A client whose connections meet one script after the other."""
    turns = iter(scripts)

    async def play(talk: Talk) -> None:
        await next(turns)(talk)

    async with fake_server(play) as url, connect(url, limits=QUICK) as client:
        yield client
    assert not list(turns), "not every script was played"


async def start(talk: Talk) -> dict[str, Any]:
    """Answer a `process/start`, durable if it asks for that."""
    request = await talk.expect("process/start")
    params: dict[str, Any] = request["params"]
    answer = {"processId": params["processId"], "sandboxType": "none"}
    if params.get("durable"):
        answer["durable"] = True
    await talk.answer(request, answer)
    return params


@requirement("client/durable:next-server")
async def test_the_next_server_goes_on_with_what_is_durable_and_the_rest_is_lost():
    async def first(talk: Talk) -> None:
        await talk.shake_hands(hello("one"))
        assert "durable" not in await start(talk)
        assert (await start(talk))["durable"] is True
        await talk.output("d", 1, b"one ")
        await talk.expect("environment/status")
        talk.socket.transport.abort()

    async def second(talk: Talk) -> None:
        params = await talk.shake_hands(hello("two", "fsRename"))
        assert params["resumeSessionId"] == "s"
        for _ in range(2):
            request = await talk.expect("process/read")
            if request["params"]["processId"] == "p":
                await talk.refuse(request, -32600, "unknown process id p")
            else:
                assert request["params"]["afterSeq"] == 1
                await talk.answer(request, {"chunks": [], "nextSeq": 2, **NEWS})
        await talk.output("d", 2, b"two")
        await talk.answer(await talk.expect("environment/status"), {"status": "ready"})
        await talk.gone()

    async with talking(first, second) as client:
        plain = await client.start(["x"], cwd="/", process_id="p")
        durable = await client.start(["x"], cwd="/", process_id="d", durable=True)
        assert durable.is_durable and not plain.is_durable
        assert await anext(durable.stdout) == b"one "
        with pytest.raises(ConnectionClosed):
            await client.environment_status()
        async with asyncio.timeout(PATIENCE):
            assert await anext(durable.stdout) == b"two"
            with pytest.raises(ProcessLost, match="the server was restarted"):
                await plain.wait()
        assert (plain.lost, plain.returncode) == ("the server was restarted", None)
        assert await client.environment_status() == "ready"
        assert client.server_instance == "two"
        # Another release may offer other things.
        assert (await client.environment_info()).capabilities["fsRename"]


@requirement("client/durable:start-once")
@pytest.mark.parametrize("is_durable", [False, True])
async def test_a_start_that_the_server_took_with_it_is_repeated_only_if_that_is_safe(is_durable):
    async def first(talk: Talk) -> None:
        await talk.shake_hands(hello("one"))
        await talk.expect("process/start")
        talk.socket.transport.abort()

    async def second(talk: Talk) -> None:
        await talk.shake_hands(hello("two"))
        # Before a durable program runs its id is recorded, so an empty list proves something.
        await talk.answer(await talk.expect("process/list"), {"processes": []})
        if is_durable:
            await start(talk)
        await talk.gone()

    async with talking(first, second) as client:
        starting = client.start(["x"], cwd="/", durable=is_durable, ensure=True)
        if is_durable:
            assert (await starting).is_durable
        else:
            with pytest.raises(ConnectionClosed) as caught:
                await starting
            assert caught.value.may_have_run


@requirement("client/durable:capability")
async def test_a_server_that_cannot_keep_a_process_is_not_asked_to():
    async def script(talk: Talk) -> None:
        answer = hello("one")
        answer["environmentInfo"]["capabilities"]["processDurable"] = False
        await talk.shake_hands(answer)
        await talk.gone()

    async with talking(script) as client:
        with pytest.raises(MethodNotFound, match="processDurable"):
            await client.start(["x"], cwd="/", durable=True)


# Processes whose end stays unknown.


@requirement("client/durable:lost")
@pytest.mark.parametrize("how", ["event", "read"])
async def test_an_exit_status_is_never_invented(how):
    async def first(talk: Talk) -> None:
        await talk.shake_hands(hello("one"))
        await start(talk)
        await talk.output("d", 1, b"so far")
        if how == "event":
            lost = {"exitCode": None, "sandboxDenied": False, "lost": "machine restarted"}
            await talk.event("process/exited", "d", seq=2, **lost)
            await talk.event("process/closed", "d", seq=3)
            await talk.gone()
        talk.socket.transport.abort()

    async def second(talk: Talk) -> None:
        await talk.shake_hands(hello("two"))
        chunk = {"seq": 1, "stream": "stdout", "chunk": "c28gZmFy"}
        request = await talk.expect("process/read")
        chunks = [chunk] if request["params"]["afterSeq"] == 0 else []
        await talk.answer(request, {"chunks": chunks, "nextSeq": 4, **LOST})
        await talk.gone()

    scripts = [first] if how == "event" else [first, second]
    async with talking(*scripts) as client:
        process = await client.start(["x"], cwd="/", process_id="d", durable=True)
        async with asyncio.timeout(PATIENCE):
            events = [event async for event in process.events() if not hasattr(event, "after_seq")]
            assert events == [
                OutputChunk(1, "stdout", b"so far"),
                Exited(2, None, False, "machine restarted"),
                Closed(3),
            ]
            with pytest.raises(ProcessLost) as caught:
                await process.wait()
        assert caught.value.reason == process.lost == "machine restarted"
        assert process.returncode is None and process.is_done
        assert "machine restarted" in repr(process)


@requirement("client/process:keeper-died")
async def test_a_process_whose_keeper_was_killed_is_lost(client):
    process = await client.start(["sh", "-c", "echo so far; sleep 60"])
    assert await anext(process.stdout) == b"so far\n"
    [keeper] = [pid for pid in children(os.getpid()) if _is_keeper(pid)]
    os.kill(keeper, signal.SIGKILL)
    with pytest.raises(ProcessLost, match="the process keeper died"):
        await process.wait()
    assert process.returncode is None
    assert process.lost == "the process keeper died, and this process was killed with it"
    assert b"the process keeper died" in await process.stderr.read()
    # A handle that comes later is told the same.
    later = await client.attach(process.process_id, 0)
    assert (later.lost, later.returncode) == (process.lost, None)


@requirement("client/process:keeper-died")
async def test_a_command_whose_keeper_was_killed_is_told_with_its_output(client, tmp_path):
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    # Input comes only after the answer to the start.
    script = f"read x; echo so far; echo > {ready}; sleep 60"
    running = asyncio.ensure_future(client.run(["sh", "-c", script], input=b"\n"))
    await asyncio.to_thread(ready.read_bytes)
    [keeper] = [pid for pid in children(os.getpid()) if _is_keeper(pid)]
    os.kill(keeper, signal.SIGKILL)
    with pytest.raises(ProcessLost) as caught:
        await running
    assert caught.value.stdout == b"so far\n"


def _is_keeper(pid: int) -> bool:
    return b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
