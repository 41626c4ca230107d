"""Durable jobs go on between this code and what earlier commits of the repository really were."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.durable.test_other_release import RUN, check_jobs, start_jobs
from tests.requirements import requirement
from tests.support.durable import StateServers, jobs_of, read_all, until
from tests.support.servers import OURS
from tests.support.source_tree import REPOSITORY
from tests.support.wire import Wire

pytestmark = pytest.mark.one_loop

KEEPER = "src/exec_server/process/durable/durable_keeper.py"
# A commit is named by the text that it has brought into the keeper's file, and by how far behind it
# is; so it is found in any clone that has its history.
FIRST_VERSION = ("\nOLDEST = 1", "")
LAST_WITHOUT_SHARED_INPUT = ('"shares_input"', "^")


def git(*words: str) -> bytes:
    """What git says; skips the test if it cannot say it."""
    try:
        done = subprocess.run(
            ["git", "-C", str(REPOSITORY), *words], capture_output=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as exc:
        pytest.skip(f"the history of the repository is not available: {exc}")
    return done.stdout


def earlier_commit(brought: str, behind: str) -> str:
    if git("rev-parse", "--is-shallow-repository").strip() == b"true":
        pytest.skip("this clone is shallow: it has no earlier commits")
    commits = git("log", "--format=%H", "-S", brought, "--", KEEPER).split()
    if not commits:
        pytest.skip("the history of the repository does not have the earlier commit")
    return commits[-1].decode() + behind


def exported(commit: str, folder: Path) -> list[str]:
    """The command that runs the package as it was at *commit*."""
    archive = git("archive", "--format=zip", commit, "src/exec_server")
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        files.extractall(folder)
    return [sys.executable, "-c", RUN.format(path=str(folder / "src"))]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[StateServers]]:
    running: list[StateServers] = []
    yield running
    for each in running:
        each.close()


@requirement("durable:replaced")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("direction", ["upgrade", "downgrade"])
@pytest.mark.parametrize(
    ("commit", "signum"),
    [(FIRST_VERSION, signal.SIGTERM), (LAST_WITHOUT_SHARED_INPUT, signal.SIGKILL)],
    ids=["first version", "before shared input"],
)
async def test_jobs_go_on_under_an_earlier_commit(servers, tmp_path, commit, signum, direction):
    before, after = exported(earlier_commit(*commit), tmp_path / "earlier"), OURS
    if direction == "downgrade":
        before, after = after, before
    servers.append(StateServers(tmp_path / "state", command=before))
    async with Wire(servers[0].url) as wire:
        session = (await wire.initialize())["sessionId"]
        await start_jobs(wire, tmp_path)
        keeper = servers[0].keeper_pid
        servers[0].kill(signum)
    (tmp_path / "pipe.gone").touch()
    await until((tmp_path / "pipe.alone").exists)
    servers.append(StateServers(tmp_path / "state", command=after))
    async with Wire(servers[1].url) as wire:
        await wire.initialize(resumeSessionId=session)
        assert {job["state"] for job in await jobs_of(wire)} == {"running"}
        await check_jobs(wire, tmp_path)
        await wire.start("new", ["sh", "-c", "echo new; exit 3"], durable=True)
        data, answer = await read_all(wire, "new")
        assert (data, answer["exitCode"]) == (b"new\n", 3)
        assert servers[1].keeper_pid == keeper
