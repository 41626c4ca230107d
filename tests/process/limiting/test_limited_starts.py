"""Starts with limits: what is answered, what is refused, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exec_server.cli.process.limit_options import tell_limits
from exec_server.client_urls import connect
from exec_server.errors import InternalError, InvalidRequest, MethodNotFound, ProcessLost
from exec_server.limits import Limits
from exec_server.protocol.resources import GrantedLimit, ResourceLimits
from exec_server.protocol.sandbox import workspace_write
from exec_server.server.serving import RunningServer, serve
from tests.requirements import requirement
from tests.sandbox.test_processes import on_both_backends
from tests.sandbox.test_processes import read_only as confined
from tests.support.backends import needs_bubblewrap
from tests.support.durable import is_running, state_servers, until
from tests.support.fake_server import fake_server
from tests.support.leaks import eventually
from tests.support.local import connected
from tests.support.servers import start_server
from tests.support.wire import Wire

pytestmark = pytest.mark.one_loop

PATIENCE = 50.0
PYTHON = sys.executable
GROW = "kept = []\nfor _ in range(300): kept.append(b'x' * (1 << 20))\nimport time; time.sleep(60)"
MEMORY = {"memory": 64 << 20}
PLENTY = {"memory": 1 << 30, "pids": 100, "cpuRate": 1, "cpuSeconds": 50, "wall": 50}


@pytest.fixture
async def here(server):
    async with connect(server.url) as client:
        yield client


def facts_of(server, process_id: str) -> dict:
    """What the keeper knew of the end of a process of the server in this process."""
    (session,) = server.core.sessions
    return session.processes._entries[process_id].facts or {}


@requirement("limits:granted")
async def test_the_answer_says_how_each_limit_is_held(server):
    async with connected(server.url) as wire:
        asked = {**PLENTY, "outputBytes": 10, "disk": 1 << 20, "openFiles": 32}
        answer = await wire.start("a", ["true"], limits=asked)
        await wire.event("a", "process/closed")
    assert answer["limits"].keys() == asked.keys()
    for name, granted in answer["limits"].items():
        assert granted.keys() == {"value", "mechanism", "scope", "grain"}
        assert granted["value"] == asked[name]
    assert answer["limits"]["openFiles"]["mechanism"] == "rlimit"
    assert answer["limits"]["openFiles"]["scope"] == "process"
    assert answer["limits"]["wall"]["mechanism"] == "watched"


@requirement("limits:granted")
async def test_a_client_that_asks_for_nothing_is_told_nothing(server):
    async with connected(server.url) as wire:
        assert "limits" not in await wire.start("a", ["true"])
        await wire.event("a", "process/closed")


@requirement("limits:granted")
async def test_a_limited_program_starts_like_any_other(here, tmp_path):
    script = (
        "import os, signal\n"
        "print(os.getsid(0) == os.getpid(), os.listdir('/proc/self/fd'), os.environ['A'])\n"
        "print(os.getcwd(), [signal.getsignal(each) for each in signal.valid_signals()])"
    )
    plain = await here.run([PYTHON, "-c", script], env={"A": "b"}, cwd=str(tmp_path))
    limited = await here.run(
        [PYTHON, "-c", script], env={"A": "b"}, cwd=str(tmp_path), limits=PLENTY
    )
    assert limited.stdout == plain.stdout
    assert (limited.returncode, limited.stderr) == (0, b"")
    done = await here.run(["cat"], input=b"typed", limits=PLENTY)
    assert (done.returncode, done.stdout) == (0, b"typed")


@requirement("limits:granted")
async def test_a_limited_program_is_given_the_variables_that_only_the_slow_start_takes(server):
    """Our client refuses such names; other clients send them."""
    async with connected(server.url) as wire:
        for number, env in enumerate(({"A=B": "c"}, {"A=B": "c", "": "d"})):
            plain = await wire.run(f"plain-{number}", ["/usr/bin/env"], env=env)
            limited = await wire.run(f"limited-{number}", ["/usr/bin/env"], env=env, limits=PLENTY)
            assert (limited.exit_code, limited.stdout) == (0, plain.stdout)
            assert b"A=B=c\n" in plain.stdout


@requirement("limits:granted")
async def test_each_process_has_its_own_limits_and_no_other_start_has_them(here):
    """The keeper has them for a moment, while it starts the program."""
    # The hard limits are lowered before the start is answered, so before the input arrives.
    script = "ulimit -n; read line; ulimit -Hn; ulimit -Hf; ulimit -Ht; sh -c 'ulimit -Hn'"
    argv = ["sh", "-c", script]
    plain = await here.run(argv, input=b"go\n")
    limits = {"openFiles": 40, "disk": 1 << 20, "cpuSeconds": 50}
    done = await here.run(argv, input=b"go\n", limits=limits)
    assert done.stdout == b"40\n40\n2048\n51\n40\n"
    assert (await here.run(argv, input=b"go\n")).stdout == plain.stdout
    for files in (1, 3):
        # A program that is linked dynamically opens a file before it runs.
        done = await here.run(["true"], limits={"openFiles": files})
        assert done.returncode != 0
    assert (await here.run(argv, input=b"go\n")).stdout == plain.stdout


@requirement("limits:granted")
async def test_what_one_command_had_is_not_told_of_the_next(here):
    """They may be in the same control group, one after the other."""
    limits = {"memory": 256 << 20, "cpuSeconds": 50}
    grown = "x = b'x' * (64 << 20); [hash(str(each)) for each in range(300_000)]"
    for _ in range(2):
        large = await here.run([PYTHON, "-c", grown], limits=limits)
        for _ in range(3):
            small = await here.run(["true"], limits=limits)
            assert small.usage.peak_memory < 16 << 20 < 64 << 20 <= large.usage.peak_memory
            assert small.usage.cpu < large.usage.cpu


@requirement("limits:granted")
async def test_a_limited_program_that_cannot_start_says_why(here, tmp_path):
    for argv in (["/does/not/exist"], ["nonexisting"], [str(tmp_path)]):
        with pytest.raises(InternalError) as plain:
            await here.run(argv)
        with pytest.raises(InternalError) as limited:
            await here.run(argv, limits=PLENTY)
        assert str(limited.value) == str(plain.value)


@requirement("limits:sandbox", "limits:attackers")
async def test_a_terminal_is_limited(here, server):
    process = await here.start(["sh", "-c", "tty; exec sleep 60"], tty=True, limits={"wall": 0.3})
    async with process, asyncio.timeout(PATIENCE):
        assert (await process.stdout.readline()).startswith(b"/dev/pts/")
        assert await process.wait() == 128 + signal.SIGKILL
        assert facts_of(server, process.process_id)["limit"] == "wall"


@requirement("limits:sandbox", "limits:attackers", "limits:whole-tree")
@on_both_backends
async def test_both_backends_are_limited(server, backend):
    # Server, keeper and bubblewrap's monitor are not in the group.
    async with connected(server.url) as wire:
        argv = [PYTHON, "-c", GROW]
        answer = await wire.start("a", argv, sandbox=confined(backend), limits=MEMORY)
        assert answer["sandboxRung"] == backend
        await wire.event("a", "process/exited")
        facts = facts_of(server, "a")
        assert facts["limit"] == "memory"
        if answer["limits"]["memory"]["mechanism"].startswith("cgroup"):
            assert facts["oom_kill"] >= 1 and "oom_outer" not in facts
            assert facts["peak_memory"] <= MEMORY["memory"]
        script = "import os; made = [os.open('/dev/null', 0) for _ in range(100)]"
        await wire.start(
            "b", [PYTHON, "-c", script], sandbox=confined(backend), limits={"openFiles": 20}
        )
        await wire.output_until("b", b"Too many open files")


LIFTS = """
import os
import re
tried = 0
for line in open("/proc/self/mounts"):
    _, place, kind, *_ = line.split()
    if kind in ("cgroup", "cgroup2"):
        for folder, folders, names in os.walk(place):
            for name in set(names) & {"tasks", "cgroup.procs", "memory.max"}:
                tried += 1
                try:
                    os.close(os.open(f"{folder}/{name}", os.O_WRONLY))
                    print("writable:", folder, name)
                except OSError:
                    pass
            del folders[20:]
