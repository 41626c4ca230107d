"""The durable keeper alone: its messages, one server after another, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import select
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from exec_server.errors import ConfigurationError
from exec_server.process import keeper_socket
from exec_server.process.durable import durable_keeper, durable_spawner
from exec_server.process.durable.durable_spawner import DurableSpawner, kill_marked
from exec_server.process.durable.keeper_strangers import KEY_BYTES
from exec_server.process.durable.kept_job import STARTED, STATUS
from exec_server.process.durable.state_directory import StateDirectory
from exec_server.process.journal import Journal
from exec_server.process.keeper_command import keeper_command
from tests.requirements import requirement
from tests.support.durable import is_running, until

PATIENCE = 60.0
MARK = 1 << 62 | 12345 << 24 | 1
OTHER_MARK = MARK + 1
BOUNDS = {"max_bytes": 1 << 20, "max_records": 1000}


class Server:
    """One connection to the keeper, as a server has it."""

    made: ClassVar[list[socket.socket]] = []

    def __init__(self, path: Path, key: bytes) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.made.append(self.sock)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(str(path))
        self.sock.sendall(key)

    def send(self, *message: Any) -> None:
        data = marshal.dumps(message, 4)
        self.sock.sendall(len(data).to_bytes(4, "big") + data)

    def receive(self) -> tuple[tuple[Any, ...], list[int]]:
        """The next message and its descriptors."""
        data, fds = b"", []
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            more, new, _, _ = socket.recv_fds(self.sock, 1, 8)
            assert more, "the keeper is gone"
            data += more
            fds += new
        return marshal.loads(data[4:]), fds

    def hello(self) -> dict[str, Any]:
        self.send("hello", durable_keeper.VERSION, {})
        (kind, version, facts), _ = self.receive()
        assert (kind, version) == ("hello", durable_keeper.VERSION)
        return dict(facts)

    def spawn(
        self,
        name: str,
        script: str,
        *,
        drains: bool = True,
        holds: float = 30.0,
        mark: int = MARK,
    ) -> tuple[int, list[int]]:
        argv = [b"sh", b"-c", script.encode()]
        env = {b"PATH": b"/usr/local/bin:/usr/bin:/bin"}
        settings = {"name": name, "drains": drains, "holds": holds, **BOUNDS}
        self.send("spawn", 1, b"sh", argv, env, b"/", None, True, None, mark, settings)
        (kind, _, pid, count), fds = self.receive()
        assert (kind, count) == ("spawned", len(fds))
        return pid, fds


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "jobs").mkdir()
    (tmp_path / durable_keeper.KEY).write_bytes(KEY)
    path = tmp_path / durable_keeper.SOCKET
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        subprocess.run(
            keeper_command("process.durable.durable_keeper", str(tmp_path), "0"),
            stdin=listener.fileno(),
            env={},
            start_new_session=True,
            check=True,
            timeout=PATIENCE,
        )
    yield tmp_path
    # After a failure they would be found open in some later test.
    for sock in Server.made:
        sock.close()
    Server.made.clear()
    kill_marked({MARK, OTHER_MARK})


KEY = bytes(range(KEY_BYTES))


def connect(folder: Path, key: bytes = KEY) -> Server:
    return Server(folder / durable_keeper.SOCKET, key)


@requirement("durable:keeper-messages")
def test_a_connection_without_the_key_gets_nothing_and_keeps_no_server_out(folder):
    silent = [connect(folder, b"") for _ in range(20)]
    wrong = connect(folder, bytes(32))
    # What follows a wrong key is not read; the keeper may have hung up already.
    with pytest.raises((AssertionError, ConnectionError)):
        wrong.send("spawn", 1)
        wrong.receive()
    half = connect(folder, KEY[:16])
    server = connect(folder)
    assert server.hello()["jobs"] == []
    for each in (*silent, wrong, half, server):
        each.sock.close()


def read(fd: int) -> bytes:
    """What comes next; the descriptor does not block."""
    assert select.select([fd], [], [], PATIENCE)[0]
    return os.read(fd, 100)


def make_job(folder: Path, name: str) -> Path:
    Journal.create(folder / "jobs" / name, ("stdout", "stderr"), **BOUNDS).close()
    return folder / "jobs" / name


@requirement("durable:keeper-messages")
def test_unknown_messages_are_answered_with_an_error(folder):
    server = connect(folder)
    assert server.hello()["jobs"] == []
    server.send("no such kind", 1, 2)
    assert server.receive()[0][:2] == ("error", "no such kind")
    server.send("fds", "too", "many", "words")
    assert server.receive()[0][:2] == ("error", "fds")
    server.send("fds", 7, "no such job")
    assert server.receive()[0] == ("fds", 7, 0)
    server.send("spawn", 9, "this", "is", "no", "start")
    assert server.receive()[0][:2] == ("failed", 9)
    server.send("write", 8, "no such job", None, b"x")
    assert server.receive()[0] == ("wrote", 8)
    server.sock.close()


@requirement("durable:keeper-messages", "durable:exit-kept")
def test_one_server_after_another_has_the_same_job(folder):
    make_job(folder, "aa")
    first = connect(folder)
    keeper = first.hello()["pid"]
    pid, fds = first.spawn("aa", "cat; exit 3")
    first.send("write", 2, "aa", "w1", b"one\n")
    assert first.receive()[0] == ("wrote", 2)
    assert read(fds[0]) == b"one\n"
    # The second is served when the first is gone.
    second = connect(folder)
    first.sock.close()
    for fd in fds:
        os.close(fd)
    (job,) = second.hello()["jobs"]
    assert (job["name"], job["pid"], job["mark"]) == ("aa", pid, MARK)
    assert (job["status"], job["input"]) == (None, "open")
    second.send("write", 3, "aa", "w1", b"one\n")
    assert second.receive()[0] == ("wrote", 3)
    second.send("write", 4, "aa", "w2", b"two\n")
    assert second.receive()[0] == ("wrote", 4)
    second.send("fds", 5, "aa")
    message, fds = second.receive()
    assert message == ("fds", 5, 2)
    assert read(fds[0]) == b"two\n"
    second.send("finish", "aa")
    (kind, exited, status), _ = second.receive()
    assert (kind, exited, os.waitstatus_to_exitcode(status)) == ("exited", pid, 3)
    assert b'"status":768' in (folder / "jobs" / "aa" / "status").read_bytes()
    second.send("release", "aa")
    second.sock.close()
    for fd in fds:
        os.close(fd)
    wait_gone(keeper)


@requirement("durable:drained", "durable:exit-kept")
def test_without_a_server_output_goes_to_the_journal(folder):
    path = make_job(folder, "bb")
    server = connect(folder)
    keeper = server.hello()["pid"]
    _, fds = server.spawn("bb", "read go; seq 30000; echo done >&2; exit 5")
    for fd in fds:
        os.close(fd)
    server.send("write", 2, "bb", None, b"go\n")
    server.sock.close()
    wait_gone(keeper)
    journal = Journal.open(path, streams=("stdout", "stderr"), **BOUNDS)
    records = list(journal.records())
    data = {
        stream: b"".join(journal.read(each) for each in records if each.kind == stream)
        for stream in ("stdout", "stderr")
    }
    journal.close()
    assert data["stdout"].split() == [b"%d" % number for number in range(1, 30001)]
    assert data["stderr"] == b"done\n"
    assert b'"status":1280' in (path / "status").read_bytes()


@requirement("durable:window")
def test_a_job_that_is_not_drained_waits_for_its_reader(folder):
    make_job(folder, "cc")
    server = connect(folder)
    server.hello()
    pid, fds = server.spawn("cc", "seq 100000; exit 0", drains=False)
    for fd in fds:
        os.close(fd)
    server.sock.close()
    server = connect(folder)
    (job,) = server.hello()["jobs"]
    assert job["status"] is None
    assert is_running(pid)
    server.send("fds", 1, "cc")
    _, fds = server.receive()
    os.set_blocking(fds[0], True)
    data = b""
    while more := os.read(fds[0], 1 << 16):
        data += more
    assert data.split() == [b"%d" % number for number in range(1, 100001)]
    assert server.receive()[0][:2] == ("exited", pid)
    server.send("release", "cc")
    server.sock.close()


@requirement("durable:window-ends")
def test_a_job_with_a_window_runs_on_when_no_server_comes_back(folder):
    make_job(folder, "cc")
    server = connect(folder)
    keeper = server.hello()["pid"]
    _, fds = server.spawn("cc", "seq 100000; exit 5", drains=False, holds=0.2)
    for fd in fds:
        os.close(fd)
    server.sock.close()
    wait_gone(keeper)
    assert (folder / "jobs" / "cc" / "stdout").stat().st_size == 588_895


@requirement("durable:window-ends")
def test_an_exited_job_with_a_window_does_not_keep_the_keeper(folder):
    make_job(folder, "cc")
    server = connect(folder)
    keeper = server.hello()["pid"]
    _, fds = server.spawn("cc", "read go; echo last words", drains=False)
    for fd in fds:
        os.close(fd)
    server.send("write", 2, "cc", None, b"go\n")
    server.sock.close()
    wait_gone(keeper)
    assert (folder / "jobs" / "cc" / "stdout").read_bytes() == b"last words\n"


def test_a_start_that_fails_leaves_no_sign_of_a_start(folder):
    path = make_job(folder, "dd")
    server = connect(folder)
    server.hello()
    settings = {"name": "dd", "drains": True, **BOUNDS}
    server.send("spawn", 1, b"/no/such", [b"x"], {}, b"/", None, False, None, MARK, settings)
    assert server.receive()[0][:2] == ("failed", 1)
    assert not (path / STARTED).exists()
    server.sock.close()


@requirement("durable:exit-kept")
async def test_an_exit_between_the_greeting_and_the_adoption_is_reported(folder):
    path = make_job(folder, "ee")
    server = connect(folder)
    server.hello()
    _, fds = server.spawn("ee", "read go; exit 3")
    for fd in fds:
        os.close(fd)
    server.sock.close()
    state = StateDirectory(folder)
    assert state.open(create=True)
    spawner = DurableSpawner(state, child_descriptors=None)
    try:
        (job,) = await spawner.connect()
        spawner.write(job.name, None, b"go\n", lambda: None)
        await until((path / STATUS).exists)
        # The keeper answers this after it has told of the exit.
        is_answered = asyncio.Event()
        spawner.write(job.name, None, b"", is_answered.set)
        await asyncio.wait_for(is_answered.wait(), PATIENCE)
        exits: list[int | None] = []
        for fd in spawner.adopt(job, lambda status, *_: exits.append(status)) or ():
            os.close(fd)
        assert exits == [3 << 8]
        spawner.release(job.name)
    finally:
        spawner.close()
        state.close()


@requirement("durable:keeper-messages")
def test_a_keeper_that_accepts_no_connection_is_not_awaited_for_ever(tmp_path):
    path = str(tmp_path / "socket")
    with keeper_socket.listen(path), contextlib.ExitStack() as stack:
        # So many wait already that the kernel takes no more.
        for _ in range(100):
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(path)
        with pytest.raises(TimeoutError):
            keeper_socket.connect(path, KEY, seconds=0.1)


@requirement("durable:keeper-silent")
async def test_a_keeper_that_hangs_after_its_greeting_is_not_awaited_for_ever(
    tmp_path, monkeypatch, no_leaks
):
    monkeypatch.setattr(durable_spawner, "_HELLO_SECONDS", 0.2)
    state = StateDirectory(tmp_path / "state")
    assert state.open(create=True)
    job = {"name": "aa", "pid": 1 << 30, "mark": MARK, "status": None, "input": "none"}
    hello = ("hello", durable_keeper.VERSION, {"pid": 1, "oldest": 1, "jobs": [job, job]})
    data = marshal.dumps(hello, 4)
    with keeper_socket.listen(state.socket_path) as listener:
        state.new_key()
        spawner = DurableSpawner(state, child_descriptors=None)
        connecting = asyncio.create_task(spawner.connect())
        listener.setblocking(False)
        accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
        with accepted:
            accepted.sendall(len(data).to_bytes(4, "big") + data)
            with pytest.raises(ConfigurationError, match="does not answer; its jobs run on"):
                await asyncio.wait_for(connecting, PATIENCE)
    state.close()


@requirement("durable:removed-state")
def test_jobs_whose_directory_was_removed_end_and_so_does_their_keeper(folder):
    make_job(folder, "aa")
    server = connect(folder)
    keeper = server.hello()["pid"]
    pid, fds = server.spawn("aa", "echo ready; exec sleep 1000")
    assert read(fds[0]) == b"ready\n"
    shutil.rmtree(folder)
    for fd in fds:
        os.close(fd)
    server.sock.close()
    wait_gone(keeper)
    assert not is_running(pid)


@requirement("durable:removed-state")
def test_a_job_whose_folder_was_removed_ends_and_others_run_on(folder):
    server = connect(folder)
    keeper = server.hello()["pid"]
    found = {}
    for name, mark in (("aa", MARK), ("bb", OTHER_MARK)):
        make_job(folder, name)
        found[name], fds = server.spawn(name, "read go; echo more; exec sleep 1000", mark=mark)
        for fd in fds:
            os.close(fd)
    shutil.rmtree(folder / "jobs" / "aa")
    for name in found:
        server.send("write", 1, name, None, b"go\n")
    server.sock.close()
    # It has output, for which there is no journal.
    wait_gone(found["aa"])
    server = connect(folder)
    assert [job["name"] for job in server.hello()["jobs"]] == ["bb"]
    assert is_running(found["bb"])
    server.send("stop", 0)
    wait_gone(keeper)
    server.sock.close()


@requirement("durable:removed-state")
def test_a_job_that_is_being_ended_is_not_told_to_the_next_server(folder):
    server = connect(folder)
    keeper = server.hello()["pid"]
    found = {}
    for name, mark in (("aa", MARK), ("bb", OTHER_MARK)):
        make_job(folder, name)
        found[name], fds = server.spawn(name, "exec sleep 1000", mark=mark)
        for fd in fds:
            os.close(fd)
    # A server sends this before it ends the process, and may be killed in between.
    server.send("release", "aa")
    server.sock.close()
    server = connect(folder)
    assert [job["name"] for job in server.hello()["jobs"]] == ["bb"]
    wait_gone(found["aa"])
    server.send("stop", 0)
    wait_gone(keeper)
    server.sock.close()


def test_a_keeper_that_ends_leaves_the_socket_of_the_next_one(folder):
    server = connect(folder)
    keeper = server.hello()["pid"]
    path = folder / durable_keeper.SOCKET
    path.unlink()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(path))
        server.sock.close()
        wait_gone(keeper)
        assert path.exists()


def wait_gone(pid: int) -> None:
    asyncio.run(until(lambda: not is_running(pid), "the keeper has not ended"))
