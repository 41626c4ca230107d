"""The ways in which a process ends, with real processes: on pipes, terminals and in sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from exec_server import read_only, workspace_write
from exec_server.client.client import ExecServerClient
from exec_server.client.process.output_buffer import Exited
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.client.session_token import SessionToken
from exec_server.client_urls import connect
from exec_server.errors import ProcessLost, RpcError
from exec_server.process import kernel_log, signal_senders
from exec_server.process.keeping.process_trees import below, processes
from exec_server.protocol.ends import EndedBy
from exec_server.sandbox.backends import HERE
from tests.requirements import requirement
from tests.sandbox.test_processes import read_only as confined
from tests.support.backends import needs_bubblewrap, needs_landlock, without
from tests.support.durable import is_running, until
from tests.support.servers import start_server
from tests.support.wire import PATIENCE, Wire

pytestmark = pytest.mark.one_loop

ABORT = [sys.executable, "-c", "import os; os.abort()"]
SEGFAULT = [sys.executable, "-c", "import ctypes; ctypes.string_at(0)"]
IS_FIRST_NAMESPACE = os.stat("/proc/self/ns/pid").st_ino == 0xEFFFFFFC
KNOWS_SENDERS = IS_FIRST_NAMESPACE and signal_senders.opened() is not None
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")


def can_read_kernel_log() -> bool:
    def dup_nothing(fd: int) -> int:
        os.lseek(fd, 0, os.SEEK_END)
        return -1

    return kernel_log.opened(dup_nothing) is not None and IS_FIRST_NAMESPACE


def session_of(client: ExecServerClient) -> str:
    return SessionToken.parse(client.session_token()).session_id


@pytest.fixture
async def client(server) -> AsyncIterator[ExecServerClient]:
    async with connect(server.url) as connected:
        yield connected


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


def end_of(process: RemoteProcess) -> Any:
    """The report of a process that has ended, or of one that should have one."""
    assert process.end is not None
    return process.end


def known(by: EndedBy | None) -> str | None:
    """The kind of who ended a process, if this machine tells."""
    return None if by is None else by.kind


async def ended(client: ExecServerClient, argv: list[str], **options: Any) -> Any:
    done = await client.run(argv, **options)
    assert done.end is not None
    return done.end


# By themselves.


@requirement("ends:fourteen", "ends:terminal", "ends:client")
@pytest.mark.parametrize("tty", [False, True])
async def test_a_program_that_ends_by_itself(client, tty):
    for code in (0, 1, 124, 137, 139):
        assert (await ended(client, sh(f"exit {code}"), tty=tty)).cause == "exited"
    for argv, name, sender in (
        (ABORT, "SIGABRT", "self"),
        (SEGFAULT, "SIGSEGV", "kernel"),
        (sh("kill -9 $$"), "SIGKILL", "self"),
    ):
        end = await ended(client, argv, tty=tty)
        assert (end.cause, end.signal) == ("signal", name)
        assert known(end.by) == (sender if KNOWS_SENDERS else None)


# By clients.


@requirement("ends:fourteen", "ends:by-client")
@pytest.mark.parametrize("tty", [False, True])
async def test_a_client_that_ends_a_process_is_named(client, server, tty):
    process = await client.start(["sleep", "100"], tty=tty)
    await process.terminate()
    await process.wait()
    session_id = end_of(process).by.session_id
    by = EndedBy("client", principal=f"uid:{os.geteuid()}", session_id=session_id)
    assert (end_of(process).cause, end_of(process).signal, end_of(process).by) == (
        "terminated",
        "SIGKILL",
        by,
    )
    assert session_id == session_of(client)
    process = await client.start(["sleep", "100"], tty=tty)
    await process.send_signal("TERM")
    await process.wait()
    assert (end_of(process).cause, end_of(process).signal, end_of(process).by) == (
        "signal",
        "SIGTERM",
        by,
    )
    # A program that catches the signal and returns has exited.
    process = await client.start(sh("trap 'exit 143' TERM; echo up; sleep 100 & wait"), tty=tty)
    await process.read_until(b"up")
    await process.send_signal("TERM")
    assert await process.wait() == 143
    assert (end_of(process).cause, end_of(process).by) == ("exited", None)


@requirement("ends:fourteen", "ends:by-client")
async def test_another_client_of_the_session_is_named(server):
    async with connect(server.url) as first:
        process = await first.start(["sleep", "100"])
        token, session_id = first.session_token(), session_of(first)
    async with connect(server.url, session_token=token) as second:
        again = await second.attach(process.process_id)
        await again.terminate()
        await again.wait()
        assert (end_of(again).cause, end_of(again).by.kind) == ("terminated", "client")
        assert end_of(again).by.session_id == session_id


# By strangers.


@requirement("ends:fourteen", "ends:by-stranger")
async def test_a_stranger_is_named_where_the_kernel_tells(client):
    process = await client.start(["sleep", "100"])
    # This process still runs when the other one is reaped.
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    assert (end_of(process).cause, end_of(process).signal) == ("signal", "SIGKILL")
    if KNOWS_SENDERS:
        exe = os.readlink("/proc/self/exe")
        assert end_of(process).by == EndedBy("process", pid=os.getpid(), exe=exe)
    else:
        assert end_of(process).by is None and "not known" in end_of(process).evidence
    # One that has ended meanwhile has only a number.
    process = await client.start(["sleep", "100"])
    subprocess.run(["kill", "-TERM", str(process.pid)], check=True)
    await process.wait()
    assert (end_of(process).cause, end_of(process).signal) == ("signal", "SIGTERM")
    assert known(end_of(process).by) == ("process" if KNOWS_SENDERS else None)


@requirement("ends:fourteen", "ends:by-stranger")
@pytest.mark.skipif(not KNOWS_SENDERS, reason="the kernel does not tell who sends signals")
async def test_a_process_of_its_own_is_itself(client):
    script = "exec 3>&1; sh -c 'kill -9 $PPID; sleep 100' & wait"
    process = await client.start(sh(script))
    await process.wait()
    assert (end_of(process).cause, end_of(process).by.kind) == ("signal", "self")
    await process.terminate()


CHANGES_ITS_MARK = """
import os, resource, time
first = os.getpid()
if os.fork() == 0:
    resource.setrlimit(resource.RLIMIT_RTTIME, (5, 5))
    os.kill(first, 9)
    os._exit(0)
