"""Environments by name: lazy, shared, several at once."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import exec_server
from exec_server.client.environments.environments_toml import URL_VARIABLE
from exec_server.client.environments.lazy import EnvironmentStatus
from exec_server.client.environments.manager import (
    EnvironmentFacts,
    EnvironmentManager,
    load_environments,
)
from exec_server.client.environments.open_environment import Connectors
from exec_server.errors import ConfigurationError, ConnectError, ConnectionClosed, SessionLost
from exec_server.limits import Limits
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.fault_proxy import fault_proxy
from tests.support.leaks import eventually
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")

PROGRAM = f'program = "{sys.executable}"\nargs = ["-m", "exec_server", "--listen", "stdio"]'


def environments(home: Path, text: str = "", **options: Any) -> EnvironmentManager:
    (home / "environments.toml").write_text(text)
    return exec_server.environments(home, {}, **options)


def entry(name: str, *lines: str) -> str:
    return "\n".join(["[[environments]]", f'id = "{name}"', *lines, ""])


# What there is.


@requirement("env/lookup")
def test_the_default_comes_first_and_secrets_are_left_out(tmp_path):
    manager = environments(
        tmp_path,
        'default = "b"\n'
        + entry("a", 'url = "ws://a/?sig=secret"', 'auth_bearer_token = "secret"')
        + entry("b", 'program = "ssh"', 'args = ["host", "a b"]', 'env = { K = "secret" }'),
    )
    assert manager.names == ("b", "local", "a") and manager.default == "b"
    assert manager.describe() == [
        EnvironmentFacts("b", "program", "ssh host 'a b'", True),
        EnvironmentFacts("local", "local", "this process", False),
        EnvironmentFacts("a", "websocket", "ws://a/", False),
    ]


@requirement("env/lookup")
def test_a_name_or_a_url_is_resolved(tmp_path):
    manager = environments(tmp_path, entry("a", 'url = "ws://a"'))
    assert manager.resolve("a").where == "ws://a"
    assert manager.resolve().id == "local"
    assert manager.resolve("unix:///path").where == "unix:///path"
    with pytest.raises(ConfigurationError, match="`b` is not configured; there are: local, a"):
        manager.resolve("b")


@requirement("env/lookup")
async def test_without_a_default_one_has_to_be_named(tmp_path):
    manager = load_environments(tmp_path, {URL_VARIABLE: "none"})
    assert manager.names == () and manager.default is None
    with pytest.raises(ConfigurationError, match="name one"):
        await manager.client()
    with pytest.raises(ConfigurationError, match="there are: none"):
        await manager.client("local")


# Lazy clients.


@requirement("env/lazy", "env/lookup")
async def test_the_first_use_connects_for_everybody(tmp_path, server):
    async with fault_proxy(server.url) as proxy:
        async with environments(tmp_path, entry("box", f'url = "{proxy.url}"')) as manager:
            assert proxy.connections == 0
            clients = await asyncio.gather(*(manager.client("box") for _ in range(5)))
            assert len(set(clients)) == 1 and proxy.connections == 1
            assert (await clients[0].run(["echo", "hi"])).stdout == b"hi\n"
        assert clients[0].state == "closed"


@requirement("env/lazy")
async def test_the_attempt_outlives_whoever_began_it(tmp_path, server):
    async with environments(tmp_path, entry("box", f'url = "{server.url}"')) as manager:
        first = asyncio.ensure_future(manager.client("box"))
        second = asyncio.ensure_future(manager.client("box"))
        await asyncio.wait({first}, timeout=0)
        first.cancel()
        assert (await second).is_connected
        assert first.cancelled()


@requirement("env/lazy:failure")
async def test_a_failure_that_may_pass_is_tried_again(tmp_path):
    url = f"unix://{tmp_path}/socket"
    async with exec_server.environments(tmp_path, {URL_VARIABLE: "ws://127.0.0.1:1"}) as manager:
        for _ in range(2):
            with pytest.raises(ConnectError):
                await manager.client()
        status = await manager.status()
        assert status.state == "disconnected" and "failed to connect" in str(status.error)
        async with serve(url), manager.connect(url) as box:
            assert await box.environment_status() == "ready"


@requirement("env/lazy:failure")
async def test_a_failure_that_will_not_pass_stays(tmp_path):
    text = entry("box", 'url = "ws://127.0.0.1:1"', 'auth_bearer_token_env = "NOT_SET"')
    async with environments(tmp_path, text) as manager:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="NOT_SET is not set"):
                await manager.client("box")


@requirement("env/lazy:new-session")
async def test_a_lost_session_is_replaced_by_a_new_one(tmp_path):
    async with serve() as server:
        env = {URL_VARIABLE: server.url}
        limits = Limits(recovery_window=0.05)
        manager = exec_server.environments(tmp_path, env, limits=limits)
        first = await manager.client()
    await eventually(lambda: first.state == "failed")
    async with manager, serve(server.url):
        second = await manager.client()
        assert second is not first and second.session_id != first.session_id
        assert await manager.status() == EnvironmentStatus("ready")


@requirement("env/lazy")
async def test_a_closed_manager_connects_nothing(tmp_path, server):
    manager = environments(tmp_path, entry("box", f'url = "{server.url}"'))
    waiting = asyncio.ensure_future(manager.client("box"))
    await asyncio.wait({waiting}, timeout=0)
    await manager.close()
    await manager.close()
    with pytest.raises(ConnectionClosed, match="closed"):
        await waiting
    with pytest.raises(ConnectionClosed, match="closed"):
        await manager.client("box")


# Programs and this process.


@requirement("env/program")
@pytest.mark.one_loop
async def test_a_program_is_started_on_first_use_and_ended(tmp_path):
    (tmp_path / "dir").mkdir()
    text = entry("box", PROGRAM, 'env = { WORD = "word" }', 'cwd = "dir"')
    async with environments(tmp_path, text) as manager:
        manager.warm_up()
        assert await manager.status("box") == EnvironmentStatus("pending")
        box = await manager.client("box")
        done = await box.run(["sh", "-c", "echo $PPID; pwd; echo $WORD"])
        _, cwd, word = done.stdout.decode().split()
        assert (cwd, word) == (str(tmp_path / "dir"), "word")
        assert await manager.status("box") == EnvironmentStatus("ready")


@requirement("env/lazy:new-session", "env/program")
@pytest.mark.one_loop
async def test_a_program_that_ends_is_not_started_again(tmp_path):
    async with environments(tmp_path, entry("box", PROGRAM)) as manager:
        box = await manager.client("box")
        assert box._session.connection is not None
        box._session.connection._peer._connection.abort()
        await eventually(lambda: box.state == "failed")
        assert await manager.client("box") is box
        with pytest.raises(SessionLost):
            await box.run(["true"])
        assert (await manager.status("box")).state == "disconnected"


@requirement("env/program", "env/lazy:failure")
async def test_a_program_that_does_not_start_is_a_fault_of_the_configuration(tmp_path):
    text = entry("box", 'program = "/no/such/program"')
    async with environments(tmp_path, text) as manager:
        with pytest.raises(ConfigurationError, match="cannot run `/no/such/program`"):
            await manager.client("box")


@requirement("env/several", "client/local")
async def test_several_environments_are_used_at_once(tmp_path, server):
    text = entry("one", f'url = "{server.url}"') + entry("two", f'url = "{server.url}"')
    async with environments(tmp_path, text) as manager, asyncio.timeout(PATIENCE):
        clients = await asyncio.gather(*map(manager.client, manager.names))
        done = await asyncio.gather(*(box.run(["echo", "hi"]) for box in clients))
        assert [each.stdout for each in done] == [b"hi\n"] * 3
        assert len({box.session_id for box in clients}) == 3


@requirement("client/local")
async def test_a_local_environment_takes_a_server_and_no_session(tmp_path):
    async with environments(tmp_path) as manager:
        async with manager.connect("local") as box:
            assert (await box.run(["true"])).returncode == 0
        with pytest.raises(ConfigurationError, match="cannot be resumed"):
            async with manager.connect("local", session_token="x"):
                pass
    with pytest.raises(ConfigurationError, match="no server was given"):
        async with load_environments(tmp_path, {}) as manager:
            await manager.client()


@requirement("env/rendezvous")
async def test_a_registry_takes_a_way_to_it(tmp_path, server):
    from exec_server.transport.dial import dial

    env = {
        "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": "https://registry",
        "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": "e",
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": "t",
    }
    async with load_environments(tmp_path, env) as manager:
        with pytest.raises(ConfigurationError, match="no way was given"):
            await manager.client()

    def relay(environment: object, options: object) -> Any:
        return lambda: dial(server.url, limits=Limits())

    async with load_environments(tmp_path, env, connectors=Connectors(rendezvous=relay)) as manager:
        assert (await (await manager.client()).run(["true"])).returncode == 0


# Clients of the caller's own, and changes at run time.


@requirement("env/lookup", "env/toml:tokens")
async def test_a_caller_has_a_client_of_its_own(tmp_path, server):
    async with environments(tmp_path, entry("box", f'url = "{server.url}"')) as manager:
        async with manager.connect("box") as mine:
            token = mine.session_token()
            assert mine is not await manager.client("box")
        async with manager.connect("box", session_token=token) as again:
            assert again.session_id == mine.session_id


@requirement("env/add")
async def test_an_environment_is_added_and_replaced(tmp_path, server):
    async with environments(tmp_path) as manager:
        await manager.add("box", server.url)
        old = await manager.client("box")
        await manager.add("box", f" {server.url} ", token="token")
        assert old.state == "closed"
        assert (await manager.client("box")).session_id != old.session_id
        assert manager.names == ("local", "box") and manager.default == "local"
        for name, url in [("", server.url), ("local", server.url), ("x", ""), ("x", "none")]:
            with pytest.raises(ConfigurationError):
                await manager.add(name, url)


@requirement("env/status", "env/warm-up")
async def test_a_status_is_pending_until_something_connects(tmp_path, server):
    async with environments(tmp_path, entry("box", f'url = "{server.url}"')) as manager:
        assert await manager.status("box") == EnvironmentStatus("pending")
        manager.warm_up()
        assert await manager.status("box") == EnvironmentStatus("pending")
        await manager.client("box")
        assert await manager.status("box") == EnvironmentStatus("ready")
        assert await manager.status("local") == EnvironmentStatus("pending")


@requirement("env/status")
async def test_a_lost_connection_is_told(tmp_path):
    limits = Limits(recovery_window=0.05)
    async with serve() as server:
        text = entry("box", f'url = "{server.url}"')
        manager = environments(tmp_path, text, limits=limits)
        box = await manager.client("box")
    await eventually(lambda: box.state == "failed")
    assert await manager.status("box") == EnvironmentStatus(
        "disconnected", "the connection is failed"
    )
    await manager.close()
