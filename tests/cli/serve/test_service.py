"""A server as a service: socket activation, notices to systemd, and who may use a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from exec_server.cli.serve.serve_options import parse_serve
from tests.requirements import requirement
from tests.support.deployed import DEPLOY, PROGRAM, needs, run, unit_text, unit_words
from tests.support.leaks import eventually
from tests.support.servers import OURS, ServerProcess, start_server
from tests.support.wire import PATIENCE, Wire

# Becomes the server as systemd starts it: with descriptors from 3 on, and its own process id.
ACTIVATED = """
import os, sys
count, *words = sys.argv[1:]
fds = [int(fd) for fd in count.split(",")] if count else []
for number, fd in enumerate(fds):
    os.dup2(fd, 100 + number)
for number, _ in enumerate(fds):
    os.dup2(100 + number, 3 + number)
    os.close(100 + number)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES="x")
os.execv(words[0], words)
"""
# Speaks plain lines to a Unix socket, and prints the beginning of the answer.
LINES = """
import socket, sys
with socket.socket(socket.AF_UNIX) as sock:
    sock.settimeout(60)
    sock.connect(sys.argv[1])
    sock.sendall(b'{"id":1,"method":"initialize","params":{"clientName":"x"}}\\n')
    print(sock.recv(20))
"""


@contextlib.contextmanager
def activated(
    *socks: socket.socket, options: tuple[str, ...] = (), log: Path | None = None
) -> Iterator[ServerProcess]:
    fds = ",".join(str(sock.fileno()) for sock in socks)
    with start_server(
        "--listen",
        "systemd",
        *options,
        command=[sys.executable, "-c", ACTIVATED, fds, *OURS],
        log=log,
        pass_fds=[sock.fileno() for sock in socks],
    ) as server:
        yield server


@contextlib.contextmanager
def listening(host: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.create_server((host, 0)) as sock:
        yield sock


# Socket activation.


@pytest.mark.one_loop
@requirement("service:activation")
async def test_a_server_serves_the_socket_that_systemd_passes():
    with listening() as sock, activated(sock) as server:
        assert server.url == f"ws://127.0.0.1:{sock.getsockname()[1]}"
        async with Wire(server.url) as wire:
            await wire.initialize()
            found = await wire.run("p", ["sh", "-c", "env; ls -l /proc/self/fd"])
            # Neither the variables nor the socket reach commands.
            assert b"LISTEN_" not in found.stdout and b"socket:" not in found.stdout
        server.process.terminate()
        assert server.wait() == 0
        # The socket stays with systemd, and a client that comes now waits for the next server.
        with socket.create_connection(sock.getsockname(), timeout=60):
            pass


@pytest.mark.one_loop
@requirement("service:activation")
async def test_a_unix_socket_of_systemd_is_not_removed(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
        with activated(sock) as server:
            assert server.url == f"unix://{path}"
            async with Wire(server.url) as wire:
                await wire.initialize()
            server.process.terminate()
            assert server.wait() == 0
    assert path.exists()


def refusal(*words: str, command: list[str] | None = None, fds: tuple[int, ...] = ()) -> str:
    done = subprocess.run(
        [*(command or OURS), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        pass_fds=fds,
    )
    assert done.returncode == 1 and not done.stdout, done
    return done.stderr


@requirement("service:activation-refusals")
def test_sockets_that_cannot_be_served_are_refused():
    as_service = [sys.executable, "-c", ACTIVATED]
    listen = ("--listen", "systemd")
    assert "needs a socket from systemd" in refusal(*listen)
    assert "needs a socket from systemd" in refusal(*listen, command=[*as_service, "", *OURS])
    with listening() as one, listening() as two, socket.socket() as deaf, listening("") as public:
        both = (one.fileno(), two.fileno())
        command = [*as_service, ",".join(map(str, both)), *OURS]
        assert "has passed 2 sockets" in refusal(*listen, command=command, fds=both)
        for sock, text in (
            (deaf, "does not listen"),
            (public, "refusing to listen on ws://0.0.0.0"),
        ):
            command = [*as_service, str(sock.fileno()), *OURS]
            assert text in refusal(*listen, command=command, fds=(sock.fileno(),))


# Notices.


class Manager:
    """The end of systemd: a datagram socket, and what was said there."""

    def __init__(self, name: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind("\0" + name[1:] if name.startswith("@") else name)
        self.sock.setblocking(False)

    async def heard(self) -> dict[str, str]:
        """The next notice that does not feed the watchdog."""
        while (found := await self.next()) == {"WATCHDOG": "1"}:
            pass
        return found

    async def next(self) -> dict[str, str]:
        async with asyncio.timeout(PATIENCE):
            data = await asyncio.get_running_loop().sock_recv(self.sock, 4096)
        return dict(line.split("=", 1) for line in data.decode().splitlines())


@pytest.mark.one_loop
@requirement("service:notify")
@pytest.mark.parametrize("is_abstract", [False, True])
async def test_systemd_hears_of_the_start_each_reload_and_the_end(tmp_path, is_abstract):
    name = f"@exec-server-test-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    manager, token = Manager(name), tmp_path / "token"
    token.write_text("x")
    token.chmod(0o600)
    options = ("--ws-auth", "capability-token", "--ws-token-file", str(token))
    with (
        contextlib.closing(manager.sock),
        start_server(*options, env={"NOTIFY_SOCKET": name}, log=tmp_path / "log") as server,
    ):
        ready = {"READY": "1", "STATUS": f"listening on {server.url}"}
        assert await manager.heard() == ready
        server.signal(signal.SIGHUP)
        reloading = await manager.heard()
        assert reloading["RELOADING"] == "1" and int(reloading["MONOTONIC_USEC"]) > 0
        assert await manager.heard() == ready
        token.write_text("")
        server.signal(signal.SIGHUP)
        assert "RELOADING" in await manager.heard()
        broken = await manager.heard()
        assert broken["READY"] == "1" and "a file is broken" in broken["STATUS"]
        async with Wire(server.url, headers={"Authorization": "Bearer x"}) as wire:
            await wire.initialize()
            assert b"NOTIFY_SOCKET" not in (await wire.run("p", ["env"])).stdout
        server.process.terminate()
        assert (await manager.heard())["STOPPING"] == "1"
        assert server.wait() == 0


@pytest.mark.one_loop
@requirement("service:watchdog")
async def test_the_watchdog_is_fed_while_the_event_loop_runs(tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    with contextlib.closing(manager.sock), start_server(env=env) as server:
        assert (await manager.next())["READY"] == "1"
        for _ in range(5):
            assert await manager.next() == {"WATCHDOG": "1"}
        # A server that hangs says nothing.
        os.kill(server.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, server.pid, os.WSTOPPED | os.WNOWAIT)
        with contextlib.suppress(BlockingIOError):
            while manager.sock.recv(100):
                pass
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await manager.next()
        os.kill(server.pid, signal.SIGCONT)
        assert await manager.next() == {"WATCHDOG": "1"}


@pytest.mark.one_loop
@requirement("service:watchdog")
async def test_the_watchdog_of_another_process_is_not_fed(tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
    with contextlib.closing(manager.sock), start_server(env=env) as server:
        assert (await manager.next())["READY"] == "1"
        server.process.terminate()
        assert (await manager.next())["STOPPING"] == "1"


@pytest.mark.one_loop
async def test_a_service_manager_that_is_away_harms_nothing(tmp_path):
    log = tmp_path / "log"
    env = {"NOTIFY_SOCKET": str(tmp_path / "nothing")}
    with start_server("--log-level", "warning", env=env, log=log) as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
        await eventually(lambda: "systemd could not be told" in log.read_text())


# Unix sockets.


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that other users can enter."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@requirement("service:unix-socket")
@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ([], 0o600),
        (["--unix-socket-mode", "0660"], 0o660),
        (["--unix-socket-mode", "777"], 0o777),
        (["--unix-socket-group", str(os.getgid())], 0o660),
        (["--unix-socket-group", str(os.getgid()), "--unix-socket-mode", "0620"], 0o620),
    ],
)
def test_the_mode_of_a_unix_socket(folder, words, mode):
    with start_server("--listen", f"unix://{folder}/socket", *words):
        found = os.stat(folder / "socket")
        assert stat.S_IMODE(found.st_mode) == mode and found.st_gid == os.getgid()
    assert not (folder / "socket").exists()


@requirement("service:unix-socket")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
def test_the_group_of_a_unix_socket_and_no_other_user_may_connect(folder):
    words = ["--unix-socket-group", "4321"]
    with start_server("--listen", f"unix://{folder}/socket", *words):
        for groups, is_in in (([4321], True), ([], False)):
            done = subprocess.run(
                ["/usr/bin/env", "python3", "-c", LINES, str(folder / "socket")],
                capture_output=True,
                text=True,
                user=65534,
                group=65534,
                extra_groups=groups,
                env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
                cwd="/",
                timeout=30,
                check=False,
            )
            assert ('"result"' in done.stdout) is is_in, done
            assert ("PermissionError" in done.stderr) is not is_in, done


@requirement("service:unix-socket")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--listen", "unix:///x/y", "--unix-socket-group", "no-such-group"], "there is no group"),
        (["--unix-socket-mode", "0660"], "need --listen unix://PATH"),
        (["--listen", "systemd", "--unix-socket-group", "0"], "SocketGroup="),
    ],
)
def test_wrong_permissions_are_refused(words, text):
    assert text in refusal(*words)


def test_a_mode_that_is_none_is_a_usage_error():
    done = subprocess.run(
        [*OURS, "--listen", "unix:///x/y", "--unix-socket-mode", "rw"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2 and "octal" in done.stderr


# The unit files.


@requirement("service:units")
def test_systemd_understands_the_units(tmp_path):
    tool = needs("systemd-analyze")
    files = [tmp_path / f"exec-server-plain.{kind}" for kind in ("service", "socket")]
    for file in files:
        # The tool checks that the program exists.
        file.write_text(unit_text(file.name).replace(PROGRAM, "/bin/true"))
    assert run(tool, "verify", "--man=no", *map(str, files)).strip() == ""


@requirement("service:units")
def test_the_unit_starts_a_server_that_can_be_reloaded():
    options = parse_serve(unit_words("exec-server-plain.service"), {})
    assert options.listen == "systemd" and options.auth.mode == "capability-token"
    assert options.operator.tls_cert and options.operator.tls_key and options.operator.metrics
    assert options.audit.file == "/var/log/exec-server/audit.log"
    text = (DEPLOY / "systemd" / "exec-server-plain.service").read_text()
    assert "Type=notify\n" in text and "ExecReload=/bin/kill -HUP $MAINPID\n" in text
    assert "LogsDirectory=exec-server\n" in text and "LogsDirectoryMode=0700\n" in text
