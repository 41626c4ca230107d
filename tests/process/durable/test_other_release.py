"""Durable jobs go on when another release takes the place of the one that has started them."""

from __future__ import annotations

import json
import marshal
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import exec_server
from exec_server.process.durable import durable_keeper
from exec_server.process.durable.keeper_strangers import KEY_BYTES
from exec_server.version import VERSION
from tests.requirements import requirement
from tests.sandbox.test_processes import needs_bubblewrap, workspace_write
from tests.support.children import child
from tests.support.durable import StateServers, is_running, jobs_of, read_all, until
from tests.support.servers import OURS
from tests.support.wire import Wire

pytestmark = pytest.mark.one_loop

RUN = """
import sys
sys.path.insert(0, {path!r})
from exec_server.cli.main import main
sys.exit(main())
"""
MINE = durable_keeper.VERSION
PIPE = """
echo runs >> $0.mark
seq 20000
touch $0.said
until [ -e $0.gone ]; do sleep .02; done
seq 20001 60000
touch $0.alone
read line; echo $line; echo error >&2
exit 5
"""
CONFINED = """
while read line; do
    echo $line
    (echo x > $0/outside) 2>/dev/null && echo escaped
    echo y >> $0/workspace/inside
done
exit 6
"""


class Release(NamedTuple):
    """An installation at a path of its own."""

    folder: Path
    number: str

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", RUN.format(path=str(self.folder))]

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def install(folder: Path, number: str, *, speaks: int = MINE, oldest: int = MINE) -> Release:
    """Install the present code at a path of its own, as the release *number*."""
    package = folder / "exec_server"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(exec_server.__file__).parent, package, ignore=ignored)
    _change(package / "version.py", f'VERSION = "{VERSION}"', f'VERSION = "{number}"')
    file = package / "process" / "durable" / "durable_keeper.py"
    _change(file, f"\nVERSION = {MINE}\n", f"\nVERSION = {speaks}\n")
    _change(file, f"\nOLDEST = {durable_keeper.OLDEST}\n", f"\nOLDEST = {oldest}\n")
    return Release(folder, number)


def _change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, path
    path.write_text(text.replace(old, new))


@pytest.fixture
def older(tmp_path: Path) -> Release:
    return install(tmp_path / "older", "0.0.9")


@pytest.fixture
def newer(tmp_path: Path) -> Release:
    """It has other messages, and still knows those of the older one."""
    return install(tmp_path / "newer", "99.0.0", speaks=MINE + 1)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    """Start the servers of a release, on a state directory that all releases share."""
    running = []

    def start(release: Release) -> StateServers:
        running.append(StateServers(tmp_path / "state", command=release.command))
        return running[-1]

    yield start
    for servers in running:
        servers.close()


async def number_of(wire: Wire) -> str:
    number: str = (await wire.call("environment/info"))["executorVersion"]
    return number


async def start_jobs(wire: Wire, folder: Path) -> None:
    """One job of each kind, each with some output and input already."""
    await wire.start("pipe", ["sh", "-c", PIPE, str(folder / "pipe")], pipeStdin=True, durable=True)
    await until((folder / "pipe.said").exists)
    await wire.start("cat", ["cat"], pipeStdin=True, durable=True)
    assert await wire.write("cat", b"once ", "w1") == "accepted"
    argv = child("echoes_a_terminal.py", folder / "tty.mark", 17)
    await wire.start("tty", argv, tty=True, durable=True)
    await wire.output_until("tty", b"ready")
    assert await wire.write("tty", b"typed ", "w1") == "accepted"


