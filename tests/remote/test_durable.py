"""An executor that is killed and started again on the same state has the same sessions."""

from __future__ import annotations

import os
import signal

import pytest

from exec_server.protocol import process
from exec_server.protocol.base64 import Blob
from tests.remote.conftest import connect
from tests.remote.test_cli import ENV, words
from tests.requirements import requirement
from tests.support import cli
from tests.support.durable import is_running
from tests.support.leaks import eventually

pytestmark = pytest.mark.one_loop


@requirement("durable:remote")
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
async def test_a_harness_goes_on_with_the_next_executor(relay, tmp_path, signum):
    state = tmp_path / "durable"
    start = process.StartParams(
        "a",
        ["sh", "-c", "echo one; read line; echo $line; exit 7"],
        "file:///",
        {"PATH": os.environ["PATH"]},
        False,
        pipe_stdin=True,
        durable=True,
    )
    command = words(relay, "--state", str(state))
    async with cli.running(*command, env=ENV) as first:
        await relay.until(relay.is_online)
        async with connect(relay) as client:
            session = client._session
            assert (await session.call(process.START, start)).durable is True
            first.send_signal(signum)
            await first.wait()
            await relay.until(lambda: not relay.is_online())
            async with cli.running(*command, env=ENV) as second:
                await relay.until(relay.is_online)
                write = process.WriteParams("a", Blob(b"two\n"), "w1")
                await session.call(process.WRITE, write, repeat=True)
                answer = await _closed(session)
                data = b"".join(chunk.chunk.data for chunk in answer.chunks)
                assert (data, answer.exit_code) == (b"one\ntwo\n", 7)
                second.send_signal(signal.SIGTERM)
                assert await cli.status(second) == 0
    keeper = int((state / "keeper.lock").read_text())
    await eventually(lambda: not is_running(keeper))


async def _closed(session):
    cursor = 0
    while True:
        params = process.ReadParams("a", cursor, None, 5000)
        answer = await session.call(process.READ, params, repeat=True)
        if answer.closed:
            return await session.call(process.READ, process.ReadParams("a", 0), repeat=True)
        cursor = answer.next_seq - 1
