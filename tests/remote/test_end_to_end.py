"""A client and a server that meet at a rendezvous."""

from __future__ import annotations

import asyncio

import exec_server.sync
from tests.requirements import requirement
from tests.support.rendezvous import TOKEN


@requirement("remote/executor:methods")
async def test_a_command_runs_through_the_relay(client):
    done = await client.run(["sh", "-c", "echo hello; echo oops >&2; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, b"hello\n", b"oops\n")


@requirement("remote/harness:url")
async def test_the_synchronous_client_takes_the_same_urls(online):
    def run() -> bytes:
        with exec_server.sync.connect(online.noise_url(), token=TOKEN) as client:
            return client.run(["echo", "hello"]).stdout

    assert await asyncio.to_thread(run) == b"hello\n"
