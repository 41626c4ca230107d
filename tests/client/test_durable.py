"""Durable processes through the client, with servers that are killed and started again."""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from exec_server import sync
from exec_server.client_urls import connect
from exec_server.errors import ConnectionClosed, InvalidRequest, MethodNotFound, ProcessLost
from exec_server.limits import Limits
from tests.requirements import requirement
from tests.support.durable import StateServers, is_running, state_servers
from tests.support.leaks import eventually
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop

# A server takes a second to start, and a test need not wait longer than that.
QUICK = Limits(recovery_pause=0.05)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[StateServers]:
    """Servers at one address, on one state directory."""
    listen = f"unix://{tmp_path / 's.sock'}"
    with state_servers(tmp_path / "durable", "--listen", listen) as made:
        yield made


@requirement("client/durable:next-server")
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("tty", [False, True])
async def test_a_handle_goes_on_at_the_next_server(servers, signum, tty):
    async with connect(servers.url, limits=QUICK) as client:
        script = "stty -echo 2>/dev/null; echo ready; while read x; do echo got:$x; done; exit 4"
        process = await client.start(["sh", "-c", script], durable=True, stdin=True, tty=tty)
        output = b""

        async def until(text: bytes) -> None:
            nonlocal output
            async with asyncio.timeout(PATIENCE):
                while text not in output:
                    output += await anext(process.stdout)

        await until(b"ready")
        first = client.server_instance
        for number in range(3):
            await process.write(b"%d\n" % number)
            servers.kill(signum)
            # It waits for the next server, which gets it once.
            writing = asyncio.ensure_future(process.write(b"again-%d\n" % number))
            servers.start()
            await writing
            await until(b"got:again-%d" % number)
        assert client.server_instance != first
        await process.close_stdin()
        assert await process.wait() == 4
        output += await process.stdout.read()
    lines = [line for line in output.decode().split() if line.startswith("got:")]
    assert lines == [f"got:{word}" for n in range(3) for word in (n, f"again-{n}")]


@requirement("client/durable:next-server")
async def test_what_is_not_durable_is_lost_with_the_server_and_the_client_goes_on(servers):
    async with connect(servers.url, limits=QUICK) as client:
        durable = await client.start(["cat"], durable=True, stdin=True)
        plain = await client.start(["sleep", "60"])
        servers.restart()
        with pytest.raises(ProcessLost, match="the server was restarted"):
            await plain.wait()
        assert (await client.run(["echo", "again"])).stdout == b"again\n"
        await durable.write(b"still here")
        assert await anext(durable.stdout) == b"still here"
        assert await durable.terminate()


@requirement("client/durable:jobs")
async def test_jobs_of_all_sessions_are_listed_and_can_be_continued(servers):
    async with connect(servers.url) as client:
        script = "echo so far; read x; echo got:$x; exit 6"
        argv = ["sh", "-c", script]
        process = await client.start(argv, durable=True, stdin=True, cwd="/usr")
        assert process.is_durable
        assert await anext(process.stdout) == b"so far\n"
        process_id = process.process_id
    servers.restart()

    async with connect(servers.url) as other:
        [job] = await other.jobs()
        assert (job.process_id, job.argv, job.state) == (process_id, argv, "running")
        assert (job.cwd, job.tty, job.exit_code) == ("file:///usr", False, None)
        assert (job.lost, job.ended_at, job.attached) == (None, None, False)
        assert job.pid is not None and is_running(job.pid)
        assert await other.prune_jobs() == 0

    async with connect(servers.url, resume_session_id=job.session_id) as again:
        process = await again.attach(job.process_id, 0)
        assert await anext(process.stdout) == b"so far\n"
        await process.write(b"word\n")
        assert await anext(process.stdout) == b"got:word\n"
        assert await process.wait() == 6
        [job] = await again.jobs()
        assert (job.exit_code, job.attached) == (6, True)
        assert job.ended_at is not None and job.ended_at >= job.started_at
        async with asyncio.timeout(PATIENCE):
            while not await again.prune_jobs(process_id=process_id):
                pass
        assert await again.jobs() == []


@requirement("client/durable:lost")
async def test_a_job_whose_keeper_was_killed_is_lost(servers):
    async with connect(servers.url) as client:
        process = await client.start(["sh", "-c", "echo so far; sleep 60"], durable=True)
        assert await anext(process.stdout) == b"so far\n"
        servers.kill_keeper()
        with pytest.raises(ProcessLost, match="the keeper died"):
            await process.wait()
        assert (process.lost, process.returncode) == ("the keeper died", None)
        assert await process.stdout.read() == b""
        [job] = await client.jobs()
        assert (job.state, job.exit_code, job.lost) == ("lost", None, "the keeper died")


@requirement("client/durable:stop")
@pytest.mark.parametrize("end_jobs", [False, True])
async def test_a_client_can_stop_the_server(servers, end_jobs):
    async with connect(servers.url, reconnect=False) as client:
        await client.start(["sleep", "60"], durable=True)
        [job] = await client.jobs()
        await client.stop_server(end_jobs=end_jobs)
        await client.wait_closed()
    assert servers.server.wait() == 0
    pid = job.pid
    assert pid is not None
    if end_jobs:
        await eventually(lambda: not is_running(pid))
    else:
        assert is_running(pid)


@requirement("client/durable:capability")
async def test_a_server_without_a_directory_keeps_nothing(server):
    async with connect(server.url) as client:
        assert not await client.offers("processDurable")
        with pytest.raises(MethodNotFound, match="no state directory"):
            await client.start(["true"], durable=True)
        assert await client.jobs() == []
        with pytest.raises(InvalidRequest):
            await client.stop_server()


@requirement("client/durable:principals")
async def test_jobs_belong_to_the_bearers_of_a_token(tmp_path):
    digest = hashlib.sha256(b"open-sesame").hexdigest()
    auth = ("--ws-auth", "capability-token", "--ws-token-sha256", digest)
    with state_servers(tmp_path / "durable", *auth) as servers:
        async with connect(servers.url, token="open-sesame") as client:
            process = await client.start(["sleep", "60"], durable=True)
        async with connect(servers.url, token="open-sesame") as other:
            assert [job.process_id for job in await other.jobs()] == [process.process_id]
        with pytest.raises(ConnectionClosed):
            async with connect(servers.url, token="wrong"):
                raise AssertionError


@requirement("client/durable:jobs")
def test_a_program_without_an_event_loop_has_them_too(servers):
    with sync.connect(servers.url) as client:
        process = client.start(["sh", "-c", "echo said; exit 3"], durable=True)
        assert process.is_durable
        assert process.stdout.read() == b"said\n"
        assert process.wait() == 3
        assert [job.exit_code for job in client.jobs()] == [3]
        assert client.prune_jobs() == 1


@requirement("durable:window-ends")
@pytest.mark.parametrize("keeps_handle", [True, False])
async def test_a_client_that_leaves_holds_no_job(servers, tmp_path, keeps_handle):
    done = tmp_path / "done"
    async with connect(servers.url) as client:
        # It is much more than the window of a client.
        script = f"head -c 20000000 /dev/zero; touch {done}"
        process = await client.start(["sh", "-c", script], durable=True)
        if not keeps_handle:
            del process
    await eventually(done.exists)
