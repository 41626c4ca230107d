"""`exec-server port`: forwards, previews, lists, and what goes wrong."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket

import pytest

from exec_server.cli.port import port_runner
from exec_server.cli.port.port_specs import local_spec, preview_spec, remote_spec, socks_spec
from exec_server.client.streams.preview_front import host_label
from tests.requirements import requirement
from tests.support.cli import finished, line, running, status
from tests.support.fault_proxy import fault_proxy
from tests.support.listening import echo, listening
from tests.support.ports import free_port, free_ports
from tests.support.servers import start_server
from tests.support.wire import PATIENCE


@requirement("port/command:specs")
@pytest.mark.parametrize(
    ("text", "listen", "to"),
    [
        ("8080:localhost:3000", "localhost:8080", "localhost:3000"),
        ("8080:3000", "localhost:8080", "localhost:3000"),
        ("3000", "localhost:3000", "localhost:3000"),
        ("0.0.0.0:8080:db:5432", "0.0.0.0:8080", "db:5432"),
        ("*:8080:db:5432", "0.0.0.0:8080", "db:5432"),
        (":8080:db:5432", "0.0.0.0:8080", "db:5432"),
        ("[::1]:8080:[fd00::1]:80", "[::1]:8080", "[fd00::1]:80"),
        ("8080:/run/x.sock", "localhost:8080", "/run/x.sock"),
        ("/tmp/a:/run/b", "/tmp/a", "/run/b"),
        ("/tmp/a:db:5432", "/tmp/a", "db:5432"),
    ],
)
def test_forwards_are_written_as_for_ssh(text, listen, to):
    for read, kind in ((local_spec, "local"), (remote_spec, "remote")):
        spec = read(text)
        assert (spec.kind, str(spec.listen), str(spec.to)) == (kind, listen, to)


@requirement("port/command:specs")
@pytest.mark.parametrize(
    "text", ["", "x", "70000", "1:2:3:4:5", "1::2", "a:b", "[::1", "/a", "-1", "80:localhost:0"]
)
def test_a_wrong_forward_is_refused(text):
    for read in (local_spec, remote_spec):
        with pytest.raises(argparse.ArgumentTypeError):
            read(text)
    if text != "/a":
        with pytest.raises(argparse.ArgumentTypeError):
            socks_spec(text)
    with pytest.raises(argparse.ArgumentTypeError):
        preview_spec(text)


def test_the_name_of_a_server_becomes_a_part_of_a_host_name():
    assert host_label("build") == "build"
    assert host_label("My_Box") == "my-box"
    assert host_label("ws://127.0.0.1:4510?token=x") == "127-0-0-1-4510"
    assert host_label("unix://") == "unix"


async def web(reader, writer):
    """Answers a request with its own head, keeps the connection, and echoes what follows."""
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + head)
    await echo(reader, writer)


async def ask(port, text=b"hello"):
    return await ask_over(*await asyncio.open_connection("127.0.0.1", port), text)


async def ask_over(reader, writer, text=b"hello"):
    writer.write(text)
    writer.write_eof()
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.fixture
def home(tmp_path):
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}


async def facts_of(process):
    """The JSON list that a command prints once everything listens."""
    text = b""
    while not text.endswith(b"]\n"):
        text += await line(process)
    return json.loads(text)


@requirement("port/command:forwards", "port/command:list-close", "port/command:lost")
@requirement("port/preview:origin", "port/preview:host")
@pytest.mark.one_loop
async def test_a_command_with_all_kinds_of_forwards(server, home):
    async with (
        asyncio.timeout(3 * PATIENCE),
        fault_proxy(server.url) as proxy,
        listening(echo) as far,
        listening(web) as page,
    ):
        first, socks, back = free_ports(3)
        words = ["port", proxy.url, "-o", "json", "-L", f"{first}:localhost:{far}"]
        words += ["-D", str(socks), "-R", f"{back}:localhost:{far}", "--open", str(page)]
        async with running(*words, env=home) as process:
            facts = {each["kind"]: each for each in await facts_of(process)}
            assert facts["local"]["listen"] == f"127.0.0.1:{first}"
            assert facts["remote"]["listen"] == f"127.0.0.1:{back}"
            for _ in range(2):
                assert await ask(first) == b"hello"
                assert await ask(back) == b"hello"
                proxy.cut()
            await check_preview(facts["preview"]["url"])

            listed = json.loads((await finished("port", "list", "-o", "json", env=home)).stdout)
            assert [each["pid"] for each in listed] == [process.pid]
            shown = await finished("port", "list", server.url, env=home)
            assert f"127.0.0.1:{back}" in shown.stdout.decode()
            closed = await finished("port", "close", str(process.pid), env=home)
            assert closed.status == 0
            assert await status(process) == 0
        assert (await finished("port", "list", "-o", "json", env=home)).stdout == b"[]\n"


async def check_preview(url):
    host = url.removeprefix("http://").removesuffix("/")
    port = int(host.rpartition(":")[2])
    request = f"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n\r\n".encode()
    answer = await ask(port, request + b"frames")
    assert answer == b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + request + b"frames"
    for wrong in ("evil.test", f"127.0.0.1:{port}", f"p1.{host.partition('.')[2]}", "localhost"):
        answer = await ask(port, f"GET / HTTP/1.1\r\nHost: {wrong}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 421 "), wrong
    twice = f"GET / HTTP/1.1\r\nHost: {host}\r\nHost: evil.test\r\n\r\n".encode()
    assert (await ask(port, twice)).startswith(b"HTTP/1.1 421 ")


@requirement("port/command:lost")
@pytest.mark.one_loop
async def test_a_server_that_was_started_again_is_found(home, tmp_path):
    url = f"unix://{tmp_path}/server.sock"
    serving = ("--listen", url, "--state", "none")
    words = ["port", url, "-o", "json"]
    async with asyncio.timeout(2 * PATIENCE), listening(echo) as far:
        with contextlib.ExitStack() as servers:
            first = servers.enter_context(start_server(*serving, env=home))
            words += ["-L", f"0:localhost:{far}"]
            async with running(*words, env=home) as process:
                (facts,) = await facts_of(process)
                port = int(facts["listen"].rpartition(":")[2])
                assert await ask(port) == b"hello"
                first.signal(signal.SIGKILL)
                first.wait()
                servers.enter_context(start_server(*serving, env=home))
                # Asking until it works would fill the pipe with complaints, and stop the command.
                assert process.stderr is not None
                while b"connected again" not in (said := await process.stderr.readline()):
                    assert said, "it has ended"
                assert await ask(port) == b"hello"
                process.send_signal(signal.SIGINT)
                assert await status(process) == 0


@requirement("port/command:lost", "port/command:lost-listeners")
@pytest.mark.one_loop
async def test_what_listens_there_comes_back_after_the_end_of_the_server(home, tmp_path):
    url = f"unix://{tmp_path}/server.sock"
    rule = ("--stream-allow", f"unix:{tmp_path}/back.sock")
    serving = ("--listen", url, "--state", "none", *rule)
    async with asyncio.timeout(3 * PATIENCE), listening(echo) as near:
        with contextlib.ExitStack() as servers:
            first = servers.enter_context(start_server(*serving, env=home))
            words = ["port", url, "-o", "json", "-R", f"0:localhost:{near}"]
            words += ["-L", f"0:localhost:{near}", "-R", f"{tmp_path}/back.sock:localhost:{near}"]
            async with running(*words, env=home) as process:
                local, back, _ = await facts_of(process)
                port = int(back["listen"].rpartition(":")[2])
                first.signal(signal.SIGKILL)
                first.wait()
                # The file of its Unix socket is still there, and its port is taken for a while.
                assert (tmp_path / "back.sock").is_socket()
                taken = socket.create_server(("127.0.0.1", port))
                servers.enter_context(taken)
                servers.enter_context(start_server(*serving, env=home))
                await said(process, f"-R 127.0.0.1:{port}: cannot listen")
                await said(process, "connected again")
                assert await ask(int(local["listen"].rpartition(":")[2])) == b"hello"
                assert (
                    await ask_over(*await asyncio.open_unix_connection(tmp_path / "back.sock"))
                    == b"hello"
                )
                taken.close()
                await said(process, f"-R 127.0.0.1:{port}: listens again")
                assert await ask(port) == b"hello"
                process.send_signal(signal.SIGINT)
                assert await status(process) == 0


async def said(process, text):
    """Wait until the command says *text*."""
    assert process.stderr is not None
    while text not in (told := (await process.stderr.readline()).decode()):
        assert told, "it has ended"


@requirement("port/command:errors")
@pytest.mark.one_loop
async def test_what_goes_wrong_is_said(server, home):
    free = free_port()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, code, text in (
            (["-L", f"{port}:localhost:1"], 1, f"cannot listen on localhost:{port}"),
            (["-R", f"{port}:localhost:1"], 1, f"cannot listen on 127.0.0.1:{port}"),
            (["-R", f"0.0.0.0:{free}:localhost:1"], 1, "--stream-allow listen:"),
            (["-L", "nonsense"], 2, "is not a port"),
            ([], 2, "nothing to forward"),
            (["-L", f"{free}:localhost:1", "--as-localhost"], 2, "'--as-localhost' is for"),
            (["--open", "1", "--preview-port", "65536"], 2, "`65536` is not a port"),
            (["--ports", "--preview-port", "1"], 2, "'--preview-port' is for"),
        ):
            done = await finished("port", server.url, *words, env=home)
            assert (done.status, text in done.stderr) == (code, True), done.stderr
    done = await finished("port", "close", "1", env=home)
    assert done.status == 1 and "no `exec-server port`" in done.stderr
    done = await finished("port", "close", env=home)
    assert done.status == 2


@requirement("port/command:errors")
def test_a_program_that_tries_again_and_again_is_told_of_once(monkeypatch):
    times = iter((0.0, 0.1, 0.9, 1.2, 1.3))
    monkeypatch.setattr(port_runner, "monotonic", lambda: next(times))
    told: list[str] = []
    runner = port_runner.PortRunner(
        lambda: pytest.fail("not opened"), [], server="box", say=told.append, on_ready=print
    )
    for text in ("refused", "refused", "refused", "refused", "another one"):
        runner._complain(text)
    assert told == ["refused", "refused", "another one"]