print("tried" if tried else "nothing there")
"""


@requirement("limits:sandbox")
@needs_bubblewrap
async def test_a_sandbox_that_may_write_everywhere_cannot_lift_its_limits(here):
    limits = {"memory": 1 << 30}
    process = await here.start([PYTHON, "-c", LIFTS], sandbox=workspace_write(["/"]), limits=limits)
    async with process, asyncio.timeout(PATIENCE):
        if not process.limits["memory"].mechanism.startswith("cgroup"):
            pytest.skip("no control group can be made here")
        assert process.sandbox_rung == "bubblewrap"
        assert await process.stdout.read() == b"tried\n"


@requirement("limits:attackers")
async def test_the_exit_knows_the_memory_of_a_grandchild(here, server):
    """The shell itself exits as it likes; what it has started was killed."""
    script = f'"{PYTHON}" -c "{GROW}"; exit 9'
    process = await here.start(["sh", "-c", script], limits=MEMORY)
    async with process, asyncio.timeout(PATIENCE):
        await process.wait()
        assert facts_of(server, process.process_id)["limit"] == "memory"


@requirement("limits:attackers")
async def test_a_command_within_its_limits_is_left_alone(here, server):
    process = await here.start(["sh", "-c", "exit 9"], limits=PLENTY)
    async with process, asyncio.timeout(PATIENCE):
        assert await process.wait() == 9
        assert "limit" not in facts_of(server, process.process_id)


@requirement("limits:output")
async def test_no_more_output_is_passed_on_than_the_limit(here, server):
    for size in (1, 1000, 70_000):
        process = await here.start(["sh", "-c", "yes; echo"], limits={"outputBytes": size})
        async with process, asyncio.timeout(PATIENCE):
            assert len(await process.stdout.read()) == size
            assert await process.wait() == 128 + signal.SIGKILL
            assert facts_of(server, process.process_id)["limit"] == "outputBytes"
    done = await here.run(["sh", "-c", "printf 12345; printf 678 >&2"], limits={"outputBytes": 8})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"12345", b"678")


@requirement("limits:require")
async def test_what_cannot_be_held_is_refused_before_anything_runs(here, tmp_path):
    made = tmp_path / "made"
    with pytest.raises(InvalidRequest, match="`disk` cannot be held: space"):
        await here.run(["touch", str(made)], limits={"disk": 1 << 20, "require": True})
    assert not made.exists()
    done = await here.run(["touch", str(made)], limits={"wall": 50, "require": True})
    assert done.returncode == 0 and made.exists()


@requirement("limits:words")
@pytest.mark.parametrize("limits", [{"memory": 0}, {"wall": -1}, {"pids": 1.5}, {"memory": "1G"}])
async def test_a_value_that_makes_no_sense_is_refused(server, limits):
    async with connected(server.url) as wire:
        answer = await wire.answer(
            await wire.request(
                "process/start",
                {
                    "processId": "a",
                    "argv": ["true"],
                    "cwd": "file:///",
                    "env": {},
                    "tty": False,
                    "limits": limits,
                },
            )
        )
    assert answer["error"]["code"] == -32602


@requirement("limits:granted")
async def test_huge_values_limit_nothing(here):
    limits = {"memory": 1 << 90, "pids": 1 << 70, "wall": 1e300, "cpuSeconds": 1e300}
    process = await here.start(["true"], limits={**limits, "openFiles": 1 << 80, "disk": 1 << 80})
    async with process, asyncio.timeout(PATIENCE):
        assert await process.wait() == 0


@requirement("limits:attackers")
@pytest.mark.parametrize("limits", [{"wall": "100d"}, {"memory": 28672}, {"memory": 1}])
async def test_no_value_stops_the_keeper(here, limits):
    """The keeper waits for no longer than it can, and for no start that the kernel has stuck."""
    async with asyncio.timeout(PATIENCE), await here.start(["sleep", "0.01"]) as other:
        if "wall" in limits:
            process = await here.start(["sleep", "60"], limits=limits)
            assert (await here.run(["echo", "served"])).stdout == b"served\n"
            await process.terminate()
        else:
            done = await here.run(["true"], limits=limits)
            assert done.returncode != 0 and done.end.cause in ("memory", "limit")
        assert await other.wait() == 0
        assert (await here.run(["echo", "served"])).stdout == b"served\n"


@requirement("limits:granted")
async def test_one_process_may_be_all(here):
    async with await here.start(["true"], limits={"pids": 1}) as process:
        assert await process.wait() == 0
    assert process.limits["pids"].value == 1


@requirement("limits:choice")
async def test_a_huge_value_does_not_weaken_the_limits_of_others(here):
    usual, huge = {"pids": 100, "cpuRate": 1}, {"pids": 1 << 62, "cpuRate": 1e30}
    before = (await here.start(["true"], limits=usual)).limits
    await here.run(["true"], limits=huge)
    assert (await here.start(["true"], limits=usual)).limits == before


# The limits of a server.


@requirement("limits:server")
async def test_defaults_hold_for_stock_clients_and_nothing_is_beyond_the_maximum(no_leaks):
    bounds = Limits(
        process_default=(("wall", 0.3), ("openFiles", 40)),
        process_max=(("pids", 50.0), ("openFiles", 60.0)),
    )
    async with serve(limits=bounds) as running, connected(running.url) as wire:
        answer = await wire.start("a", ["sleep", "60"])
        assert "limits" not in answer
        await wire.event("a", "process/exited")
        assert facts_of(running, "a")["limit"] == "wall"
        asked = {"wall": 50, "pids": 1000, "openFiles": 50}
        answer = await wire.start("b", ["sh", "-c", "ulimit -n"], limits=asked)
        values = {name: granted["value"] for name, granted in answer["limits"].items()}
        assert values == {"wall": 50, "pids": 50, "openFiles": 50}
        await wire.output_until("b", b"50\n")
    async with serve(limits=bounds) as running, connect(running.url) as client:
        with pytest.raises(InvalidRequest, match="`pids` may be at most 50"):
            await client.run(["true"], limits={"pids": 1000, "require": True})


# What is left.


def keeper_of(running: RunningServer) -> int:
    pid = running.core._spawner.keeper_pid
    assert pid is not None
    return pid


def is_in_area(pid: int | None, keeper: int) -> bool:
    """True if a process is in a group that this keeper has made."""
    return f"-{keeper}-" in Path(f"/proc/{pid}/cgroup").read_text()


_AREA = re.compile(r"exec-server-[^-]+-[^-]+-[^-]+")


def areas() -> set[str]:
    """The directories of keepers in all hierarchies."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    tops = [words[1] for words in mounts if words[2] in ("cgroup", "cgroup2")]
    # Groups come and go meanwhile, which `os.walk` does not mind.
    found = ((folder, name) for top in tops for folder, names, _ in os.walk(top) for name in names)
    return {f"{folder}/{name}" for folder, name in found if _AREA.fullmatch(name)}


