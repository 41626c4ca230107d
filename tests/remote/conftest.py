"""A rendezvous on the loopback, executors behind it, and harnesses that dial them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

import exec_server
from exec_server.limits import DEFAULT_LIMITS
from exec_server.remote.credentials.credentials import BearerToken
from tests.support.rendezvous import TOKEN, Rendezvous, rendezvous

# The shipped limits, with shorter pauses.
LIMITS = msgspec.structs.replace(
    DEFAULT_LIMITS,
    registry_pause=0.004,
    registry_max_pause=0.04,
    rendezvous_pause=0.008,
    rendezvous_max_pause=0.05,
    recovery_pause=0.005,
)


@pytest.fixture(autouse=True)
def state_home(tmp_path, monkeypatch):
    """A state directory without known executors."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("EXEC_SERVER_PIN", raising=False)
    return tmp_path / "state" / "exec-server"


@pytest.fixture
async def relay(no_leaks: None) -> AsyncIterator[Rendezvous]:
    async with rendezvous() as made:
        yield made


@contextlib.asynccontextmanager
async def executor(
    relay: Rendezvous, environment_id: str = "env-1", /, **options: Any
) -> AsyncIterator[asyncio.Task[None]]:
    """Yield our executor behind *relay*, once it is connected."""
    audit = options.pop("audit", None)
    options.setdefault("limits", LIMITS)
    options.setdefault("credentials", BearerToken(TOKEN))
    config = exec_server.RemoteEnvironmentConfig(
        registry_url=relay.url, environment_id=environment_id, **options
    )
    task = asyncio.ensure_future(exec_server.run_remote_environment(config, audit=audit))
    try:
        await _either(task, relay.until(lambda: relay.is_online(environment_id)))
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _either(task: asyncio.Task[None], waiting) -> None:
    online = asyncio.ensure_future(waiting)
    await asyncio.wait({task, online}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        online.cancel()
        await asyncio.wait({online})
        task.result()
    await online


@pytest.fixture
async def online(relay: Rendezvous) -> AsyncIterator[Rendezvous]:
    """The rendezvous, with `env-1` behind it."""
    async with executor(relay):
        yield relay


def connect(relay: Rendezvous, environment_id: str = "env-1", **options):
    options.setdefault("limits", LIMITS)
    return exec_server.connect(relay.noise_url(environment_id), token=TOKEN, **options)


@pytest.fixture
async def client(online: Rendezvous) -> AsyncIterator[exec_server.ExecServerClient]:
    async with connect(online) as made:
        yield made
