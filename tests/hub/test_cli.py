"""The commands of the registry, as processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from contextlib import asynccontextmanager

import aiohttp
import pytest

import exec_server
from exec_server.audit.event import AuditEvent
from exec_server.hub.store.open_store import open_store
from exec_server.remote.credentials.credentials import BearerToken
from tests.requirements import requirement
from tests.support.cli import finished
from tests.support.codex import codex
from tests.support.servers import OURS, reference_binary, start_server

pytestmark = pytest.mark.one_loop

REGISTRY = [*OURS, "registry"]


async def make_token(state, *words) -> dict[str, str]:
    made = await finished("registry", "token", "create", *words, "--state", state, "-o", "json")
    assert made.status == 0, made.stderr
    made_of: dict[str, str] = json.loads(made.stdout)
    return made_of


def registry(state, *options):
    return start_server("--state", state, *options, command=REGISTRY)


async def status_of(url, path, secret) -> int:
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {secret}"}) as web,
        web.get(url + path) as response,
    ):
        return response.status


async def until_online(url, secret) -> None:
    headers = {"Authorization": f"Bearer {secret}"}
    async with asyncio.timeout(60), aiohttp.ClientSession(headers=headers) as web:
        while True:
            async with web.get(f"{url}/api/environments") as response:
                if any(each["isOnline"] for each in await response.json()):
                    return


@requirement("hub/cli:tokens")
async def test_tokens_are_made_listed_and_revoked(state):
    made = await make_token(state, "observer", "alice", "--expires", "1000")
    plain = await finished("registry", "token", "create", "enrol", "bob", "--state", state)
    assert plain.stdout.startswith(b"exs_") and plain.stdout.count(b"\n") == 1
    listed = await finished("registry", "token", "list", "--state", state)
    assert b"alice" in listed.stdout and made["token"].encode() not in listed.stdout
    with registry(state) as server:
        assert await status_of(server.url, "/metrics", made["token"]) == 200
        revoked = await finished("registry", "token", "revoke", made["id"], "--state", state)
        assert revoked.status == 0
        assert await status_of(server.url, "/metrics", made["token"]) == 401
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    again = await finished("registry", "token", "revoke", made["id"], "--state", state)
    assert again.status == 1
    for words in (["create"], ["create", "king", "x"], ["revoke"], ["steal"]):
        assert (await finished("registry", "token", *words, "--state", state)).status == 2


@requirement("hub/cli:serve")
async def test_urls_with_passwords_may_come_in_variables(tmp_path, monkeypatch):
    state = str(tmp_path / "elsewhere")
    monkeypatch.setenv("EXEC_SERVER_REGISTRY_STATE", state)
    made = await finished("registry", "token", "create", "enrol", "bob")
    assert (made.status, os.path.exists(state)) == (0, True), made.stderr
    monkeypatch.setenv("EXEC_SERVER_REGISTRY_BUS", "redis://us:secret@127.0.0.1:1")
    refused = await finished("registry")
    assert refused.status == 1 and "nats:" in refused.stderr and "secret" not in refused.stderr


@requirement("hub/cli:serve")
async def test_what_cannot_be_served_is_said(tmp_path):
    state = str(tmp_path / "state")
    for words in (
        ["--listen", "ws://0.0.0.0:0"],
        ["--listen", "unix://x"],
        ["--listen", "nonsense"],
        ["--state", str(tmp_path)],
        ["--state", "postgresql://x:secret@127.0.0.1:1/x"],
    ):
        done = await finished("registry", "--state", state, *words)
        assert (done.status, done.stdout) == (1, b"")
        assert done.stderr.startswith("Error: ") and "secret" not in done.stderr


@requirement("hub/audit:days")
async def test_events_are_kept_as_long_as_the_command_says(tmp_path):
    state = str(tmp_path / "state")
    observer = (await make_token(state, "observer", "alice"))["token"]
    store = await open_store(state)
    now, day = time.time(), 24 * 3600.0
    await store.add_events([AuditEvent(at=now - days * day, name=f"{days}") for days in (1, 3, 80)])
    await store.close()
    headers = {"Authorization": f"Bearer {observer}"}
    names: list[str] = []
    with registry(state, "--audit-days", "2") as server:
        async with asyncio.timeout(60), aiohttp.ClientSession(headers=headers) as web:
            while names != ["1"]:
                async with web.get(f"{server.url}/api/events") as response:
                    names = [event["name"] for event in await response.json()]
    for wrong in ("0", "-1", "x"):
        assert (await finished("registry", "--state", state, "--audit-days", wrong)).status == 2


@asynccontextmanager
async def our_executor(url, token, tmp_path):
    config = exec_server.RemoteEnvironmentConfig(
        registry_url=url, environment_id="build", credentials=BearerToken(token)
    )
    serving = asyncio.ensure_future(exec_server.run_remote_environment(config))
    yield
    serving.cancel()
    await asyncio.wait([serving])


@asynccontextmanager
async def stock_executor(url, token, tmp_path):
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    words = ("exec-server", "--remote", url, "--environment-id", "build")
    async with codex(binary, *words, home=tmp_path, CODEX_API_KEY=token):
        yield


@requirement("hub/state:durable")
@pytest.mark.parametrize("executor", [our_executor, stock_executor])
async def test_it_goes_on_after_a_kill_with_the_same_state(state, tmp_path, executor):
    """The executor and the client reconnect by themselves, and nothing is lost."""
    enrolment = (await make_token(state, "enrol", "farm"))["token"]
    harness = (await make_token(state, "harness", "alice", "--env", "bui*"))["token"]
    with registry(state) as server:
        listen = server.url.replace("http", "ws")
        url = server.url.replace("http", "noise+http") + "/build"
        async with executor(server.url, enrolment, tmp_path):
            await until_online(server.url, harness)
            async with exec_server.connect(url, token=harness) as client:
                process = await client.start(["sh", "-c", "read x; seq 1 3000"], stdin=True)
                server.signal(signal.SIGKILL)
                server.wait()
                with registry(state, "--listen", listen):
                    await process.write(b"go\n")
                    output = b"".join([chunk.data async for chunk in process])
                    assert output == b"".join(b"%d\n" % n for n in range(1, 3001))
