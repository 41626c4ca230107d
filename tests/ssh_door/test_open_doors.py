"""A door that stays open for the next connections."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exec_server.ssh_door.doorkeeper import Doorkeeper
from exec_server.ssh_door.open_doors import door_path, find_door
from tests.requirements import requirement
from tests.support.modules import loaded, own, unwanted
from tests.support.ssh_host import PATIENCE, SshHost, place_for_sockets


def doors(host: SshHost) -> list[Path]:
    return sorted((host.place / "state/exec-server/ssh").glob("*.door"))


def wait_until_left(host: SshHost) -> None:
    """A door has its lock until it leaves."""
    for lock in (host.place / "state/exec-server/ssh").glob("*.lock"):
        with open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_EX)


@requirement("ssh:linger")
def test_the_next_connection_uses_the_door_of_the_first(ssh_server):
    with place_for_sockets() as place:
        host = SshHost(place, ssh_server.url, options=("--linger", "2"))
        try:
            # The process that serves a connection is the parent of nothing here: ask the socket.
            assert host.ssh("build", "cat", input=b"one").stdout == b"one"
            (door,) = doors(host)
            made = door.stat().st_ino
            assert door.stat().st_mode & 0o777 == 0o600
            assert host.ssh("build", "cat; exit 3", input=b"two", status=3).stdout == b"two"
            # Clients with pipes find it as well.
            words = ("-o", "ProxyUseFdpass=no", "build", "cat")
            assert host.ssh(*words, input=b"three").stdout == b"three"
            assert [each.stat().st_ino for each in doors(host)] == [made]
        finally:
            wait_until_left(host)
        assert doors(host) == []


def end_door(host: SshHost) -> None:
    """End the process that listens, and wait for that."""
    for path in doors(host):
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(str(path))
            found = door.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        os.kill(struct.unpack("3i", found)[0], signal.SIGTERM)
    wait_until_left(host)


@requirement("ssh:no-question")
@pytest.mark.parametrize("linger", ["0", "60"])
def test_other_variables_than_those_of_ssh_config_do_not_change_the_key(ssh_server, linger):
    # An editor that a desktop has started does not have the variables of a shell.
    with place_for_sockets() as place:
        host = SshHost(place, ssh_server.url, options=("--linger", linger))
        for state in ("other", "state"):
            done = host.ssh("build", "echo hi", XDG_STATE_HOME=str(place / state))
            assert done.stdout == b"hi\n"
        assert not (place / "other/exec-server/ssh").exists()
        if linger != "0":
            end_door(host)


@requirement("ssh:no-question")
def test_a_stanza_of_an_earlier_release_has_the_key_of_the_state_directory(ssh_server):
    with place_for_sockets() as place:
        host = SshHost(place, ssh_server.url)
        text = host.config.read_text()
        host.config.write_text(re.sub(r" --key-dir \S+", "", text))
        assert host.config.read_text() != text
        assert host.ssh("build", "echo hi").stdout == b"hi\n"


def test_an_open_door_is_used_without_libraries(ssh_server):
    with place_for_sockets() as place:
        # Long enough for the slowest machine; the test ends the door itself.
        host = SshHost(place, ssh_server.url, options=("--linger", "600"))
        report = place / "report"
        words = f"--key-dir {place}/state/exec-server/ssh --linger 600"
        program = f"{sys.executable} -X importtime -P -m exec_server ssh-proxy {words}"
        try:
            host.ssh("build", "true")
            command = f"ProxyCommand={program} %n 2> {report}"
            assert host.ssh("-o", command, "build", "echo here").stdout == b"here\n"
            assert len(doors(host)) == 1
        finally:
            end_door(host)
        modules = loaded(report.read_text())
        assert "exec_server.ssh_door.open_doors" in modules
        heavy = ("typing", "argparse", "asyncio", "msgspec", "socket", "pathlib", "asyncssh")
        assert not unwanted(modules, *heavy, "hashlib", "threading", "exec_server.cli.commands")
        assert own(modules) <= 20


def test_a_door_is_for_the_same_words_and_variables_only(tmp_path):
    plain = door_path(tmp_path, ["build"], {"HOME": "/a", "COLUMNS": "80"})
    assert plain == door_path(tmp_path, ["build"], {"HOME": "/a", "COLUMNS": "90"})
    assert plain != door_path(tmp_path, ["build"], {"HOME": "/b"})
    assert plain != door_path(tmp_path, ["other"], {"HOME": "/a"})
    assert plain != door_path(tmp_path, ["build"], {"HOME": "/a", "EXEC_SERVER_TOKEN": "x"})


@pytest.mark.parametrize("is_file", [True, False])
def test_what_is_left_of_a_door_is_no_door(tmp_path, is_file):
    path = tmp_path / "door"
    if is_file:
        os.mknod(path)
    assert find_door(path) is None


# Listens as another user, and welcomes the first connection.
STRANGER = """
import os, socket, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("listens", flush=True)
    listener.accept()[0].send(bytes(1))
    sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@requirement("ssh:private")
def test_the_door_of_another_user_is_no_door(tmp_path):
    with place_for_sockets() as place:
        place.chmod(0o777)
        path = place / "door"
        words = ["/usr/bin/env", "python3", "-I", "-c", STRANGER, str(path)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == b"listens\n"
            assert find_door(path) is None
            stranger.kill()


@contextlib.contextmanager
def no_descriptors_left() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    copies: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                copies.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for each in copies:
            os.close(each)


@requirement("ssh:linger")
async def test_a_lack_of_descriptors_ends_no_connection(tmp_path):
    with place_for_sockets() as place, contextlib.ExitStack() as stack:
        served: list[socket.socket] = []
        has_two = asyncio.Event()

        async def serve_one(sock: socket.socket) -> None:
            served.append(stack.enter_context(sock))
            if len(served) == 2:
                has_two.set()
            await asyncio.get_running_loop().create_future()

        first, other = socket.socketpair()
        stack.enter_context(other)
        keeper = Doorkeeper(place / "door", serve_one, linger=60)
        async with asyncio.timeout(PATIENCE):
            running = asyncio.create_task(keeper.run(first))
            # It listens at once.
            await asyncio.sleep(0)
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            with no_descriptors_left():
                client.connect(str(place / "door"))
                # The keeper has tried to accept it by then.
                for _ in range(20):
                    await asyncio.sleep(0)
            assert not running.done()
            await has_two.wait()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