def area_of(keeper: int) -> set[str]:
    return {path for path in areas() if f"-{keeper}-" in path}


def groups_in(keeper: int) -> list[Path]:
    """The groups of commands."""
    return [
        Path(folder, name)
        for area in area_of(keeper)
        for folder, names, _ in os.walk(area)
        for name in names
    ]


@requirement("limits:outside")
async def test_the_keeper_is_outside_and_no_group_is_left(no_leaks):
    async with serve() as running:
        async with connect(running.url) as client:
            keeper = keeper_of(running)
            process = await client.start(["sleep", "60"], limits=MEMORY)
            if process.limits["memory"].mechanism == "watched":
                pytest.skip("no control group can be made here")
            assert is_in_area(process.pid, keeper)
            assert not is_in_area(keeper, keeper)
            assert not is_in_area(os.getpid(), keeper)
            await process.terminate()
            for _ in range(3):
                await client.run(["true"], limits=MEMORY)
            # One is ready for the next start.
            await eventually(lambda: len(groups_in(keeper)) <= 1)
    await eventually(lambda: not area_of(keeper))


@requirement("limits:outside")
async def test_a_later_keeper_removes_what_a_killed_one_has_left(no_leaks):
    async with serve() as running, connect(running.url) as client:
        keeper = keeper_of(running)
        process = await client.start(["sleep", "60"], limits=MEMORY)
        if process.limits["memory"].mechanism == "watched":
            pytest.skip("no control group can be made here")
        os.kill(keeper, signal.SIGKILL)
        with pytest.raises(ProcessLost):
            async with asyncio.timeout(PATIENCE):
                await process.wait()
        assert area_of(keeper)
        assert (await client.run(["true"], limits=MEMORY)).returncode == 0
        assert not area_of(keeper)


