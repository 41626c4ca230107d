"""Sandboxes from a program: processes, files, and what the server says of them."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import exec_server
from exec_server import read_only, sync, workspace_write
from exec_server.errors import InvalidParams, RpcError
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap, needs_some_backend
from tests.support.wire import PATIENCE


@pytest.fixture
def workspace() -> Iterator[Path]:
    """A directory in one that cannot be written, as everything below /tmp can."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as outer:
        path = Path(outer).resolve() / "workspace"
        path.mkdir()
        yield path


# Processes.


@requirement("client/sandbox:processes")
@needs_some_backend
async def test_what_a_command_was_refused_is_told(server, workspace):
    async with exec_server.connect(server.url) as box:
        done = await box.run(["touch", "made"], cwd=workspace, sandbox=read_only())
        assert done.returncode == 1 and done.sandbox_denied
        assert done.sandbox_type == "linuxSeccomp"
        assert done.sandbox_rung in ("bubblewrap", "landlock")
        assert not list(workspace.iterdir())
        done = await box.run(["true"], sandbox=read_only())
        assert done.returncode == 0 and not done.sandbox_denied
        done = await box.run(["touch", "made"], cwd=workspace)
        assert (done.sandbox_type, done.sandbox_rung, done.sandbox_denied) == ("none", None, False)


@requirement("client/sandbox:processes")
@needs_bubblewrap
async def test_a_started_process_is_confined_and_says_so(server, workspace):
    async with exec_server.connect(server.url) as box:
        process = await box.start(
            ["sh", "-c", "read x; touch made ../$x"],
            cwd=workspace,
            stdin=True,
            sandbox=workspace_write([workspace]),
        )
        assert (process.sandbox_type, process.sandbox_rung) == ("linuxSeccomp", "bubblewrap")
        assert not process.sandbox_denied
        await process.write(b"outside\n")
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 1
        assert process.sandbox_denied
    assert os.listdir(workspace) == ["made"] and os.listdir(workspace.parent) == ["workspace"]


@requirement("client/sandbox:processes")
@needs_bubblewrap
async def test_a_dict_is_sent_as_it_is(server, workspace):
    async with exec_server.connect(server.url) as box:
        context = workspace_write([workspace]).wire
        done = await box.run(["touch", "made"], cwd=workspace, sandbox=context, ensure=True)
        assert (done.returncode, done.sandbox_rung) == (0, "bubblewrap")
        with pytest.raises(InvalidParams, match="permissions"):
            await box.run(["true"], sandbox={"anything": 1})


@requirement("client/sandbox:processes")
@needs_some_backend
def test_the_synchronous_client_has_the_same():
    with sync.local() as box:
        done = box.run(["sh", "-c", "echo x > /var/tmp/never"], sandbox=read_only())
        assert done.sandbox_denied
        found = box.sandbox_info()
        assert found is not None and found.rung == done.sandbox_rung


# Files.


@requirement("client/sandbox:files")
@needs_bubblewrap
async def test_files_can_be_confined_to_a_workspace(server, workspace):
    outside = workspace.parent / "outside"
    outside.write_bytes(b"as it was")
    async with exec_server.connect(server.url) as box:
        files = box.fs.sandboxed(workspace_write([workspace]))
        assert await files.offers("sandboxedFileStreaming")
        await files.write_bytes(workspace / "file", b"content")
        assert await files.read_bytes(workspace / "file") == b"content"
        assert await files.read_bytes(outside) == b"as it was"
        for path in (outside, workspace / ".git"):
            with pytest.raises(RpcError):
                await files.write_bytes(path, b"changed")
        await files.rename(workspace / "file", workspace / "other")
        names = {each.file_name for each in await files.read_directory(workspace)}
        assert "other" in names and "file" not in names
    assert outside.read_bytes() == b"as it was"


@requirement("client/sandbox:files")
@needs_bubblewrap
async def test_streams_are_confined_as_well(server, workspace):
    content = os.urandom(3_000_000)
    async with exec_server.connect(server.url) as box:
        files = box.fs.sandboxed(workspace_write([workspace]))
        async with files.write_stream(workspace / "large") as stream:
            await stream.write(content)
        assert await files.read_stream(workspace / "large").read() == content
        with pytest.raises(RpcError):
            async with files.write_stream(workspace.parent / "outside") as stream:
                await stream.write(b"x")
    assert (workspace / "large").read_bytes() == content
    assert not (workspace.parent / "outside").exists()


# What the server says.


@requirement("environment/info:sandbox")
async def test_the_server_says_which_backend_is_in_force(server, wire):
    info = await wire.call("environment/info")
    backends = info["sandbox"]["rungs"]
    working = [each["rung"] for each in backends if each["works"]]
    assert info["sandbox"]["rung"] == (working[0] if working else "none")
    assert [each["rung"] for each in backends] == ["bubblewrap", "landlock", "seccomp"]
    async with exec_server.connect(server.url) as box:
        found = await box.sandbox_info()
        assert found is not None and found.rung == info["sandbox"]["rung"]
        # By now it is known when others shake hands.
        assert (await box.environment_info()).sandbox == found