time.sleep(100)
"""


@requirement("ends:by-stranger", "ends:never-a-wrong-cause")
@pytest.mark.skipif(not KNOWS_SENDERS, reason="the kernel does not tell who sends signals")
@pytest.mark.parametrize(
    "argv",
    [
        sh("sh -c 'kill -9 $PPID'; true"),
        sh('first=$$; setsid sh -c "kill -9 $first" & sleep 100'),
        sh('first=$$; (setsid sh -c "kill -9 $first" &); sleep 100'),
        [sys.executable, "-I", "-S", "-c", CHANGES_ITS_MARK],
    ],
    ids=["child", "session", "orphan", "mark"],
)
async def test_a_descendant_that_has_ended_is_no_stranger(client, argv):
    process = await client.start(argv)
    await process.wait()
    end = end_of(process)
    assert (end.cause, end.signal) == ("signal", "SIGKILL")
    # A machine with very many forks may have forgotten this one.
    assert known(end.by) in ("self", None)
    await process.terminate()


@requirement("ends:never-a-wrong-cause")
@pytest.mark.skipif(sys.platform != "linux", reason="limits are held on Linux")
async def test_a_program_cannot_pretend_that_a_limit_ended_it(client, tmp_path):
    for limits, name in (({"disk": "10M"}, "XFSZ"), ({"cpuSeconds": 60}, "XCPU")):
        done = await client.run(sh(f"kill -{name} $$"), limits=limits)
        assert done.end.cause in ("signal", "unknown") and done.end.limit is None
        if KNOWS_SENDERS:
            assert (done.end.cause, known(done.end.by)) == ("signal", "self")
    argv = sh(f"exec head -c 20000000 /dev/zero > {tmp_path}/large")
    done = await client.run(argv, limits={"disk": "10M"})
    if KNOWS_SENDERS:
        assert (done.end.cause, done.end.limit) == ("limit", "disk")
    else:
        assert (done.end.cause, done.end.limit) in (("limit", "disk"), ("unknown", None))


# Memory.


@pytest.fixture
def small_group(tmp_path: Path) -> Iterator[Path]:
    """A group around a command that may have 64 MiB."""
    group = MEMORY_GROUPS / f"exec-server-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError as exc:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no cgroup v1 for memory can be made here: {exc}")
    yield group
    group.rmdir()


@requirement("ends:fourteen", "ends:memory")
async def test_memory_that_is_exhausted_around_a_command(client, small_group):
    needs_much = f"{sys.executable} -c 'bytearray(256 << 20)'"
    end = await ended(client, sh(f"echo $$ > {small_group}/cgroup.procs; exec {needs_much}"))
    assert end.signal == "SIGKILL"
    if can_read_kernel_log():
        assert (end.cause, known(end.by)) == ("outerMemory", "kernel")
    else:
        assert (end.cause, known(end.by)) == ("signal", "kernel" if KNOWS_SENDERS else None)


# The keeper.


@requirement("ends:fourteen", "ends:lost")
async def test_a_process_whose_keeper_was_killed_is_lost(server):
    async with connect(server.url) as client:
        process = await client.start(["sleep", "100"])
        stat = Path(f"/proc/{process.pid}/stat").read_bytes()
        keeper = int(stat[stat.rindex(b")") + 2 :].split()[1])
        os.kill(keeper, signal.SIGKILL)
        with pytest.raises(ProcessLost):
            await process.wait()
        assert end_of(process).cause == "lost" and "keeper died" in end_of(process).evidence
        assert process.usage is None


@requirement("sandbox/process:ends-with-keeper")
@needs_bubblewrap
async def test_a_sandbox_does_not_outlive_server_and_keeper():
    """Its mounts are not watched any more, and its placeholders are free to be removed."""
    with start_server("--listen", "ws://127.0.0.1:0") as running:
        async with Wire(running.url) as wire:
            await wire.initialize()
            here = (await wire.run("keeper", sh("echo $PPID"))).stdout
            script = "sleep 100 & echo ready; sleep 100"
            await wire.start("a", sh(script), sandbox=confined(), report=True)
            await wire.output_until("a", b"ready\n")
            members = below({int(here)}, processes())
            assert len(members) >= 4
            # A server that is stopped does not notice that the keeper is gone.
            running.signal(signal.SIGSTOP)
            os.kill(int(here), signal.SIGKILL)
            running.signal(signal.SIGKILL)
            await until(lambda: not any(map(is_running, members)), "the sandbox runs on")


# In a sandbox.


async def decided(client: ExecServerClient, argv: list[str], **sandboxed: Any) -> Any:
    """The end of a command, once it is known: one that ends at once may not be seen in time."""
    for _ in range(50):
        end = await ended(client, argv, **sandboxed)
        if end.cause != "unknown":
            return end
    raise AssertionError(f"it is never known: {end.evidence}")


async def check_sandboxed(client: ExecServerClient, **sandboxed: Any) -> None:
    for code in (0, 124, 139):
        assert (await decided(client, sh(f"exit {code}"), **sandboxed)).cause == "exited"
    end = await decided(client, SEGFAULT, **sandboxed)
    assert (end.cause, end.signal) == ("signal", "SIGSEGV")
    process = await client.start(["sleep", "100"], **sandboxed)
    await process.terminate()
    await process.wait()
    end = end_of(process)
    assert (end.cause, end.signal, end.by.kind) == ("terminated", "SIGKILL", "client")
    for _ in range(50):
        process = await client.start(sh("echo up; exec sleep 100"), **sandboxed)
        await process.read_until(b"up")
        await process.send_signal("TERM")
        await process.wait()
        if (end := end_of(process)).cause != "unknown":
            break
    assert (end.cause, end.signal, end.by.kind) == ("signal", "SIGTERM", "client")


def kernel_release() -> tuple[int, ...]:
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


@requirement("ends:sandbox")
@needs_bubblewrap
@pytest.mark.skipif(kernel_release() < (6, 15), reason="this kernel tells no exit status by pidfd")
async def test_signals_in_bubblewrap_are_told_from_codes(client):
    await check_sandboxed(client, sandbox=read_only())


@requirement("ends:sandbox")
@needs_bubblewrap
async def test_in_bubblewrap_a_cause_is_right_or_unknown(client):
    for argv, cause in ((sh("exit 139"), "exited"), (SEGFAULT, "signal")):
        end = await ended(client, argv, sandbox=read_only())
        assert end.cause in (cause, "unknown") and end.evidence


@requirement("ends:sandbox")
@needs_landlock
async def test_signals_on_landlock_are_told_from_codes(client):
    context = {**read_only().wire, "useLegacyLandlock": True}
    done = await client.run(["true"], sandbox=context)
    assert done.sandbox_rung == "landlock"
    await check_sandboxed(client, sandbox=context)


@requirement("ends:fourteen", "ends:sandbox")
async def test_a_command_that_the_sandbox_does_not_run_has_its_reason(client, monkeypatch):
    without(monkeypatch, "bubblewrap", "landlock")
    end = await ended(client, ["true"], sandbox=read_only())
    assert (end.cause, end.by) == ("sandbox", EndedBy("server"))
    assert "did not run" in end.evidence and "no bubblewrap here" in end.evidence


# Starts that fail.


@requirement("ends:failed-starts")
@pytest.mark.parametrize("place", ["pipes", "terminal", "bubblewrap", "landlock"])
async def test_what_a_start_has_failed_at_is_named(client, tmp_path, place):
    report = {"bubblewrap": HERE.bubblewrap_report, "landlock": HERE.landlock_report}.get(place)
    if report is not None and not report.works:
        pytest.skip(f"{report.obstacle}")
    options: dict[str, Any] = {"tty": place == "terminal"}
    if report is not None:
        options["sandbox"] = {**read_only().wire, "useLegacyLandlock": place == "landlock"}
    file = tmp_path / "file"
    file.touch(0o644)
    for argv, cwd, kind, path in (
        (["/no/such/program"], "/", FileNotFoundError, "/no/such/program"),
        (["no-such-program"], "/", FileNotFoundError, "no-such-program"),
        ([str(file)], "/", PermissionError, str(file)),
        (["true"], "/no/such/folder", FileNotFoundError, "/no/such/folder"),
        (["true"], str(file), NotADirectoryError, str(file)),
    ):
        with pytest.raises(kind) as failure:
            await client.start(argv, cwd=cwd, **options)
        assert isinstance(failure.value, RpcError) and failure.value.filename == path
        assert path in str(failure.value)
        # The error says whether it is the program or its directory.
        assert ("cwd" in str(failure.value)) == (cwd != "/")


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while time.process_time() < 0.5:
            pass
        file = os.open("data", os.O_CREAT | os.O_WRONLY)
        for _ in range(8):
            os.write(file, bytes(1 << 20))
        os.fsync(file)
        print(os.getpid(), flush=True)
    os._exit(0)
os.wait()
"""


