"""Programs through the keeper: their descriptors, their exits, and the keeper's own end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import resource
import select
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from exec_server.errors import InternalError
from exec_server.process import spawn
from exec_server.process.keeping.process_trees import processes
from exec_server.process.spawn import Facts, Launch, Spawned, Spawner
from tests.requirements import requirement
from tests.support import leaks
from tests.support.children import Description, Watched, child
from tests.support.servers import OURS, start_server
from tests.support.tether import Tether
from tests.support.wire import PATIENCE, Wire, decoded


class Exit:
    """Records one exit."""

    def __init__(self) -> None:
        self._told: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def __call__(
        self, status: int | None, reason: str | None = None, facts: Facts | None = None
    ) -> None:
        self.facts = facts
        self._told.set_result(status)

    async def status(self) -> int | None:
        async with asyncio.timeout(PATIENCE):
            return await self._told


@pytest.fixture
async def spawner(no_leaks: None) -> AsyncIterator[Spawner]:
    spawner = Spawner(orphan_grace=0.2)
    yield spawner
    await spawner.stop(within=PATIENCE)


def launch(*argv: str, size: tuple[int, int] | None = None, wants_stdin: bool = False) -> Launch:
    words = [os.fsencode(word) for word in argv]
    env = {b"PATH": b"/usr/local/bin:/usr/bin:/bin"}
    return Launch(words[0], words, env, b"/", size, wants_stdin)


async def start(spawner: Spawner, *argv: str, **options) -> tuple[Spawned, Exit]:
    told = Exit()
    async with asyncio.timeout(PATIENCE):
        return await spawner.spawn(launch(*argv, **options), told), told


def close(spawned: Spawned) -> None:
    for fd in spawned.fds:
        os.close(fd)


async def line_from(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    os.set_blocking(fd, False)
    found: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        if not found.done():
            found.set_result(os.read(fd, 4096))

    loop.add_reader(fd, read)
    try:
        async with asyncio.timeout(PATIENCE):
            return await found
    finally:
        loop.remove_reader(fd)


def keeper_of(spawner: Spawner) -> int:
    assert spawner.keeper_pid is not None
    return spawner.keeper_pid


def wait_until_is_told(spawner: Spawner) -> None:
    """Block until a message of the keeper has arrived, which stays unread."""
    assert spawner._link is not None
    assert select.select([spawner._link], [], [], PATIENCE)[0]


@contextlib.contextmanager
def room_for(count: int) -> Iterator[None]:
    """Let this process open *count* more descriptors than it has now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = leaks.open_descriptors()
    # The limit is about the number of a descriptor, so holes below it are filled first.
    fillers = [os.open("/dev/null", os.O_RDONLY) for _ in range(max(used) + 1 - len(used))]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(used) + 1 + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fillers:
            os.close(fd)


async def test_a_program_comes_with_its_descriptors_and_its_exit_is_told(spawner):
    spawned, told = await start(spawner, "cat", wants_stdin=True)
    assert len(spawned.fds) == 3
    os.write(spawned.fds[2], b"hello")
    assert await line_from(spawned.fds[0]) == b"hello"
    spawner.signal_group(spawned.pid, signal.SIGTERM)
    assert await told.status() == signal.SIGTERM
    close(spawned)


@requirement("spawn:descriptors-stay-here")
@pytest.mark.parametrize("size", [None, (24, 80)], ids=["pipes", "tty"])
async def test_no_other_program_inherits_the_descriptors(spawner, size):
    spawned, told = await start(spawner, "true", size=size, wants_stdin=True)
    assert len(set(spawned.fds)) == (2 if size else 3)
    assert all(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC for fd in spawned.fds)
    assert await told.status() == 0
    close(spawned)


@requirement("spawn:refusals")
async def test_a_refusal_is_told_in_the_systems_words(spawner):
    with pytest.raises(InternalError, match=r"^No such file or directory \(os error 2\)$"):
        await start(spawner, "no-such-program")
    with pytest.raises(InternalError, match=r"^Argument list too long \(os error 7\)$"):
        await start(spawner, "true", "x" * (20 << 20))
    spawned, told = await start(spawner, "true")
    assert await told.status() == 0
    close(spawned)


@requirement("spawn:many")
async def test_two_hundred_programs_start_at_once(spawner):
    started = await asyncio.gather(*(start(spawner, "cat", wants_stdin=True) for _ in range(200)))
    assert len({spawned.pid for spawned, _ in started}) == 200
    for spawned, _ in started:
        close(spawned)
    assert {await told.status() for _, told in started} == {0}


async def test_a_start_that_was_given_up_is_undone(spawner):
    told = Exit()
    future = spawner.spawn(launch("sleep", "60", size=(24, 80)), told)
    future.cancel()
    # Its terminal hangs up, too. Its descriptors are checked by `no_leaks`.
    assert await told.status() in (signal.SIGKILL, signal.SIGHUP)


async def test_only_programs_that_live_are_signalled(spawner):
    spawned, told = await start(spawner, "true")
    assert await told.status() == 0
    spawner.signal_group(spawned.pid, signal.SIGKILL)
    spawner.signal_group(os.getpid(), signal.SIGKILL)
    close(spawned)


# Without room for descriptors.


@requirement("spawn:no-room")
async def test_a_program_whose_descriptors_do_not_fit_is_ended(spawner, tmp_path):
    warm, told = await start(spawner, "true")
    assert await told.status() == 0
    close(warm)
    with Tether(tmp_path) as tether:
        refused = rf"^{os.strerror(24)} \(os error 24\)$"
        with room_for(2), pytest.raises(InternalError, match=refused):
            await start(spawner, *child("stubborn_tree.py", tether.path), wants_stdin=True)
        # The start after it gets its own descriptors, not those of the one before.
        spawned, told = await start(spawner, "sh", "-c", "echo mine")
        assert await line_from(spawned.fds[0]) == b"mine\n"
        assert await told.status() == 0
        close(spawned)
        await spawner.stop(within=PATIENCE)
        assert not tether.is_held


