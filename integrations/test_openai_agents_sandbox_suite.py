"""The SDK's own tests of sandboxes, on a server of ours: lifecycle, terminals, paths, resume.

They run in a network namespace, because one of them asks for a repository on the network if the
program that it puts into PATH is not found, and with an empty /etc/profile, which sets PATH.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agents.sandbox import Manifest
from agents.sandbox.errors import WorkspaceArchiveWriteError
from agents.sandbox.session.sandbox_session_state import SandboxSessionState

from exec_server.integrations.openai_agents_sandbox import (
    ExecServerSandboxClient,
    ExecServerSandboxOptions,
)
from integrations.foreign_suites import ROOT, outcomes, sources
from integrations.lifetimes import check, is_gone, until

FILES = ("test_unix_local.py", "test_run_cwd.py", "integration_tests/test_runner_pause_resume.py")
# What holds for the local sandbox alone: variables of this machine, threads and descriptors of its
# own, snapshots that it refuses.
LOCAL = (
    "start_cancellation_waits resume_cancellation_waits hydrate_workspace_cancellation "
    "host_environment default_allowlist host_path tty_start_cancellation tty_fd_close "
    "rejects_invalid_snapshot off_the_event_loop pty_exit_waits rebase "
    "checks_permissions_then_uses_local_fs component_limit base_default_create"
).split()
# One needs a file system that ignores case, one a user who is not root.
SKIPPED = ("case_only_move_to_keeps_the_file", "inside_a_read_only_parent")
PROGRAM = """
mount --bind /dev/null /etc/profile && ip link set lo up || exit 3
exec 3>"$1"; shift
"$0" -m exec_server <&- >&3 & server=$!
exec 3>&-
while ! [ -s "$URL_FILE" ]; do kill -0 $server || exit 4; sleep 0.1; done
EXEC_SERVER_TEST_URL=$(cat "$URL_FILE") "$@"; status=$?
kill $server; wait $server
exit $status
"""


def test_the_tests_of_the_sdk(tmp_path, record_property):
    words = ["unshare", "--net", "--mount"]
    if subprocess.run([*words, "true"], check=False).returncode != 0 or not shutil.which("ip"):
        pytest.skip("the tests of the SDK run in a network namespace: this needs root and ip")
    url = tmp_path / "url"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    chosen = " and ".join(f"not {word}" for word in LOCAL)
    options = ["-p", "integrations.openai_backend", "-o", "asyncio_mode=auto", "-o", "addopts="]
    found = outcomes(
        [f"tests/sandbox/{name}" for name in FILES],
        cwd=sources("openai-agents"),
        env={**os.environ, "PYTHONPATH": path, "URL_FILE": str(url)},
        options=[*options, "-k", chosen, "--timeout=120"],
        prefix=[*words, "sh", "-c", PROGRAM, sys.executable, str(url)],
    )
    other = {name: why for name, why in found.items() if why != "passed"}
    failed = {name: why for name, why in other.items() if why != "skipped"}
    assert not failed and all(name.endswith(SKIPPED) for name in other)
    # If the SDK renames its tests, this must not become empty.
    passed = len(found) - len(other)
    assert passed >= 20
    record_property("passed elsewhere", passed)


@pytest.mark.asyncio
async def test_a_saved_state_has_no_token_and_comes_back(server_url):
    client = ExecServerSandboxClient(token="secret-of-the-test")
    options = ExecServerSandboxOptions(server=server_url)
    session = await client.create(options=options)
    await session.start()
    await session.write(Path("note"), io.BytesIO(b"kept"))
    payload = client.serialize_session_state(session.state)
    assert "secret-of-the-test" not in json.dumps(payload)
    again = await client.resume(SandboxSessionState.parse(payload))
    await again.start()
    assert (await again.read(Path("note"))).read() == b"kept"
    root = session.state.manifest.root
    await client.delete(again)
    assert not os.path.exists(root)
    await session.shutdown()


@pytest.mark.asyncio
async def test_a_directory_that_was_there_stays(server_url, tmp_path):
    client = ExecServerSandboxClient()
    options = ExecServerSandboxOptions(server=server_url)
    session = await client.create(options=options, manifest=Manifest(root=str(tmp_path)))
    async with session:
        ran = await session.exec("sleep 600 & echo $! > pid; pwd")
        assert ran.stdout.decode() == f"{tmp_path}\n"
    await client.delete(session)
    pid = int((tmp_path / "pid").read_text())
    until(lambda: is_gone(pid), "the command was left behind")


@asynccontextmanager
async def confined(url: str) -> AsyncIterator[tuple[Any, Path]]:
    """A session with a sandbox, and its directory, which is alone in another one."""
    client = ExecServerSandboxClient()
    options = ExecServerSandboxOptions(server=url, sandbox="workspace-write")
    # Not below /tmp, which such a sandbox lets commands write to.
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        root = Path(folder) / "root"
        session = await client.create(options=options, manifest=Manifest(root=str(root)))
        await session.start()
        yield session, root
        await session.shutdown()


@pytest.mark.asyncio
async def test_the_sandbox_holds_for_commands_and_files(server_url):
    async with confined(server_url) as (session, root):
        assert (await session.exec("echo x > one")).ok()
        await session.write(Path("two"), io.BytesIO(b"x"))
        assert sorted(os.listdir(root)) == ["one", "two"]
        assert not (await session.exec("echo x > ../three")).ok()
        assert os.listdir(root.parent) == ["root"]


@pytest.mark.asyncio
async def test_a_snapshot_is_unpacked_inside_the_sandbox(server_url):
    async with confined(server_url) as (session, root):
        # What an agent cannot change in its workspace comes back, too.
        await session.hydrate_workspace(archive_of(".git/config", "note"))
        assert (root / ".git" / "config").read_bytes() == b"content"
        names = tarfile.open(fileobj=await session.persist_workspace()).getnames()
        assert {"./.git/config", "./note"} <= set(names)
        assert (await session.exec("ln -s .. link")).ok()
        with pytest.raises(WorkspaceArchiveWriteError):
            await session.hydrate_workspace(archive_of("link/outside"))
        assert os.listdir(root.parent) == ["root"]


def archive_of(*names: str) -> io.BytesIO:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(b"content")
            archive.addfile(member, io.BytesIO(b"content"))
    made.seek(0)
    return made


LIFETIME = """
import asyncio, sys
from exec_server.integrations.openai_agents_sandbox import *
async def main(url, command):
    client = ExecServerSandboxClient()
    session = await client.create(options=ExecServerSandboxOptions(server=url))
    async with session:
        await session.pty_exec_start(command, yield_time_s=1)
        await session.exec("sleep 600")
asyncio.run(main(*sys.argv[1:]))
"""


def test_nothing_is_left_when_the_program_ends(impatient_url, tmp_path, ending):
    check(LIFETIME, impatient_url, tmp_path, ending)
