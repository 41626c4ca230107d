"""Servers that need credentials."""

from __future__ import annotations

import asyncio

import pytest

from exec_server.errors import ConfigurationError
from exec_server.hub.bus.nats_bus import NatsBus
from tests.requirements import requirement
from tests.support.nats import NatsCluster
from tests.support.nats_accounts import Accounts


@requirement("hub/bus/nats:credentials")
@pytest.mark.parametrize(
    "subjects",
    [
        (),
        # The permissions that docs/registry.md lists.
        ("exec-server.test.>", "_INBOX.>", "$JS.API.>", "$KV.exec-server-test.>"),
    ],
    ids=["everything", "no more than needed"],
)
async def test_a_credentials_file_lets_us_in(tmp_path, no_leaks, subjects):
    accounts = Accounts()
    path = tmp_path / "user.creds"
    path.write_text(accounts.credentials(*subjects))
    with NatsCluster(tmp_path, config=accounts.configuration()) as cluster:
        await cluster.ready()
        bus = await NatsBus.open(cluster.url, name="test", credentials=str(path))
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        await bus.subscribe("word", heard.put_nowait)
        await bus.answer("question", lambda data: data * 2)
        bus.publish("word", b"hello")
        async with asyncio.timeout(60):
            assert await heard.get() == b"hello"
        assert await bus.request("question", b"x", timeout=5) == b"xx"
        revision = await bus.compare_and_set("key", b"one", after=0)
        assert revision is not None
        assert await bus.compare_and_set("key", b"two", after=revision)
        held = await bus.read_value("key")
        assert held is not None
        assert held.value == b"two"
        await bus.close()


@requirement("hub/bus/nats:credentials")
async def test_credentials_of_others_are_refused(tmp_path, no_leaks):
    path = tmp_path / "user.creds"
    path.write_text(Accounts().credentials())
    with NatsCluster(tmp_path, config=Accounts().configuration()) as cluster:
        await cluster.ready()
        with pytest.raises(ConfigurationError):
            await NatsBus.open(cluster.url, name="test", credentials=str(path))