async def check_jobs(wire: Wire, folder: Path) -> None:
    """Every byte of `start_jobs` comes once, under another server."""
    assert await wire.write("pipe", b"last\n", "w1") == "accepted"
    data, answer = await read_all(wire, "pipe")
    said = b"".join(b"%d\n" % number for number in range(1, 60001))
    assert sorted(data.removeprefix(said).split()) == [b"error", b"last"]
    assert answer["exitCode"] == 5
    assert (folder / "pipe.mark").read_text() == "runs\n"
    # The first write is repeated, as a client does that has lost the answer.
    assert await wire.write("cat", b"once ", "w1") == "accepted"
    assert await wire.write("cat", b"twice", "w2") == "accepted"
    await wire.call("process/closeStdin", {"processId": "cat"})
    data, answer = await read_all(wire, "cat")
    assert (data, answer["exitCode"]) == (b"once twice", 0)
    assert await wire.write("tty", b"more\x1b", "w2") == "accepted"
    data, answer = await read_all(wire, "tty")
    assert (data, answer["exitCode"]) == (b"readytyped more\x1b", 17)
    assert (folder / "tty.mark").read_text() == "runs\n"


@requirement("durable:replaced")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("direction", ["upgrade", "downgrade"])
async def test_jobs_go_on_under_another_release(older, newer, run, tmp_path, direction, signum):
    before, after = (older, newer) if direction == "upgrade" else (newer, older)
    servers = run(before)
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        assert await number_of(wire) == before.number
        await start_jobs(wire, tmp_path)
        keeper = servers.keeper_pid
        assert servers.kill(signum) == (0 if signum == signal.SIGTERM else -signum)
    before.remove()
    (tmp_path / "pipe.gone").touch()
    await until((tmp_path / "pipe.alone").exists)
    servers = run(after)
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        assert await number_of(wire) == after.number
        assert {job["state"] for job in await jobs_of(wire)} == {"running"}
        await check_jobs(wire, tmp_path)
        # The keeper of the other release starts jobs as well.
        await wire.start("new", ["sh", "-c", "echo new; exit 3"], durable=True)
        data, answer = await read_all(wire, "new")
        assert (data, answer["exitCode"]) == (b"new\n", 3)
        assert servers.keeper_pid == keeper


@requirement("durable:replaced", "durable:sandboxed")
@needs_bubblewrap
@pytest.mark.parametrize("direction", ["upgrade", "downgrade"])
async def test_a_sandbox_goes_on_under_another_release(older, newer, run, tmp_path, direction):
    before, after = (older, newer) if direction == "upgrade" else (newer, older)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    servers = run(before)
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        argv = ["sh", "-c", CONFINED, str(tmp_path)]
        sandbox = workspace_write(workspace)
        await wire.start("a", argv, sandbox=sandbox, pipeStdin=True, durable=True)
        await wire.write("a", b"one\n", "w1")
        await wire.output_until("a", b"one")
        servers.kill()
    before.remove()
    servers = run(after)
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        await wire.write("a", b"two\n", "w2")
        await wire.call("process/closeStdin", {"processId": "a"})
        data, answer = await read_all(wire, "a")
    assert (data, answer["exitCode"]) == (b"one\ntwo\n", 6)
    assert (workspace / "inside").read_text() == "y\ny\n"
    assert not (tmp_path / "outside").exists()


