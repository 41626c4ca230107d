"""A server inside the process, by the interface of a remote one."""

from __future__ import annotations

import asyncio
import os

import pytest

import exec_server
from exec_server.errors import ConnectionClosed
from exec_server.protocol.sandbox import workspace_write
from exec_server.sandbox import own_places
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap
from tests.support.leaks import eventually
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")


@requirement("client/local")
async def test_commands_run_on_this_machine(tmp_path):
    async with exec_server.local() as box:
        done = await box.run(["sh", "-c", "pwd; cat"], input=b"word", cwd=tmp_path)
        assert done.stdout == f"{tmp_path}\nword".encode()
        await box.fs.write_bytes(tmp_path / "file", b"content")
        assert (tmp_path / "file").read_bytes() == b"content"
        assert await box.environment_status() == "ready"


@requirement("client/local")
async def test_leaving_the_block_ends_what_runs():
    async with exec_server.local() as box:
        process = await box.start(["sleep", "60"])
        [info] = await box.list_processes()
    with pytest.raises(ConnectionClosed):
        await process.wait()
    assert info.pid is not None
    await eventually(lambda: not os.path.exists(f"/proc/{info.pid}"))


@requirement("client/local", "client/memory:back-pressure")
async def test_output_that_nobody_takes_is_held_back():
    async with exec_server.local() as box:
        process = await box.start(["head", "-c", "20000000", "/dev/zero"])
        size = 0
        async with asyncio.timeout(PATIENCE):
            async for chunk in process:
                size += len(chunk.data)
        assert size == 20_000_000 and await process.wait() == 0


@requirement("client/local")
async def test_a_connection_that_ends_is_replaced():
    states: list[str] = []
    async with exec_server.local(on_state=states.append) as box:
        process = await box.start(["sh", "-c", "echo one; read x; echo $x"], stdin=True)
        assert (await anext(process)).data == b"one\n"
        assert box._session.connection is not None
        box._session.connection._peer._connection.abort()
        await process.write(b"two\n")
        assert (await anext(process)).data == b"two\n"
    assert states == ["connected", "recovering", "connected", "closed"]


@needs_bubblewrap
@requirement("security/own:secrets", "security/own:trusted")
async def test_sandboxes_do_not_see_the_state_of_this_users_programs(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "exec-server"
    folder.mkdir()
    (folder / "key").write_text("the key")
    script = f"cat {folder}/key; echo mine > {folder}/key; ls -A {folder}"
    place = workspace_write([tmp_path])
    async with exec_server.local() as box:
        async with exec_server.local() as other:
            done = await other.run(["sh", "-c", script], sandbox=place, cwd=tmp_path)
            assert b"key" not in done.stdout
        # It stays hidden as long as one of them is there.
        done = await box.run(["sh", "-c", script], sandbox=place, cwd=tmp_path)
        assert b"key" not in done.stdout
    assert (folder / "key").read_text() == "the key"
    assert os.fsencode(folder) not in own_places.hidden()
