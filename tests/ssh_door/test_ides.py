"""The shapes in which VS Code and JetBrains use OpenSSH, without these programs themselves."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.requirements import requirement
from tests.ssh_door.test_openssh_forwarding import exchange
from tests.ssh_door.test_vscode_bootstrap import SERVER
from tests.support.durable import is_running
from tests.support.ports import free_port
from tests.support.ssh_host import PATIENCE, SshHost, end_ssh

pytestmark = pytest.mark.timeout(180)

# Prints markers, unpacks what follows the script in its input, and leaves a server behind.
BOOTSTRAP = """\
printf 'marker: running\\n'
mkdir -p '{place}' && cd '{place}' || exit 1
head -c {size} | tar -xzf - || exit 2
nohup '{python}' server.py > log 2>&1 < /dev/null &
while [ ! -f port ]; do sleep 0.05; done
printf 'listeningOn==%s==\\n' "$(cat port)"
printf 'marker: end\\n'
"""


def archive() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, content in {"server.py": SERVER, "file": "hello\n"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content.encode()))
    return made.getvalue()


@contextlib.contextmanager
def listening(host: SshHost, *words: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A connection of its own that forwards; it has said that it listens."""
    ready = ("-o", "PermitLocalCommand=yes", "-o", "LocalCommand=echo ready")
    options = ("-S", "none", "-o", "ExitOnForwardFailure=yes", *ready)
    with host.popen(*options, *words, "build") as ssh:
        try:
            assert ssh.stdout is not None
            assert ssh.stdout.readline() == b"ready\n"
            socket.create_connection(("127.0.0.1", port), PATIENCE).close()
            yield ssh
        finally:
            if ssh.poll() is None:
                end_ssh(ssh)


def fetched(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        sock.sendall(b"GET /file HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: sock.recv(65536), b""))


def by_socks(proxy: int, port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", proxy), PATIENCE)
    sock.sendall(b"\5\1\0")
    assert sock.recv(2) == b"\5\0"
    sock.sendall(b"\5\1\0\1" + socket.inet_aton("127.0.0.1") + struct.pack(">H", port))
    assert sock.recv(10)[:2] == b"\5\0"
    return sock


@requirement("ssh:vscode")
def test_a_server_that_came_in_an_archive_outlives_its_command(unshared, tmp_path):
    """`ssh -T -D PORT build bash`, and then a second connection with -L."""
    packed, proxy, near = archive(), free_port(), free_port()
    script = BOOTSTRAP.format(place=tmp_path / "a b", size=len(packed), python=sys.executable)
    words = ("-T", "-D", f"127.0.0.1:{proxy}", "-o", "ConnectTimeout=15", "build", "bash", "-c")
    done = unshared.ssh(*words, f"'{_quoted(script)}'", input=packed)
    told = done.stdout.decode()
    assert told.startswith("marker: running\n") and told.endswith("marker: end\n")
    port, pid = map(int, told.partition("listeningOn==")[2].partition("==")[0].split())
    try:
        assert is_running(pid)
        with listening(unshared, "-N", "-L", f"{near}:127.0.0.1:{port}", port=near):
            for _ in range(3):
                assert fetched(near).endswith(b"\r\n\r\nhello\n")
    finally:
        os.kill(pid, signal.SIGKILL)


def _quoted(script: str) -> str:
    return script.replace("'", "'\\''")


@requirement("ssh:vscode")
def test_a_script_and_what_follows_it_come_by_standard_input(unshared, tmp_path):
    """bash reads its script byte by byte, so that what follows is left for the programs in it."""
    packed = archive()
    script = f"cd '{tmp_path}' && head -c {len(packed)} | tar -xzf - && cat file; exit 7\n"
    done = unshared.ssh("-T", "build", "bash", input=script.encode() + packed, status=7)
    assert done.stdout == b"hello\n"


@requirement("ssh:socks")
def test_fifty_connections_through_one_socks_proxy_at_a_time(unshared, echo):
    proxy = free_port()
    alive = ("-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=2")
    with listening(unshared, "-N", "-D", f"127.0.0.1:{proxy}", *alive, port=proxy) as ssh:
        for _ in range(2):
            with contextlib.ExitStack() as stack:
                opened = [stack.enter_context(by_socks(proxy, echo)) for _ in range(50)]
                with ThreadPoolExecutor(50) as threads:
                    list(threads.map(exchange, opened))
        assert ssh.poll() is None


@requirement("ssh:keepalive")
def test_keepalives_are_answered_while_a_command_is_silent(unshared):
    """Without answers ssh would leave after a second."""
    alive = ("-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=1")
    done = unshared.ssh(*alive, "-v", "build", "sleep 4; echo there")
    assert done.stdout == b"there\n"
    assert b"not responding" not in done.stderr


@requirement("ssh:vscode")
def test_many_commands_at_once_share_a_master(host):
    """A master has a limit of its own, and what is beyond it has a connection of its own."""
    with ThreadPoolExecutor(12) as threads:
        done = threads.map(lambda number: host.ssh("build", f"echo {number}").stdout, range(24))
        assert [int(each) for each in done] == list(range(24))


@requirement("ssh:jetbrains")
def test_an_archive_is_sent_by_sftp_and_used_in_a_terminal_and_a_port(unshared, tmp_path):
    data = random.Random(5).randbytes(1 << 20) * 100
    here, there = tmp_path / "idea.tar.gz", tmp_path / "cache" / "idea.tar.gz"
    here.write_bytes(data)
    batch = f"-mkdir {there.parent}\nput {here} {there}.part\nrename {there}.part {there}\n"
    unshared.call("sftp", *unshared.options, "-b", "-", "build", input=batch.encode())
    shown = unshared.ssh("-tt", "build", f"tty && sha256sum {there}")
    first, second = shown.stdout.decode().split("\r\n")[:2]
    assert first.startswith("/dev/pts/")
    assert second.split()[0] == hashlib.sha256(data).hexdigest()
