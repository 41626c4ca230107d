"""ssh connections go on when the connection to the server, or the server itself, is gone."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import subprocess
from collections.abc import AsyncIterator

import pytest

from exec_server import connect
from exec_server.ssh_door.sftp_files import SftpFile
from tests.requirements import requirement
from tests.support.durable import StateServers
from tests.support.fault_proxy import fault_proxy
from tests.support.ports import free_port
from tests.support.pty_program import PtyProgram
from tests.support.servers import OURS
from tests.support.ssh_host import PATIENCE, SshHost, end_ssh, needed, place_for_sockets

pytestmark = pytest.mark.one_loop


@contextlib.asynccontextmanager
async def talking(host: SshHost, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        "ssh",
        *host.options,
        *words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=host.env,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def say(process: asyncio.subprocess.Process, line: bytes, answer: bytes) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(line)
    async with asyncio.timeout(PATIENCE):
        assert await process.stdout.readline() == answer


@requirement("ssh:lost-connection")
async def test_a_command_goes_on_after_a_lost_connection(server):
    needed("ssh")
    with place_for_sockets() as place:
        async with fault_proxy(server.url) as proxy:
            host = await asyncio.to_thread(SshHost, place, proxy.url)
            script = "while read x; do echo got $x; done; exit 3"
            async with talking(host, "build", script) as ssh:
                await say(ssh, b"1\n", b"got 1\n")
                proxy.cut()
                await say(ssh, b"2\n", b"got 2\n")
                proxy.cut()
                assert ssh.stdin is not None
                ssh.stdin.close()
                async with asyncio.timeout(PATIENCE):
                    assert await ssh.wait() == 3


@requirement("ssh:lost-connection")
async def test_an_open_file_goes_on_after_a_lost_connection(server, tmp_path):
    content = os.urandom(5_000_000)
    async with fault_proxy(server.url) as proxy, connect(proxy.url) as client:
        path = os.fsencode(tmp_path / "file")
        written = SftpFile(client.fs, path, "replace")
        await written.open()
        for start in range(0, len(content), 250_000):
            if start == 2_500_000:
                await written.flush()
                proxy.cut()
            await written.write(start, content[start : start + 250_000])
        await written.close()
        assert (tmp_path / "file").read_bytes() == content
        read = SftpFile(client.fs, path, "read")
        await read.open()
        got = await read.read(0, 1000)
        proxy.cut()
        got += await read.read(1000, 3_000_000)
        got += await read.read(len(got), 3_000_000)
        await read.close()
    assert got == content


async def test_an_open_file_is_read_here_and_there_and_grows(server, tmp_path):
    async with connect(server.url) as client:
        path = tmp_path / "file"
        path.write_bytes(bytes(range(256)) * 10_000)
        file = SftpFile(client.fs, os.fsencode(path), "update")
        await file.open()
        assert await file.read(2_000_003, 4) == path.read_bytes()[2_000_003:2_000_007]
        assert await file.read(0, 4) == bytes(range(4))
        assert await file.read(2_560_000, 10) == b""
        await file.write(2_560_000, b"more")
        assert await file.read(2_559_999, 10) == b"\xffmore"
        await file.write(1, b"X")
        assert await file.read(0, 3) == b"\0X\2"
        with path.open("ab") as other:
            other.write(b"!")
        assert await file.read(2_560_004, 10) == b"!"
        await file.close()


@requirement("ssh:killed-server")
def test_a_terminal_goes_on_after_the_server_was_killed(tmp_path):
    needed("ssh")
    servers = StateServers(tmp_path / "state", "--listen", f"ws://127.0.0.1:{free_port()}")
    with contextlib.closing(servers), place_for_sockets() as place:
        host = SshHost(place, servers.url)
        script = "echo ready; while read x; do echo got-$x; done"
        with PtyProgram(["ssh", *host.options, "-t", "build", script], env=host.env) as terminal:
            terminal.start()
            terminal.until(b"ready")
            terminal.type(b"1\r")
            terminal.until(b"got-1")
            servers.restart(signal.SIGKILL)
            terminal.type(b"2\r")
            terminal.until(b"got-2")
            terminal.type(b"\x04")
            assert terminal.wait() == 0


@requirement("ssh:attach")
def test_ssh_attaches_to_a_process_and_leaves_it_running(ssh_server):
    with place_for_sockets() as place:
        host = SshHost(place, ssh_server.url)
        script = "echo first; while read x; do echo got-$x; done; exit 6"
        done = host.call(*OURS, "run", "--detach", "--tty", "build", "--", "sh", "-c", script)
        process = done.stdout.decode().strip()
        words = ["ssh", *host.options, "-t", f"build%{process}"]
        with PtyProgram(words, env=host.env) as terminal:
            terminal.start()
            terminal.until(b"first")
            terminal.type(b"1\r")
            terminal.until(b"got-1")
            # The escape key of ssh.
            terminal.type(b"\r~.")
            assert terminal.wait() == 255
        # The end of what is piped into ssh is not the end of the input of the process.
        with subprocess.Popen(
            ["ssh", *host.options, f"build%{process}"],
            env=host.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as piped:
            assert piped.stdin is not None and isinstance(piped.stdout, io.BufferedReader)
            piped.stdin.write(b"piped\n")
            piped.stdin.close()
            shown = b""
            while b"got-piped" not in shown:
                shown += piped.stdout.read1()
            end_ssh(piped)
        with PtyProgram(words, env=host.env) as terminal:
            terminal.start()
            terminal.type(b"2\r")
            terminal.until(b"got-2")
            terminal.type(b"\x04")
            assert terminal.wait() == 6
        failed = host.ssh("build%nosuch", status=255)
        assert b"there is no job `nosuch`" in failed.stderr
