"""Helpers: shared by equal plans, bounded, replaced when they crash or hang.

They run unconfined here; tests/sandbox tests them in real sandboxes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager

import msgspec
import pytest

from exec_server.errors import InternalError, InvalidRequest, NotFound
from exec_server.files.confined.helper_pool import HelperPool, Started
from exec_server.limits import Limits
from exec_server.protocol.method import Encoded
from exec_server.sandbox.model import Access, Plan, Policy, Rule, Show
from tests.requirements import requirement
from tests.support.files import until
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")

REAL = "from exec_server.files.confined.helper_main import main; main()"


def plan(path: str = "/") -> Plan:
    policy = Policy(True, "restricted", (Rule(os.fsencode(path), Access.READ),))
    return Plan(policy, shows_host=True)


class Running:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._watch = asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        self.ended.set_result(f"fs sandbox helper failed: {await self._process.wait()}")

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    discard = kill


class Helpers:
    """Starts helpers without a sandbox, and remembers their processes."""

    def __init__(self) -> None:
        self.programs: list[list[str]] = []
        self.processes: list[asyncio.subprocess.Process] = []

    async def start(self, wanted: Plan) -> Started:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            program = self.programs.pop(0) if self.programs else ["-c", REAL]
            process = await asyncio.create_subprocess_exec(
                sys.executable, *program, stdin=theirs.fileno()
            )
        self.processes.append(process)
        return Started(ours, Running(process))


@asynccontextmanager
async def pool_of(helpers: Helpers, **limits: float):
    pool = HelperPool(helpers.start, msgspec.structs.replace(Limits(), **limits))
    try:
        yield pool
    finally:
        pool.stop()
        async with asyncio.timeout(PATIENCE):
            for process in helpers.processes:
                await process.wait()


async def ask(
    pool: HelperPool, wanted: Plan, task: str, *args: object, content: bytes | None = None
):
    async with asyncio.timeout(PATIENCE), pool.borrow(wanted) as helper:
        return await helper.call(task, *args, content=content)


def decoded(answer: object):
    assert isinstance(answer, Encoded)
    return msgspec.json.decode(b"".join(answer.parts))


@requirement("sandbox/helper:warm")
async def test_equal_plans_share_a_helper_and_others_do_not(tmp_path):
    helpers = Helpers()
    (tmp_path / "file").write_bytes(b"content")
    async with pool_of(helpers) as pool:
        path = os.fsencode(tmp_path / "file")
        for _ in range(3):
            assert decoded(await ask(pool, plan(), "fs/readFile", path, 1000)) == {
                "dataBase64": "Y29udGVudA=="
            }
        await asyncio.gather(*(ask(pool, plan(), "fs/getMetadata", path) for _ in range(20)))
        assert len(helpers.processes) == 1
        await ask(pool, plan("/other"), "fs/getMetadata", path)
        assert len(helpers.processes) == 2


@requirement("sandbox/helper:mount-points")
async def test_a_helper_whose_mount_points_are_gone_is_replaced_when_it_has_no_users(tmp_path):
    helpers = Helpers()
    (tmp_path / "fixed").mkdir()
    step = Show(os.fsencode(tmp_path / "fixed"), is_writable=False)
    wanted = msgspec.structs.replace(plan(), steps=(step,))
    async with pool_of(helpers) as pool:
        await asyncio.gather(*(ask(pool, wanted, "fs/getMetadata", b"/") for _ in range(2)))
        assert len(helpers.processes) == 1
        async with asyncio.timeout(PATIENCE), pool.borrow(wanted) as helper:
            (tmp_path / "fixed").rmdir()
            (tmp_path / "fixed").mkdir()
            await ask(pool, wanted, "fs/getMetadata", b"/")
            assert len(helpers.processes) == 2
            await helper.call("fs/getMetadata", b"/")
        async with asyncio.timeout(PATIENCE):
            await helpers.processes[0].wait()
        await ask(pool, wanted, "fs/getMetadata", b"/")
        assert len(helpers.processes) == 2


@requirement("sandbox/helper:errors")
async def test_errors_come_with_their_codes(tmp_path):
    async with pool_of(Helpers()) as pool:
        with pytest.raises(NotFound, match="os error 2"):
            await ask(pool, plan(), "fs/readFile", os.fsencode(tmp_path / "none"), 10)
        with pytest.raises(InvalidRequest, match="is not a file"):
            await ask(pool, plan(), "fs/readFile", os.fsencode(tmp_path), 10)


async def test_large_content_goes_both_ways(tmp_path):
    path, data = os.fsencode(tmp_path / "file"), os.urandom(3 << 20)
    async with pool_of(Helpers()) as pool:
        await ask(pool, plan(), "fs/writeFile", path, False, content=data)
        assert (tmp_path / "file").read_bytes() == data
        answer = await ask(pool, plan(), "fs/readFile", path, 1 << 30)
        assert len(decoded(answer)["dataBase64"]) == 4 << 20


async def test_an_opened_file_comes_back(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    async with pool_of(Helpers()) as pool:
        fd = await ask(pool, plan(), "fs/open", os.fsencode(tmp_path / "file"), "read")
        assert isinstance(fd, int)
        try:
            assert os.pread(fd, 10, 0) == b"abc"
        finally:
            os.close(fd)


async def test_a_file_that_is_opened_for_a_cancelled_call_is_closed(tmp_path, monkeypatch):
    """The call is cancelled after its answer has come and before it is returned."""
    (tmp_path / "file").write_bytes(b"abc")
    async with pool_of(Helpers()) as pool, pool.borrow(plan()) as helper:
        path = os.fsencode(tmp_path / "file")
        call = asyncio.ensure_future(helper.call("fs/open", path, "read"))
        answered = helper._on_answer

        def answer_and_cancel(packet: bytes, attached: int | None) -> None:
            answered(packet, attached)
            call.cancel()

        monkeypatch.setattr(helper, "_on_answer", answer_and_cancel)
        with pytest.raises(asyncio.CancelledError):
            await call


@requirement("sandbox/helper:crash")
async def test_a_crash_fails_the_calls_under_way_and_the_next_call_gets_another(tmp_path):
    helpers = Helpers()
    path = os.fsencode(tmp_path)
    async with pool_of(helpers) as pool:
        async with asyncio.timeout(PATIENCE), pool.borrow(plan()) as helper:
            os.kill(helpers.processes[0].pid, signal.SIGSTOP)
            calls = [asyncio.ensure_future(helper.call("fs/getMetadata", path)) for _ in range(5)]
            await asyncio.gather(*(asyncio.wait([call], timeout=0) for call in calls))
            helpers.processes[0].kill()
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(outcome, InternalError)
                assert "fs sandbox helper failed" in str(outcome)
        assert decoded(await ask(pool, plan(), "fs/getMetadata", path))["isDirectory"]
        assert len(helpers.processes) == 2


@requirement("sandbox/helper:hang")
async def test_a_helper_that_hangs_is_ended_and_replaced(tmp_path):
    helpers = Helpers()
    async with pool_of(helpers, sandbox_call=0.2) as pool:
        await ask(pool, plan(), "fs/getMetadata", b"/")
        os.kill(helpers.processes[0].pid, signal.SIGSTOP)
        with pytest.raises(InternalError, match=r"no answer within 0\.2 s"):
            await ask(pool, plan(), "fs/getMetadata", b"/")
        async with asyncio.timeout(PATIENCE):
            assert await helpers.processes[0].wait() == -signal.SIGKILL
        await ask(pool, plan(), "fs/getMetadata", b"/")


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.exit(3)",
        "import socket, sys; socket.socket(fileno=0).sendmsg([b'nonsense'])",
    ],
)
async def test_what_is_no_helper_is_an_error(program):
    helpers = Helpers()
    helpers.programs = [["-c", program]]
    async with pool_of(helpers) as pool:
        with pytest.raises(InternalError, match="fs sandbox helper failed"):
            await ask(pool, plan(), "fs/getMetadata", b"/")
        # Only that start was bad; the next helper works.
        await ask(pool, plan(), "fs/getMetadata", b"/")


async def test_nonsense_instead_of_an_answer_ends_the_helper():
    helpers = Helpers()
    helpers.programs = [
        [
            "-c",
            "import socket, sys; s = socket.socket(fileno=0);"
            "s.sendmsg([b'ready']); s.recv(1000); s.sendmsg([b'\\xc1']); s.recv(1)",
        ]
    ]
    async with pool_of(helpers) as pool:
        with pytest.raises(InternalError, match="something else than an answer"):
            await ask(pool, plan(), "fs/getMetadata", b"/")


@requirement("sandbox/helper:bounded")
async def test_idle_helpers_make_room_and_busy_ones_are_waited_for():
    helpers = Helpers()
    async with pool_of(helpers, sandbox_helpers=1) as pool:
        await ask(pool, plan("/a"), "fs/getMetadata", b"/")
        await ask(pool, plan("/b"), "fs/getMetadata", b"/")
        async with asyncio.timeout(PATIENCE):
            await helpers.processes[0].wait()
        async with pool.borrow(plan("/b")):
            waiting = asyncio.ensure_future(ask(pool, plan("/c"), "fs/getMetadata", b"/"))
            assert not (await asyncio.wait([waiting], timeout=0))[0]
        await waiting
        assert len(helpers.processes) == 3


async def test_waiting_for_busy_helpers_has_an_end():
    async with pool_of(Helpers(), sandbox_helpers=1) as pool:
        await ask(pool, plan("/a"), "fs/getMetadata", b"/")
        pool._limits = msgspec.structs.replace(pool._limits, sandbox_helper_start=0.05)
        async with pool.borrow(plan("/a")):
            with pytest.raises(InternalError, match="1 others are busy"):
                await ask(pool, plan("/b"), "fs/getMetadata", b"/")


@requirement("sandbox/helper:idle")
async def test_an_idle_helper_ends():
    helpers = Helpers()
    async with pool_of(helpers, sandbox_helper_idle=0.01) as pool:
        await ask(pool, plan(), "fs/getMetadata", b"/")
        await until(lambda: helpers.processes[0].returncode is not None)
        assert not pool._entries


async def test_a_helper_ends_when_the_server_is_gone():
    helpers = Helpers()
    ours = (await helpers.start(plan())).sock
    assert await asyncio.to_thread(ours.recv, 100) == b"ready"
    ours.close()
    async with asyncio.timeout(PATIENCE):
        assert await helpers.processes[0].wait() == 0
