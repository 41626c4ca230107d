"""What plugs share: a directory of a server, and the sandbox that confines commands and files."""

from __future__ import annotations

import asyncio
import os
import select
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import exec_server
from exec_server.integrations.boxes import AsyncBox, SyncBox
from exec_server.integrations.workplaces import SyncWorkplace, Workplace, confined
from tests.requirements import requirement
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that is not below /tmp, which `workspace-write` lets commands write to."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        (Path(folder) / "own").mkdir()
        yield Path(folder)


async def needs_sandbox(url: str) -> None:
    async with exec_server.connect(url) as client:
        found = await client.sandbox_info()
    if found is None or found.rung != "bubblewrap":
        pytest.skip("there is no bubblewrap on this machine")


@requirement("integrations:sandbox")
def test_a_name_means_the_directory_and_other_sandboxes_stay():
    assert confined(None, "/srv") is None
    assert confined("read-only", "/srv") == "read-only"
    assert confined("nonesuch", "/srv") == "nonesuch"
    assert confined("workspace-write", "/srv") == exec_server.workspace_write(["/srv"])
    wanted = exec_server.workspace_write(["/srv/a", "/b"])
    assert confined("workspace-write=a:/b", "/srv") == wanted


@requirement("integrations:sandbox")
async def test_a_sandbox_holds_for_commands_and_files(server, outside):
    await needs_sandbox(server.url)
    box = AsyncBox(server.url)
    place = Workplace(box, str(outside / "own"), "workspace-write")
    done = await place.shell("echo x > one; echo x > ../two", limit=60)
    assert done.status != 0
    await place.write("sub/three", b"x")
    with pytest.raises(OSError, match="Read-only"):
        await place.write(str(outside / "four"), b"x")
    assert sorted(path.name for path in (outside / "own").iterdir()) == ["one", "sub"]
    assert [path.name for path in outside.iterdir()] == ["own"]
    await box.close()


@requirement("integrations:sandbox")
async def test_the_same_without_an_event_loop(server, outside):
    await needs_sandbox(server.url)

    def use() -> None:
        box = SyncBox(server.url)
        place = SyncWorkplace(box, str(outside / "own"), "workspace-write")
        assert place.shell("echo x > one", limit=60).status == 0
        assert place.shell("echo x > ../two", limit=60).status != 0
        place.write("three", b"x")
        with pytest.raises(OSError, match="Read-only"):
            place.write(str(outside / "four"), b"x")
        box.close()

    await asyncio.to_thread(use)
    assert [path.name for path in outside.iterdir()] == ["own"]


@requirement("integrations:sandbox")
async def test_a_command_that_takes_too_long_has_its_output(server):
    box = AsyncBox(server.url)
    place = Workplace(box, None)
    status, out, _, is_truncated = await place.shell("echo so far; sleep 600", limit=1)
    # On a busy machine the limit may be over before the command has written.
    assert status is None and out in ("", "so far\n") and not is_truncated
    assert (await place.path("x")).startswith("/")
    await box.close()


@requirement("integrations:lifetime")
async def test_a_box_may_be_closed_in_the_thread_of_its_own_loop(server):
    # The collector of garbage runs in any thread.
    def use() -> None:
        box = SyncBox(server.url)
        client = box.client()
        pid = client.start(["sleep", "600"]).pid
        assert pid is not None
        with open(os.pidfd_open(pid), "rb") as ended:
            portal = client._portal
            portal.run(box.close)
            portal._thread.join(PATIENCE)
            assert not portal._thread.is_alive()
            assert select.select([ended], [], [], PATIENCE)[0]

    await asyncio.to_thread(use)