def refused(state: Path, command: list[str]) -> str:
    """Start a server that must not use *state*; what it says."""
    done = subprocess.run(
        [*command, "--listen", "ws://127.0.0.1:0", "--state", str(state)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    return done.stderr


@requirement("durable:keeper-version")
@pytest.mark.timeout(180)
async def test_a_server_refuses_a_keeper_that_it_cannot_understand(older, run, tmp_path):
    foreign = install(tmp_path / "foreign", "99.0.0", speaks=MINE + 2, oldest=MINE + 2)
    servers = run(foreign)
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await start_jobs(wire, tmp_path)
        jobs = await jobs_of(wire)
        keeper = servers.keeper_pid
        servers.kill()
    said = refused(servers.state, older.command)
    assert f"the durable keeper of {servers.state} (pid {keeper}) is of another release" in said
    assert f"version {MINE + 2} of its messages, and this server version {MINE}" in said
    assert "its jobs run on" in said
    assert all(is_running(job["pid"]) for job in jobs)
    # Meanwhile the keeper serves, and drains, as if no server had come.
    (tmp_path / "pipe.gone").touch()
    await until((tmp_path / "pipe.alone").exists)
    servers = run(foreign)
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        await check_jobs(wire, tmp_path)
        assert servers.keeper_pid == keeper


@requirement("durable:keeper-version")
async def test_files_that_were_replaced_under_a_running_server_cost_a_start_and_no_more(run, older):
    servers = run(older)
    async with Wire(servers.url) as wire:
        await wire.initialize()
        # The keeper of ordinary commands runs: it no longer reads the files that are replaced.
        assert (await wire.run("first", ["echo", "served"])).stdout == b"served\n"
        # An upgrade in place: the first durable job starts the keeper of the next release.
        older.remove()
        install(older.folder, "99.0.0", speaks=MINE + 2, oldest=MINE + 2)
        params = {"processId": "a", "argv": ["true"], "cwd": "file:///", "env": {}, "tty": False}
        error = await wire.error("process/start", {**params, "durable": True})
        assert "is of another release" in error["message"]
        assert "restart the server" in error["message"]
        assert servers.jobs == []
        assert (await wire.run("plain", ["echo", "served"])).stdout == b"served\n"


@pytest.fixture
def odd_keeper(tmp_path: Path) -> Iterator[Any]:
    """A keeper that begins with other words than a server knows."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / durable_keeper.KEY).write_bytes(bytes(KEY_BYTES))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(state / durable_keeper.SOCKET))
    listener.listen()
    threads = []

    def answer(data: bytes) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(len(data).to_bytes(4, "big") + data)
            while sock.recv(4096):
                pass

    def start(data: bytes) -> Path:
        threads.append(threading.Thread(target=answer, args=(data,), daemon=True))
        threads[-1].start()
        return state

    yield start
    for thread in threads:
        thread.join(10)
    listener.close()


@requirement("durable:keeper-version")
@pytest.mark.parametrize(
    "first",
    [
        ("hello", MINE + 1, {"pid": 1, "oldest": MINE + 1, "jobs": []}),
        ("hello", MINE + 1, {"pid": 1, "jobs": []}),
        ("hello", "two", {"pid": 1, "jobs": []}),
        ("hello", None),
        ("hello", MINE, {"jobs": []}),
        ("hello", MINE, {"pid": 1, "jobs": [{"name": "a"}]}),
        ("greetings", 7),
        (),
        7,
        b"\xff",
    ],
    ids=repr,
)
def test_a_server_refuses_a_keeper_whose_first_words_are_odd(odd_keeper, first):
    data = first if isinstance(first, bytes) else marshal.dumps(first, 4)
    state = odd_keeper(data)
    assert f"the durable keeper of {state} " in refused(state, OURS)
    # It is asked again the next time.
    assert (state / durable_keeper.SOCKET).exists()


@requirement("durable:keeper-silent")
@pytest.mark.timeout(180)
async def test_a_keeper_that_does_not_answer_keeps_its_jobs(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("a", ["cat"], pipeStdin=True, durable=True)
        (job,) = await jobs_of(wire)
        servers.kill()
    os.kill(servers.keeper_pid, signal.SIGSTOP)
    try:
        said = refused(servers.state, OURS)
    finally:
        os.kill(servers.keeper_pid, signal.SIGCONT)
    assert f"the durable keeper of {servers.state} does not answer; its jobs run on" in said
    assert is_running(job["pid"])
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        await wire.write("a", b"here", "w1")
        await wire.call("process/closeStdin", {"processId": "a"})
        data, answer = await read_all(wire, "a")
        assert (data, answer["exitCode"]) == (b"here", 0)


@requirement("durable:replaced")
async def test_files_with_fields_of_a_later_release_are_read(servers):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("a", ["cat"], pipeStdin=True, durable=True)
        servers.kill()
    files = [folder / "job.json" for folder in servers.jobs]
    for file in [*files, *(servers.state / "sessions").glob("*.json")]:
        file.write_text(json.dumps({**json.loads(file.read_text()), "ofALaterRelease": [1]}))
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        await wire.write("a", b"here", "w1")
        await wire.call("process/closeStdin", {"processId": "a"})
        data, answer = await read_all(wire, "a")
        assert (data, answer["exitCode"]) == (b"here", 0)
