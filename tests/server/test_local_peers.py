"""Which connections of this machine a server accepts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from exec_server.limits import DEFAULT_LIMITS
from exec_server.network.addresses import as_address
from exec_server.network.upstream import connect, made_for_a_command
from exec_server.process import confinement
from exec_server.server.local_peers import LocalPeers
from tests.requirements import requirement
from tests.sandbox.escape.users import user
from tests.support.backends import needs_bubblewrap, needs_landlock
from tests.support.children import child
from tests.support.proxied import wanted
from tests.support.servers import ServerProcess, start_server
from tests.support.wire import ENV, Wire

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel must tell the peer's user"),
    pytest.mark.one_loop,
]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
on_both_backends = pytest.mark.parametrize(
    "backend",
    [
        pytest.param("bubblewrap", marks=needs_bubblewrap),
        pytest.param("landlock", marks=needs_landlock),
    ],
)
# The Unix user `nobody`, by its usual number.
STRANGER = 65534
TOKEN = "a-token-for-these-tests"
SWITCHED = "HTTP/1.1 101 Switching Protocols"
FORBIDDEN = "HTTP/1.1 403 Forbidden"


def address_of(url: str) -> str:
    return url.removeprefix("ws://").removeprefix("unix://")


def called(url: str, *options: str) -> tuple[str, str]:
    """The status line, and the text, that a program outside of all sandboxes gets."""
    argv = child("calls_a_server.py", address_of(url), *options)
    return parsed(subprocess.run(argv, capture_output=True, check=True, timeout=30).stdout)


def parsed(output: bytes) -> tuple[str, str]:
    status, _, text = output.decode().strip().partition(" | ")
    return status.removesuffix(" |"), text


@pytest.fixture
def token_options(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return ["--ws-auth", "capability-token", "--ws-token-file", str(path)]


# Other users.


@as_root
@requirement("listen:other-users")
@pytest.mark.parametrize("url", ["ws://127.0.0.1:0", "ws://127.0.0.2:0", "ws://[::1]:0"])
def test_another_user_is_refused_and_told_why(url):
    with start_server("--listen", url) as server:
        status, text = called(server.url, f"uid={STRANGER}")
        assert status == FORBIDDEN
        assert "--allow-other-users" in text and str(STRANGER) in text
        assert called(server.url)[0] == SWITCHED


@as_root
@requirement("listen:other-users")
@pytest.mark.parametrize("trick", ["in-flight", "grandchild"])
def test_another_user_cannot_hide(trick):
    with start_server() as server:
        assert called(server.url, f"uid={STRANGER}", f"trick={trick}")[0] == FORBIDDEN


@as_root
@requirement("listen:other-users")
def test_a_unix_socket_that_anyone_may_open_still_serves_its_user_alone(open_folder):
    path = open_folder / "socket"
    with start_server("--listen", f"unix://{path}") as server:
        path.chmod(0o777)
        assert called(server.url, f"uid={STRANGER}")[0] == FORBIDDEN
        assert called(server.url, f"uid={STRANGER}", "lines")[0] in (
            "closed",
            "ConnectionResetError",
        )
        assert called(server.url)[0] == SWITCHED
        assert called(server.url, "lines")[0].startswith('{"id":1,"result"')


@as_root
@requirement("listen:other-users")
def test_other_users_are_accepted_if_that_is_allowed():
    with start_server("--allow-other-users") as server:
        assert called(server.url, f"uid={STRANGER}")[0] == SWITCHED


@as_root
@requirement("listen:other-users")
def test_another_user_who_has_the_token_is_accepted(token_options):
    with start_server(*token_options) as server:
        assert called(server.url, f"uid={STRANGER}", f"token={TOKEN}")[0] == SWITCHED
        assert called(server.url, f"uid={STRANGER}", "token=another")[0].split()[1] == "401"


@as_root
@requirement("listen:other-users")
def test_root_may_use_the_server_of_another_user():
    stranger = user("nobody")
    if stranger is None:
        pytest.skip("no Python that another user can run")
    with start_server(command=stranger.command, env={"PYTHONPATH": stranger.path}) as server:
        assert called(server.url)[0] == SWITCHED
        assert called(server.url, f"uid={STRANGER}")[0] == SWITCHED
        assert called(server.url, f"uid={STRANGER - 1}")[0] == FORBIDDEN


# Sandboxed commands.


def networked(backend: str) -> Any:
    """A sandbox that may read everything and use the network."""
    entry = {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}
    files = {"type": "restricted", "entries": [entry]}
    permissions = {"type": "managed", "file_system": files, "network": "enabled"}
    return {
        "permissions": permissions,
        "windowsSandboxLevel": "disabled",
        "useLegacyLandlock": backend == "landlock",
    }


@contextlib.contextmanager
def listening(kind: str, tmp_path: Any, token_options: list[str]) -> Iterator[ServerProcess]:
    options = {
        "tcp": [],
        "token": token_options,
        "everywhere": ["--listen", "ws://0.0.0.0:0", *token_options],
        "allowed": ["--allow-other-users"],
        "unix": ["--listen", f"unix://{tmp_path}/socket"],
    }[kind]
    with start_server(*options) as server:
        yield server


@contextlib.asynccontextmanager
async def connected(server: ServerProcess) -> AsyncIterator[Wire]:
    url = server.url.replace("0.0.0.0", "127.0.0.1")
    async with Wire(url, headers={"Authorization": f"Bearer {TOKEN}"}) as wire:
        await wire.initialize()
        yield wire


CALLS = [
    ("tcp", []),
    ("token", []),
    ("everywhere", []),
    ("allowed", []),
    ("unix", []),
    ("unix", ["lines"]),
    ("tcp", ["trick=in-flight"]),
    ("tcp", ["trick=grandchild"]),
    ("unix", ["trick=in-flight"]),
    ("unix", ["trick=grandchild"]),
]


@on_both_backends
@requirement("listen:from-a-sandbox")
@pytest.mark.parametrize(("kind", "options"), CALLS)
async def test_a_sandboxed_command_cannot_call_its_server(
    tmp_path, token_options, backend, kind, options
):
    with listening(kind, tmp_path, token_options) as server:
        address = address_of(server.url)
        argv = child("calls_a_server.py", address, f"token={TOKEN}", *options)
        async with connected(server) as wire:
            # The same call works without a sandbox, before and after.
            assert "101" in parsed((await wire.run("before", argv[:6])).stdout)[0]
            confined = await wire.run("p", argv, sandbox=networked(backend))
            if kind == "unix" and backend == "bubblewrap":
                # The socket is hidden from the sandbox, so nothing can connect to it. The parent
                # of a grandchild ends with status 0.
                assert confined.stdout == b""
                is_refused = b"PermissionError" in confined.stderr
                assert is_refused or "trick=grandchild" in options
                status = FORBIDDEN
            else:
                status, _ = parsed(confined.stdout)
            is_closed = "lines" in options and status in ("closed", "ConnectionResetError")
            assert status == FORBIDDEN or is_closed, confined.events
            assert "101" in parsed((await wire.run("after", argv[:6])).stdout)[0]
        # So does that of a client outside.
        async with connected(server) as wire:
            assert (await wire.run("q", ["echo", "served"])).stdout == b"served\n"


@needs_bubblewrap
@requirement("listen:from-a-sandbox")
async def test_a_file_helper_counts_as_a_sandbox(tmp_path):
    (tmp_path / "file").write_text("content")
    with start_server() as server:
        argv = child("calls_a_server.py", address_of(server.url))
        async with connected(server) as wire:
            params = {"path": f"file://{tmp_path}/file", "sandbox": networked("bubblewrap")}
            await wire.call("fs/readFile", params)
            # A command that confines itself is not told from one that the server confines.
            held = ["bwrap", "--unshare-user", "--ro-bind", "/", "/", "--", *argv]
            assert parsed((await wire.run("p", held)).stdout)[0] == FORBIDDEN


@needs_bubblewrap
@requirement("listen:from-a-sandbox")
async def test_the_proxy_of_a_command_does_not_call_the_server_for_it():
    with start_server() as server:
        address = address_of(server.url)
        call = " ".join(child("calls_a_server.py", address))
        script = f'{call} through="${{HTTP_PROXY##*:}}"'
        proxy = wanted(domains={"127.0.0.1": "allow"}, allowLocalBinding=True)
        async with connected(server) as wire:
            asked = {"networkProxy": proxy, "env": ENV}
            outside = await wire.run("p", ["sh", "-c", script], **asked)
            assert parsed(outside.stdout)[0] == SWITCHED, outside.events
            confined = await wire.run(
                "q", ["sh", "-c", script], sandbox=networked("bubblewrap"), **asked
            )
            assert parsed(confined.stdout)[0] == FORBIDDEN, confined.events


@as_root
@requirement("listen:other-users")
@pytest.mark.parametrize("proxies", [1, 2])
async def test_another_user_cannot_come_through_the_proxy_of_a_command(proxies):
    with start_server() as server:
        policy = wanted(domains={"127.0.0.1": "allow"}, allowLocalBinding=True)
        script = 'echo "${HTTP_PROXY##*:}"; cat'
        async with connected(server) as wire:
            ports = []
            for number in range(proxies):
                name = f"p{number}"
                asked = {"networkProxy": policy, "env": ENV, "pipeStdin": True}
                await wire.start(name, ["sh", "-c", script], **asked)
                ports.append((await wire.output_until(name, b"\n")).decode().strip())
            way = [f"through={','.join(ports)}"]
            call = partial(asyncio.to_thread, called, server.url, *way)
            assert (await call())[0] == SWITCHED
            assert (await call(f"uid={STRANGER}"))[0] == FORBIDDEN


async def test_a_connection_of_a_proxy_is_known_until_it_is_closed():
    with start_server() as server:
        address = as_address("127.0.0.1")
        assert address is not None
        port = int(server.url.rpartition(":")[2])
        with await connect([address], port, limits=DEFAULT_LIMITS) as sock:
            inode = os.fstat(sock.fileno()).st_ino
            assert made_for_a_command(inode)
        assert not made_for_a_command(inode)


@requirement("listen:from-a-sandbox")
async def test_connections_that_come_at_once_share_a_search_of_all_processes(monkeypatch):
    searches = []
    look = confinement.held_outside

    def counted(sockets: Any, *, server: int | None) -> set[int]:
        searches.append(len(sockets))
        return look(sockets, server=server)

    monkeypatch.setattr(confinement, "held_outside", counted)
    peers = LocalPeers(Confining(), allows_other_users=False)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        verdicts = []
        for _ in range(50):
            stack.enter_context(socket.create_connection(listener.getsockname()))
            accepted = stack.enter_context(listener.accept()[0])
            verdicts.append(peers.refusal(AcceptedTransport(accepted)))
        for verdict in verdicts:
            assert isinstance(verdict, asyncio.Future)
            assert await verdict is None
    assert sum(searches) == 50 and len(searches) <= 2


class Confining:
    """The facts about a server that has confined a command."""

    has_confined = True
    has_lost_keeper = False


class AcceptedTransport(asyncio.BaseTransport):
    def __init__(self, sock: socket.socket) -> None:
        super().__init__({"peername": sock.getpeername(), "sockname": sock.getsockname()})
