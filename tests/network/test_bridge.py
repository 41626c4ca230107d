"""Listeners inside of a network namespace, served from outside."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from contextlib import contextmanager

import msgspec
import pytest

from exec_server.limits import Limits
from exec_server.network.bridge import Bridge, BridgeFailed, listen_inside
from exec_server.network.proxy import ManagedProxy
from exec_server.network.proxy_environment import NoProxy
from exec_server.protocol import network
from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.proxied import Decides, origin, wanted

BWRAP = shutil.which("bwrap") or ""
CURL = shutil.which("curl")
pytestmark = [
    pytest.mark.skipif(not BWRAP, reason="no bubblewrap here"),
    pytest.mark.one_loop,
]


class Held:
    """bubblewrap, held before its command; `pid` is the first process of its namespaces."""

    def __init__(self, argv, env):
        self._go, theirs = os.pipe()[::-1]
        info, told = os.pipe()
        options = ["--unshare-user", "--unshare-pid", "--unshare-net", "--die-with-parent"]
        options += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
        options += ["--info-fd", str(told), "--block-fd", str(theirs)]
        self.process = subprocess.Popen(
            [BWRAP, *options, "--", *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs, told),
            env={"PATH": os.environ["PATH"], **env},
        )
        os.close(theirs)
        os.close(told)
        with open(info, encoding="utf-8") as file:
            self.pid = json.load(file)["child-pid"]

    async def finish(self):
        os.write(self._go, b"go")
        output, _ = await asyncio.to_thread(self.process.communicate, timeout=60)
        return output.decode()

    def close(self):
        os.close(self._go)
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def held(argv, env=None):
    made = Held(argv, env or {})
    try:
        yield made
    finally:
        made.close()


def managed(client, **members):
    return ManagedProxy(
        "p",
        msgspec.convert(wanted(**members), network.NetworkProxy),
        client=client,
        limits=Limits(),
        server_env={},
    )


async def confined(bridge, script, env=None):
    """Return what a shell prints whose only way out is *bridge*."""
    with held(["sh", "-c", script], {**(env or {}), **bridge.environment}) as sandbox:
        try:
            await bridge.open(sandbox.pid)
            return await sandbox.finish()
        finally:
            bridge.close()
            await asyncio.sleep(0)


@requirement("network/enforced:only-the-proxy")
@pytest.mark.skipif(not CURL, reason="no curl here")
async def test_a_confined_process_reaches_what_its_proxy_allows_and_nothing_else(no_leaks):
    client = Decides()
    async with origin() as (_, port):
        bridge = Bridge(managed(client, domains={"127.0.0.1": "allow"}), {}, limits=Limits())
        here = f"http://127.0.0.1:{port}/"
        script = (
            f"curl -sS -m 10 {here}; echo; "
            f"curl -sS -m 10 -p -x $HTTP_PROXY {here}; echo; "
            f"curl -sS -m 10 -x $ALL_PROXY {here}; echo; "
            "curl -sS -m 10 -o /dev/null -w '%{http_code}\\n' http://wrong.invalid/; "
            f"curl -s -m 10 --noproxy '*' {here}; echo direct $?"
        )
        output = await confined(bridge, script)
    assert output == "ok\nok\nok\n403\ndirect 7\n"
    assert [event.protocol for event in client.told] == [
        "http",
        "https_connect",
        "socks5_tcp",
        "http",
    ]
    assert client.told[-1].reason == "not_allowed"


@requirement("network/enforced:named-proxies")
@pytest.mark.skipif(not CURL, reason="no curl here")
async def test_a_loopback_proxy_of_the_environment_is_reached_at_a_new_port(no_leaks):
    async with origin() as (server, port):
        env = {"http_proxy": f"http://u:p@localhost:{port}/", "NO_PROXY": "x", "OTHER": "kept"}
        bridge = Bridge(None, env, limits=Limits())
        output = await confined(
            bridge, "echo $http_proxy $NO_PROXY $OTHER; curl -sS -m 10 http://some.invalid/x", env
        )
    assert output == f"http://u:p@127.0.0.1:{bridge.ports[0]}/ x kept\nok"
    assert server.heads[0].startswith(b"GET http://some.invalid/x HTTP/1.1\r\n")


@requirement("network/enforced:fails-closed")
async def test_a_process_without_a_network_of_its_own_gets_no_listeners():
    with pytest.raises(BridgeFailed, match="no network of its own"):
        await listen_inside(os.getpid(), [free_port()], seconds=10)


@requirement("network/enforced:fails-closed")
async def test_a_process_that_is_gone_gets_no_listeners():
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(BridgeFailed):
        await listen_inside(process.pid, [free_port()], seconds=10)


@requirement("network/enforced:fails-closed")
@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({}, "managed proxy mode requires proxy environment variables"),
        ({"NO_PROXY": "x"}, "managed proxy mode requires proxy environment variables"),
        (
            {"HTTP_PROXY": "http://192.0.2.1:80", "ALL_PROXY": "::::"},
            "managed proxy mode requires parseable loopback proxy endpoints",
        ),
    ],
)
async def test_a_confined_process_needs_a_proxy(env, text):
    with pytest.raises(NoProxy, match=text):
        Bridge(None, env, limits=Limits())