# Durable jobs.


def has_ended(pid: int) -> bool:
    return not is_running(pid)


@requirement("limits:durable", "limits:attackers")
async def test_limits_of_durable_jobs_hold_without_a_server_and_after_another_one(tmp_path):
    cues = {name: tmp_path / name for name in ("grows", "writes", "late")}
    grows = (
        f"import os, time\nwhile not os.path.exists('{cues['grows']}'): time.sleep(0.01)\n{GROW}"
    )
    wait = "while ! [ -e $0 ]; do sleep 0.02; done; "
    with state_servers(tmp_path / "state", "--log-level", "warning") as servers:
        async with Wire(servers.url) as wire:
            session = (await wire.initialize())["sessionId"]
            start = {"durable": True, "details": True}
            pids = {}
            for name, argv, limits in (
                ("grows", [PYTHON, "-c", grows], MEMORY),
                ("writes", ["sh", "-c", f"{wait} yes", str(cues["writes"])], {"outputBytes": 5000}),
                ("late", ["sh", "-c", f"{wait} yes", str(cues["late"])], {"outputBytes": 5000}),
                ("sleeps", ["sleep", "60"], {"wall": 2}),
            ):
                answer = await wire.start(name, argv, limits=limits, **start)
                assert answer["limits"].keys() == limits.keys()
                if "outputBytes" in limits:
                    assert answer["limits"]["outputBytes"]["grain"] == "up to 1 MiB more"
                pids[name] = answer["pid"]
            servers.kill()
        for name in ("grows", "writes"):
            cues[name].touch()
        for name in ("grows", "writes", "sleeps"):
            await until(partial(has_ended, pids[name]), f"{name} was not ended")
        assert is_running(pids["late"])
        servers.start()
        async with Wire(servers.url) as wire:
            await wire.initialize(resumeSessionId=session)
            cues["late"].touch()
            await until(lambda: not is_running(pids["late"]), "the job was not ended")
            for name in pids:
                read = {"processId": name, "afterSeq": 0, "maxBytes": 1, "waitMs": 10_000}
                answer = await wire.call("process/read", read)
                while not answer["closed"]:
                    answer = await wire.call("process/read", read)
                assert answer["exitCode"] == 128 + signal.SIGKILL


