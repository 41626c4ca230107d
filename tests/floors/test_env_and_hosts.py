"""Variables that are hidden, hosts that are closed, and limits that have a ceiling."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from exec_server.access.principal import SandboxFloor
from exec_server.protocol import process
from exec_server.protocol.resources import ResourceLimits
from exec_server.server.floors.principal_floors import PrincipalFloors
from exec_server.state.env_floor import EnvFloor
from tests.floors.test_sandbox_floor import refused
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap
from tests.support.http_target import Line, Received, target
from tests.support.tenants import principal, serving
from tests.support.wire import ENV, Wire, start_params

pytestmark = pytest.mark.one_loop
INHERIT = {
    "inherit": "all",
    "ignoreDefaultExcludes": True,
    "exclude": [],
    "set": {},
    "includeOnly": [],
}


def test_patterns_of_variables():
    floor = EnvFloor(["PATH", "LC_*"], ["lc_secret"])
    server = {"PATH": "p", "LC_ALL": "C", "LC_SECRET": "s", "HOME": "/"}
    assert floor.inherited(server) == {"PATH": "p", "LC_ALL": "C"}
    assert floor.first_hidden(["A", "LC_Secret"]) == "LC_Secret"
    assert floor.first_hidden(["A", "LC_SECRET=x"]) == "LC_SECRET"
    assert EnvFloor([], []).inherited(server) == server
    assert EnvFloor([], []).first_hidden([*server, ""]) is None


@requirement("floors/env:hidden")
async def test_hidden_variables_are_neither_inherited_nor_set(no_leaks, monkeypatch):
    monkeypatch.setenv("FLOOR_SECRET", "of the operator")
    monkeypatch.setenv("FLOOR_PLAIN", "for all")
    who = principal(hide_env=("LD_*", "FLOOR_SEC*"))
    async with serving(who) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        found = await wire.run("1", ["env"], env={}, envPolicy=INHERIT)
        assert b"FLOOR_PLAIN=for all" in found.stdout and b"FLOOR_SECRET" not in found.stdout
        message = "the floor of principal `ci` hides LD_PRELOAD (hide-env LD_* FLOOR_SEC*)"
        for env in ({"LD_PRELOAD": "x"}, {"LD_PRELOAD=/x.so:": "y"}):
            params = start_params("2", ["true"], env={**ENV, **env})
            assert await refused(wire, "process/start", params) == message
        policy = {**INHERIT, "set": {"ld_preload": "x"}}
        await refused(wire, "process/start", start_params("2", ["true"], envPolicy=policy))
        header = {"name": "x", "value": "", "valueEnvVar": "FLOOR_SECRET"}
        request = {"method": "GET", "url": "http://127.0.0.1:1/", "headers": [header]}
        error = await wire.error("http/request", {**request, "requestId": "r"})
        assert "requires executor environment variable FLOOR_SECRET" in error["message"]


@requirement("floors/env:kept")
async def test_only_kept_variables_are_inherited(no_leaks, monkeypatch):
    monkeypatch.setenv("FLOOR_PLAIN", "for all")
    async with serving(principal(keep_env=("PATH",))) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        found = await wire.run("1", ["env"], env={"MINE": "1"}, envPolicy=INHERIT)
        names = {line.partition(b"=")[0] for line in found.stdout.splitlines()}
        assert names == {b"PATH", b"MINE"}


async def answers(request: Received, line: Line) -> None:
    if request.path == "/away":
        await line.answer(302, b"", "Location: http://localhost:1/")
    else:
        await line.answer(200, b"here")


def asking(url: str) -> dict[str, Any]:
    return {"method": "GET", "url": url, "requestId": "r", "redirectPolicy": "follow"}


@requirement("floors/hosts:http")
async def test_http_requests_reach_only_the_hosts_of_the_floor(no_leaks):
    async with (
        serving(principal(hosts=("127.0.0.1", "*.allowed.test"))) as (running, _, refusals),
        target(answers) as there,
        Wire(running.url) as wire,
    ):
        await wire.initialize()
        assert (await wire.call("http/request", asking(f"{there.url}/")))["status"] == 200
        rule = "the hosts of principal `ci` are 127.0.0.1, *.allowed.test; "
        closed = [
            "http://localhost:1/",
            "http://allowed.test/",
            "http://127.0.0.1@localhost:1/",
            "http://[::1]:1/",
            "http://127.0.0.2:1/",
            f"{there.url}/away",
        ]
        for url in closed:
            message = await refused(wire, "http/request", asking(url))
            assert message.startswith(rule), (url, message)
        # Another spelling of the same address is the same host.
        other = f"http://0x7f000001:{there.port}/"
        assert (await wire.call("http/request", asking(other)))["status"] == 200
        assert {method for _, method, _ in refusals} == {"http/request"}


GET = """
import os, sys, urllib.request
proxy = os.environ.pop('HTTP_PROXY')
os.environ.clear()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({'http': proxy}))
for url in sys.argv[1:]:
    try:
        print(opener.open(url).status)
    except urllib.error.HTTPError as exc:
        print(exc.code, exc.headers.get('x-proxy-error'))
"""


@needs_bubblewrap
@requirement("floors/hosts:commands")
async def test_commands_reach_the_hosts_of_the_floor_through_a_proxy(no_leaks):
    floor = SandboxFloor(kind="read-only", network=True)
    who = principal(hosts=("127.0.0.1",), sandbox=floor)
    async with (
        serving(who) as (running, _, refusals),
        target(answers) as there,
        Wire(running.url) as wire,
    ):
        await wire.initialize()
        argv = [sys.executable, "-c", GET, f"{there.url}/", f"http://localhost:{there.port}/"]
        expected = b"200\n403 blocked-by-operator\n"
        found = await wire.run("1", argv)
        assert (found.stdout, found.stderr) == (expected, b"")
        # The rules of the client do not open what the floor closes, nor does its consent.
        proxy = {
            "enabled": True,
            "enableSocks5": False,
            "enableSocks5Udp": False,
            "allowUpstreamProxy": False,
            "dangerouslyAllowAllUnixSockets": False,
            "mode": "full",
            "allowLocalBinding": True,
            "domains": {"*": "allow"},
        }
        asked = {"networkProxy": {"proxy": proxy}}
        assert (await wire.run("2", argv, **asked)).stdout == expected
        # Without the proxy there is no way out.
        direct = f"import socket; socket.create_connection(('127.0.0.1', {there.port}))"
        found = await wire.run("3", [sys.executable, "-c", direct])
        assert found.exit_code != 0
        assert ("ci", "process/start") in {(name, method) for name, method, _ in refusals}


@requirement("floors/roots:need-a-sandbox")
async def test_hosts_without_a_sandbox_floor_hold_no_command(no_leaks):
    async with serving(principal(hosts=())) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        message = await refused(wire, "process/start", start_params("1", ["true"]))
        assert "hosts without a sandbox floor hold no command" in message


@requirement("floors/limits:lowest")
def test_a_start_gets_the_limits_of_the_floor_as_default_and_ceiling():
    who = principal(limits=ResourceLimits(memory=100, pids=5))
    floors = PrincipalFloors(who, server_env={}, refused=lambda rule: None)
    params = process.StartParams("1", ["true"], "file:///", {}, False)
    assert floors.start(params)[0].limits == ResourceLimits(memory=100, pids=5)
    params.limits = ResourceLimits(memory=50, pids=9, wall=1.0)
    assert floors.start(params)[0].limits == ResourceLimits(memory=50, pids=5, wall=1.0)
