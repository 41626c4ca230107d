"""Twelve programs that use more than they may, as root and as an unprivileged user."""

from __future__ import annotations

import asyncio
import os

import pytest

from exec_server.errors import InvalidRequest
from exec_server.protocol.sandbox import workspace_write
from tests.requirements import requirement
from tests.support.attackers import ATTACKERS
from tests.support.backends import needs_bubblewrap
from tests.support.durable import is_running, until

pytestmark = pytest.mark.one_loop

PATIENCE = 50.0


@requirement("limits:attackers", "limits:whole-tree", "limits:granted")
@pytest.mark.parametrize("name", ATTACKERS)
async def test_a_limit_that_is_granted_stops_its_attacker(client, limited, name):
    attacker = ATTACKERS[name]
    if name == "tmpfs file" and not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm")
    argv = [limited.user.python, "-c", attacker.code]
    limits = {attacker.limit: attacker.value}
    env = {"PLACE": str(limited.place)}
    process = await client.start(argv, env=env, cwd="/", limits=limits)
    granted = process.limits[attacker.limit]
    assert granted.value == attacker.value
    if granted.mechanism == "none":
        await process.terminate()
        with pytest.raises(InvalidRequest, match=f"`{attacker.limit}` cannot be held"):
            await client.start(argv, env=env, cwd="/", limits={**limits, "require": True})
        return
    async with process, asyncio.timeout(PATIENCE):
        if name == "daemon":
            daemon = int(await process.stdout.read())
            await until(lambda: not is_running(daemon), "the daemon was not ended")
        elif attacker.is_refused and granted.mechanism != "watched":
            made = int(await process.stdout.readline())
            assert 0 < made < attacker.value
        else:
            assert await process.wait() != 0
            if b"File too large" not in await process.stderr.read():
                # The kernel refuses to make one file larger, so that the program ends by itself.
                await _is_told(limited, process.process_id, attacker.limit)
        if name == "yes":
            assert len(await process.stdout.read()) == attacker.value


@requirement("limits:granted")
async def test_no_process_of_a_command_can_raise_its_open_files(client):
    """Also one that was started before the hard limit of its parent was lowered."""
    raises = "read line <&3; ulimit -Hn; (ulimit -n 64) 2>/dev/null || echo refused"
    # The input arrives after the answer of the start.
    argv = ["sh", "-c", f"exec 3<&0; ({raises}) & {raises}; wait"]
    done = await client.run(argv, input=b"a\nb\n", limits={"openFiles": 48})
    assert sorted(done.stdout.split()) == [b"48", b"48", b"refused", b"refused"]


async def _is_told(limited, process_id: str, limit: str) -> None:
    """The server's log names the limit that has ended a process."""
    line = f"{process_id}' has reached its limit `{limit}`"
    await until(lambda: line in limited.log.read_text(), f"not told: {line}")


@requirement("limits:granted")
async def test_threads_of_other_programs_of_the_user_are_not_those_of_a_command(client, limited):
    """Where a limit of the user's processes is the second line, all his threads count for it."""
    many = (
        "import sys, threading\n"
        "lock = threading.Lock(); lock.acquire()\n"
        "for _ in range(400): threading.Thread(target=lock.acquire, daemon=True).start()\n"
        "print('started', flush=True); sys.stdin.read()\n"
    )
    argv = [limited.user.python, "-c", many]
    async with asyncio.timeout(PATIENCE), await client.start(argv, cwd="/", stdin=True) as other:
        assert await other.stdout.readline() == b"started\n"
        done = await client.run(["sh", "-c", "true | echo works"], cwd="/", limits={"pids": 20})
        assert (done.returncode, done.stdout) == (0, b"works\n")
        await other.terminate()


@requirement("limits:memory-files")
@needs_bubblewrap
async def test_files_without_content_count_for_memory_in_a_sandbox(client, limited):
    code = (
        "for n in range(300_000): open(f'/dev/shm/{n}', 'w').close()\nimport time; time.sleep(60)"
    )
    argv = [limited.user.python, "-c", code]
    place = workspace_write([limited.place])
    start = client.start(argv, cwd="/", sandbox=place, limits={"memory": 48 << 20})
    async with asyncio.timeout(PATIENCE), await start as process:
        if process.limits["memory"].mechanism != "watched":
            # The kernel counts them.
            return
        assert await process.wait() != 0
        await _is_told(limited, process.process_id, "memory")