# Servers that know no limits.


@requirement("limits:unknown")
async def test_a_server_without_limits_is_an_error_or_a_warning(caplog):
    async def script(talk):
        await talk.shake_hands()
        for _ in range(2):
            request = await talk.receive()
            while request["method"] != "process/start":
                await talk.refuse(request, -32601, "unknown method")
                request = await talk.receive()
            assert "limits" not in request["params"]
            await talk.answer(request, {"processId": request["params"]["processId"]})
            break
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        with pytest.raises(MethodNotFound, match="does not offer processLimits"):
            await client.start(["true"], limits=ResourceLimits(pids=5, require=True), cwd="/")
        process = await client.start(["true"], limits={"pids": 5}, cwd="/")
        assert process.limits["pids"].mechanism == "none"
        assert "started without limits" in caplog.text


# The command line.


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYTHON, "-m", "exec_server", "run", "-n", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@requirement("limits:cli", "limits:server", "limits:words")
def test_the_command_line():
    bounds = ("--limit-default", "openFiles=77", "--limit-max", "pids=50,memory=1G")
    with start_server("--listen", "ws://127.0.0.1:0", *bounds) as server:
        done = run(
            "-v", "--limit", "memory=500M,pids=60", server.url, "--", "sh", "-c", "ulimit -n"
        )
        assert (done.returncode, done.stdout) == (0, "77\n")
        assert "limit memory=500M" in done.stderr
        assert "limit openFiles=77 for each process, rlimit, exact" in done.stderr
        assert "has lowered the limit `pids` to 50" in done.stderr
        done = run("--limit", "wall=0.3s", server.url, "--", "sleep", "60")
        assert done.returncode == 128 + signal.SIGKILL
        done = run("--limit", "pids=60,require", server.url, "--", "true")
        assert done.returncode == 126
        assert "`pids` may be at most 50" in done.stderr
        done = run("-o", "json", "--limit", "wall=9s", server.url, "--", "true")
        assert json.loads(done.stdout)["limits"]["wall"]["value"] == 9


