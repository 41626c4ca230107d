"""The reference is on one end of the relay, and ours on the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remote.conftest import connect
from tests.requirements import requirement
from tests.support.codex import API_KEY, codex, model, turn
from tests.support.rendezvous import TOKEN
from tests.support.servers import reference_binary

pytestmark = pytest.mark.one_loop


@pytest.fixture(scope="session")
def binary() -> Path:
    found = reference_binary()
    if found is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    return found


@requirement("remote/reference:executor")
async def test_the_reference_as_executor_is_driven_by_our_harness(relay, binary, tmp_path):
    options = ("exec-server", "--remote", relay.url, "--environment-id", "env-1")
    async with codex(binary, *options, home=tmp_path, CODEX_API_KEY=API_KEY):
        await relay.until(relay.is_online)
        async with connect(relay) as client:
            done = await client.run(["sh", "-c", "echo from there; exit 3"])
            assert (done.returncode, done.stdout) == (3, b"from there\n")
            big = tmp_path / "big"
            big.write_bytes(bytes(range(256)) * 4000)
            assert await client.fs.read_bytes(str(big)) == big.read_bytes()
            process = await client.start(["sh", "-c", "read x; seq 1 2000; exit 4"], stdin=True)
            relay.cut("harness")
            await process.write(b"go\n")
            lines = b"".join([chunk.data async for chunk in process])
            assert lines == b"".join(b"%d\n" % n for n in range(1, 2001))
            assert await process.wait() == 4


@requirement("remote/reference:client")
async def test_our_executor_is_driven_by_the_reference_client(online, binary, tmp_path):
    command = "echo from the executor; exit 7"
    noise = {
        "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": online.url,
        "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": "env-1",
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": TOKEN,
    }
    async with (
        model(command, tmp_path) as scripted,
        codex(binary, "app-server", home=tmp_path, **noise) as process,
    ):
        await turn(process, str(tmp_path))
        output = await scripted.output()
    assert "from the executor" in output
    assert "exited with code 7" in output
    assert online.operations("validate")
