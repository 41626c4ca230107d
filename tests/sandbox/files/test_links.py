"""Symbolic links in a sandbox: a link that points out is only a name, and leads nowhere."""

from __future__ import annotations

import errno
import os

import pytest

from exec_server.client_urls import connect
from exec_server.protocol.sandbox import SandboxContext, workspace_write
from tests.requirements import requirement
from tests.sandbox import policies
from tests.sandbox.files import file_calls

pytestmark = file_calls.MARKS


@pytest.fixture
async def client(server):
    async with connect(server.url) as connected:
        yield connected


@pytest.fixture
def workspace(tmp_path):
    path = tmp_path / "workspace"
    for name in ("closed", "fixed"):
        (path / name).mkdir(parents=True)
        (path / name / "file").write_text(name)
    (path / "secret").write_text("secret")
    return path


@requirement("sandbox/files:links")
async def test_a_link_that_points_out_is_only_a_name(client, workspace, outside):
    confined = client.fs.sandboxed(workspace_write([workspace], exclude_tmp=True))
    for name, target in [("absolute", outside / "file"), ("relative", "../outside/file")]:
        link = workspace / name
        await confined.symlink(target, link)
        assert await confined.readlink(link) == str(target) == os.readlink(link)
        assert (await confined.lstat(link)).is_symlink
        # What it leads to stays as it is, whatever is done through the link.
        for change in (
            confined.write_file(link, b"new"),
            confined.append(link, b"new"),
            confined.set_permissions(link, mode=0o600),
            confined.open(link, mode="replace"),
        ):
            with pytest.raises(OSError, match="Read-only file system") as caught:
                await change
            assert caught.value.errno == errno.EROFS
        assert (outside / "file").read_text() == "outside"
        # The link itself is in the workspace, so it can be renamed and removed.
        await confined.rename(link, f"{link}-2")
        await confined.remove(f"{link}-2")
    await confined.symlink(outside, workspace / "folder")
    for change in (
        confined.write_file(workspace / "folder" / "new", b""),
        confined.symlink("x", workspace / "folder" / "new"),
        confined.create_directory(workspace / "folder" / "new"),
        confined.remove(workspace / "folder" / "file"),
    ):
        with pytest.raises(OSError, match="Read-only file system"):
            await change
    assert sorted(os.listdir(outside)) == ["file", "sub"]


@requirement("sandbox/files:links")
async def test_a_link_into_what_is_closed_opens_nothing(client, workspace):
    confined = client.fs.sandboxed(SandboxContext(policies.closed(workspace)))
    await confined.symlink("closed", workspace / "into")
    await confined.symlink(workspace / "secret", workspace / "at")
    into = workspace / "into" / "file"
    for look in (
        confined.read_file(into),
        confined.lstat(into),
        confined.readlink(into),
        confined.get_metadata(into, attributes=True),
        confined.read_file(workspace / "at"),
    ):
        with pytest.raises(PermissionError):
            await look
    found = await confined.walk(workspace, links=True)
    names = {(os.path.relpath(entry.path, workspace), entry.kind) for entry in found.entries}
    assert ("into", "symlink") in names and "into/file" not in {name for name, _ in names}


@requirement("sandbox/files:links")
async def test_with_scoped_reads_a_link_out_leads_nowhere(client, workspace, outside):
    confined = client.fs.sandboxed(SandboxContext(policies.scoped(workspace)))
    await confined.symlink(outside / "file", workspace / "link")
    with pytest.raises(FileNotFoundError):
        await confined.read_file(workspace / "link")
    with pytest.raises(FileNotFoundError):
        await confined.lstat(outside / "file")
    # The text in the link is no secret: it can be read without its target.
    assert await confined.readlink(workspace / "link") == str(outside / "file")
    with pytest.raises(OSError, match="Read-only file system"):
        await confined.symlink("x", workspace.parent / "new")


@requirement("sandbox/files:links")
async def test_protected_names_cannot_be_made_as_links(client, workspace, outside):
    confined = client.fs.sandboxed(workspace_write([workspace], exclude_tmp=True))
    for name in (".git", ".codex", "fixed/../.agents"):
        with pytest.raises(OSError):
            await confined.symlink(outside, workspace / name)
    assert not any(os.path.islink(workspace / name) for name in (".git", ".codex", ".agents"))