@requirement("spawn:no-room")
async def test_a_keeper_that_cannot_start_is_a_refusal(spawner):
    with room_for(1), pytest.raises(InternalError, match=r"\(os error 24\)$"):
        await start(spawner, "true")
    spawned, told = await start(spawner, "true")
    assert await told.status() == 0
    close(spawned)


# The keeper's end.


@requirement("keeper:killed", "keeper:replaced")
async def test_a_keeper_that_is_killed_takes_its_programs_along_and_is_replaced(
    spawner, tmp_path, caplog
):
    with Tether(tmp_path) as tether:
        spawned, told = await start(spawner, *child("stubborn_tree.py", tether.path))
        pids = [int(pid) for pid in (await line_from(spawned.fds[0])).split()[:5]]
        first = keeper_of(spawner)
        # Only the keeper can find a process that left both its parent and its session.
        table = processes()
        (escaped,) = [pid for pid in pids if table[pid][0] == first and table[pid][1] != pids[0]]
        # This start is under way when the keeper dies.
        os.kill(first, signal.SIGSTOP)
        pending = spawner.spawn(launch("true"), Exit())
        os.kill(first, signal.SIGKILL)
        assert await told.status() is None
        with pytest.raises(InternalError, match="the process keeper died"):
            await pending
        close(spawned)
        assert spawner.keeper_pid is None
        assert "process keeper died" in caplog.text
        os.kill(escaped, signal.SIGKILL)
        assert await tether.released() == b""
    spawned, told = await start(spawner, "true")
    assert await told.status() == 0
    assert keeper_of(spawner) != first
    close(spawned)


@requirement("keeper:killed")
async def test_the_last_exits_are_told_before_the_loss_of_the_keeper(spawner):
    first, told = await start(spawner, "cat", wants_stdin=True)
    other, lost = await start(spawner, "cat", wants_stdin=True)
    pid = keeper_of(spawner)
    # From here on to the keeper's death, the event loop does not run. The keeper tells of an exit,
    # and leaves a request of ours unread.
    os.close(first.fds.pop())
    wait_until_is_told(spawner)
    os.kill(pid, signal.SIGSTOP)
    pending = spawner.spawn(launch("true"), Exit())
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert await told.status() == 0
    assert await lost.status() is None
    with pytest.raises(InternalError, match="the process keeper died"):
        await pending
    close(first)
    close(other)


async def test_stopping_ends_everything_and_can_be_repeated(spawner, tmp_path):
    await spawner.stop(within=PATIENCE)
    with Tether(tmp_path) as tether:
        spawned, _ = await start(spawner, *child("stubborn_tree.py", tether.path))
        await line_from(spawned.fds[0])
        pending = [spawner.spawn(launch("sleep", "60"), Exit()) for _ in range(20)]
        await spawner.stop(within=PATIENCE)
        assert not tether.is_held
    await spawner.stop(within=PATIENCE)
    assert not any(future.done() and not future.cancelled() for future in pending)
    close(spawned)


async def test_stopping_goes_on_when_the_keeper_was_just_killed(spawner):
    spawned, _ = await start(spawner, "sleep", "60")
    os.kill(keeper_of(spawner), signal.SIGKILL)
    await spawner.stop(within=PATIENCE)
    close(spawned)
    os.kill(spawned.pid, signal.SIGKILL)


@requirement("keeper:stop-is-bounded")
async def test_stopping_does_not_wait_for_ever_and_the_keeper_goes_on(spawner, caplog, tmp_path):
    with Tether(tmp_path) as tether:
        spawned, _ = await start(spawner, *child("stubborn_tree.py", tether.path))
        await line_from(spawned.fds[0])
        watched = Watched(keeper_of(spawner))
        os.kill(watched.pid, signal.SIGSTOP)
        with caplog.at_level(logging.ERROR, spawn.__name__):
            await spawner.stop(within=0.1)
        assert "do not end" in caplog.text
        close(spawned)
        os.kill(watched.pid, signal.SIGCONT)
        assert await tether.released() == b""
        await watched.ended()
        os.waitpid(watched.pid, 0)


# From the command line.


@requirement(
    "spawn:odd-server", "spawn:descriptor-limit", "spawn:clean-start", "keeper:unknown-exit"
)
@pytest.mark.one_loop
@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
async def test_children_of_a_server_that_was_started_oddly_start_clean(tty):
    with start_server(command=child("runs_oddly.py", *OURS)) as server:
        async with Wire(server.url) as wire:
            await wire.initialize()

            async def describe(process_id: str) -> Description:
                ran = await wire.run(process_id, child("describes_itself.sh"), tty=tty)
                return Description(ran.stream("pty" if tty else "stdout"))

            first = await describe("first")
            # A later keeper gives its children the limit of the first start, too.
            await wire.start("sleep", ["sleep", "60"], tty=tty)
            os.kill(first.parent, signal.SIGKILL)
            lost = await wire.events_until_closed("sleep")
            # The reason comes first, as output.
            assert [event["params"].get("exitCode") for event in lost] == [None, -1, None]
            assert b"the process keeper died" in decoded(lost[0]["params"])
            second = await describe("second")
    assert first.parent != second.parent
    for facts in (first, second):
        assert facts.pid == facts.group == facts.session
        assert facts.foreground_group == (facts.pid if tty else None)
        assert (facts.ignored, facts.blocked) == (set(), set())
        assert facts.descriptors == [0, 1, 2]
        assert facts.max_descriptors == 777
