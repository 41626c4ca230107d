"""Binding TCP addresses."""

from __future__ import annotations

import re
import socket
import subprocess

import pytest

from exec_server.errors import ConfigurationError
from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.servers import OURS, start_server
from tests.support.wire import Wire


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "[::1]"])
@requirement("listen:bound-url")
async def test_the_url_has_the_port_that_was_bound(no_leaks, host):
    if host == "[::1]" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    async with serve(f"ws://{host}:0") as server:
        assert re.fullmatch(rf"ws://{re.escape(host)}:[1-9][0-9]+", server.url)
        async with Wire(server.url) as wire:
            await wire.initialize()
            await wire.send("not JSON")
            peer, port = wire.socket.local_address[:2]
            shown = f"[{peer}]:{port}" if ":" in peer else f"{peer}:{port}"
            message = (await wire.receive())["error"]["message"]
            assert f"exec-server websocket {shown}: " in message


async def test_a_server_that_is_left_at_once_leaves_nothing(no_leaks):
    async with serve():
        pass


@requirement("listen:in-use")
async def test_an_address_in_use_is_refused(server):
    with pytest.raises(
        ConfigurationError, match=rf"^Address in use \(os error 98\): {server.url}$"
    ):
        async with serve(server.url):
            pass


@requirement("listen:in-use")
async def test_an_address_that_is_not_ours_is_refused(no_leaks):
    with pytest.raises(ConfigurationError, match="os error 99"):
        async with serve("ws://192.0.2.1:0", insecure_no_auth=True):
            pass


@requirement("listen:public-needs-auth")
async def test_a_public_address_needs_a_token(no_leaks):
    with pytest.raises(ConfigurationError, match=r"--ws-auth.*--insecure-no-auth"):
        async with serve("ws://0.0.0.0:0"):
            pass
    async with serve("ws://0.0.0.0:0", authenticator=CapabilityToken(bytes(32))) as server:
        assert server.url.startswith("ws://0.0.0.0:")
    async with serve("ws://0.0.0.0:0", insecure_no_auth=True) as server:
        assert server.url.startswith("ws://0.0.0.0:")


@pytest.mark.one_loop
@requirement("listen:one-line")
async def test_the_command_prints_the_url_and_nothing_else():
    with start_server("--listen", "ws://127.0.0.1:0") as server:
        assert re.fullmatch(r"ws://127\.0\.0\.1:[1-9][0-9]+", server.url)
        async with Wire(server.url) as wire:
            await wire.initialize()
            await wire.run("p", ["echo", "hello"])
            await wire.send({"method": "no/such"})
            await wire.closed()
        server.process.terminate()
        assert server.wait() == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == b""


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["--listen", "http://127.0.0.1:0"], 1),
        (["--listen", "ws://localhost:0"], 1),
        (["--listen", "WS://127.0.0.1:0"], 1),
        (["--listen", "ws://0.0.0.0:0"], 1),
        (["--ws-auth", "capability-token"], 1),
        (["--concurrent-requests", "0"], 2),
        (["--no-such-option"], 2),
    ],
)
@requirement("listen:start-up-failure")
def test_a_server_that_cannot_start_says_why_on_stderr_alone(options, status):
    failed = subprocess.run([*OURS, *options], capture_output=True, timeout=20, check=False)
    assert (failed.returncode, failed.stdout) == (status, b"")
    assert failed.stderr


@pytest.mark.one_loop
@requirement("listen:start-up-failure", "listen:in-use")
async def test_a_command_whose_address_is_in_use_exits_with_1(server):
    failed = subprocess.run(
        [*OURS, "--listen", server.url], capture_output=True, timeout=20, check=False
    )
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert failed.stderr == f"Error: Address in use (os error 98): {server.url}\n".encode()