def runs_daemon(python: str) -> list[str]:
    """It ends when the first process of the sandbox has waited for the daemon."""
    wait = "while kill -0 $daemon 2>/dev/null; do sleep 0.01; done"
    return sh(f"daemon=$({python} -I -S daemon.py); {wait}; echo done")


@requirement("ends:usage-of-a-tree")
@needs_bubblewrap
async def test_usage_in_bubblewrap_has_its_daemons(client):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder, "daemon.py").write_text(DAEMON)
        done = await client.run(
            runs_daemon(sys.executable), cwd=folder, sandbox=workspace_write([folder])
        )
        assert (done.stdout, done.sandbox_rung) == (b"done\n", "bubblewrap")
        is_on_disk = Path(folder, "data").stat().st_blocks > 0
    # A file system in memory writes nothing to a disk, and another one also its own records.
    assert is_on_disk and (
        done.usage.written == 0 or 8 << 20 <= done.usage.written < (8 << 20) + (1 << 17)
    )
    # Python itself needs some time as well, and its own share is not the daemon's.
    assert 0.5 <= done.usage.cpu < 2.0
    assert 1 << 20 < done.usage.peak_memory < 200 << 20


# What it used.


@requirement("ends:usage")
async def test_usage_has_time_memory_and_bytes(client):
    code = "import time\nx = bytearray(100 << 20)\nwhile time.process_time() < 0.3: pass"
    done = await client.run([sys.executable, "-S", "-c", code])
    assert 0.3 <= done.usage.cpu <= done.usage.wall * os.cpu_count() + 0.1
    assert 100 << 20 < done.usage.peak_memory < 200 << 20
    assert done.usage.source == "rusage" and done.usage.processes is None
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        script = "dd if=/dev/zero of=data bs=1M count=4 conv=fsync"
        done = await client.run(sh(f"{script} 2>/dev/null"), cwd=folder)
    # Other file systems than ext4 may write more, or nothing.
    assert done.usage.written in (0, 4 << 20) or done.usage.written > 4 << 20