@requirement("limits:cli", "limits:words")
def test_a_wrong_limit_on_the_command_line_names_the_valid_ones():
    done = run("--limit", "mem=1G", "ws://127.0.0.1:1", "--", "true")
    assert done.returncode == 2
    assert "unknown limit 'mem': the limits are memory, pids, cpuRate" in done.stderr
    done = subprocess.run(
        [PYTHON, "-m", "exec_server", "--limit-max", "require"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert "`require` is for clients" in done.stderr


FILLS = """
import os
try:
    for number in range(64):
        with open(f"/dev/shm/{number}", "wb") as file:
            file.write(bytes(1 << 20))
except OSError as exc:
    print(exc.strerror)
print(sum(os.stat(f"/dev/shm/{name}").st_size for name in os.listdir("/dev/shm")) >> 20)
try:
    open("/dev/new", "w")
except OSError as exc:
    print(exc.strerror)
"""


@requirement("limits:memory-files")
@needs_bubblewrap
async def test_closed_files_in_memory_are_limited_in_a_sandbox(here):
    limits = {"memory": "512M", "disk": "8M"}
    done = await here.run([PYTHON, "-c", FILLS], sandbox=workspace_write(["/tmp"]), limits=limits)
    lines = done.stdout.decode().splitlines()
    assert lines == ["No space left on device", "8", "Read-only file system"], done.stderr


@requirement("limits:cli")
def test_a_limit_that_became_wider_is_warned_of(capsys):
    granted = {"cpuRate": GrantedLimit(0.01, "cgroup2", "tree", "exact in each 100 ms")}
    process: Any = SimpleNamespace(limits=granted)
    tell_limits(process, ResourceLimits(cpu_rate=0.001), is_verbose=False)
    assert (
        "the server holds no such limit `cpuRate`; it has made it 0.01" in capsys.readouterr().err
    )
    tell_limits(process, ResourceLimits(cpu_rate=0.01), is_verbose=False)
    assert not capsys.readouterr().err