@requirement("ends:usage")
async def test_the_memory_of_a_small_program_is_at_most_that_of_the_keeper(client):
    # Until a program is executed, the kernel counts the memory of the process that starts it.
    small = await client.run(["true"])
    assert 0 < small.usage.peak_memory < 64 << 20 and small.usage.peak_memory_at_most
    code = "x = bytearray(100 << 20)"
    large = await client.run([sys.executable, "-S", "-c", code])
    assert large.usage.peak_memory > 100 << 20 and not large.usage.peak_memory_at_most


@needs_bubblewrap
@requirement("ends:usage")
async def test_the_memory_of_a_small_program_in_bubblewrap_is_its_own(client):
    for denials in (False, True):
        async with await client.start(["true"], sandbox=read_only(), denials=denials) as process:
            await process.wait()
        assert process.usage.peak_memory < 6 << 20 and not process.usage.peak_memory_at_most


# On the wire.


@requirement("ends:wire")
async def test_only_a_client_that_asks_gets_a_report(wire):
    await wire.start("stock", sh("exit 3"))
    event = await wire.event("stock", "process/exited")
    assert not {"end", "usage"} & event.keys()
    await wire.start("ours", sh("exit 3"), report=True)
    event = await wire.event("ours", "process/exited")
    assert event["end"] == {"cause": "exited", "evidence": "the program returned 3"}
    names = {"wall", "cpu", "peakMemory", "peakMemoryAtMost", "read", "written", "from"}
    assert event["usage"].keys() == names
    read = await wire.call("process/read", {"processId": "ours"})
    listed = {
        each["processId"]: each for each in (await wire.call("process/list", {}))["processes"]
    }
    for told in (read, listed["ours"]):
        assert (told["end"], told["usage"]) == (event["end"], event["usage"])
    read = await wire.call("process/read", {"processId": "stock"})
    assert not {"end", "usage"} & (read.keys() | listed["stock"].keys())


@requirement("ends:client")
async def test_events_and_recovered_handles_have_the_report(server):
    async with connect(server.url) as client:
        process = await client.start(sh("exit 4"))
        async with asyncio.timeout(PATIENCE):
            (exited,) = [each async for each in process.events() if isinstance(each, Exited)]
        assert exited.end == end_of(process) and exited.usage == process.usage
        process = await client.start(sh("read x; exit 5"), stdin=True)
        token = client.session_token()
    async with connect(server.url, session_token=token) as client:
        again = await client.attach(process.process_id)
        await again.write(b"\n")
        assert await again.wait() == 5
        late = await client.attach(process.process_id, 0)
        assert (end_of(late), late.usage) == (end_of(again), again.usage)
        assert end_of(late).cause == "exited" and late.usage is not None
