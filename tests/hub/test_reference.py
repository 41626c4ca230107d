"""The reference on both ends, and our registry between them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import exec_server
from tests.hub.conftest import Visitor
from tests.requirements import requirement
from tests.support.codex import codex, model, turn
from tests.support.servers import reference_binary

pytestmark = pytest.mark.one_loop

NAME = "build"


@pytest.fixture(scope="session")
def binary() -> Path:
    found = reference_binary()
    if found is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    return found


async def until_online(visitor: Visitor, secret: str) -> None:
    """Wait until a harness gets a URL; the executor does not report that it is connected."""
    async with asyncio.timeout(60):
        while (await visitor.connect(NAME, secret)).status != 200:
            pass


@requirement("hub:stock-executor", "hub:stock-harness")
async def test_the_reference_meets_itself_through_our_registry(visitor, binary, tmp_path):
    _, enrolment = await visitor.token("enrol")
    _, harness = await visitor.token("connect")
    executor = ("exec-server", "--remote", visitor.hub.url, "--environment-id", NAME)
    noise = {
        "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": visitor.hub.url,
        "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": NAME,
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": harness,
    }
    (tmp_path / "executor").mkdir()
    async with codex(binary, *executor, home=tmp_path / "executor", CODEX_API_KEY=enrolment):
        await until_online(visitor, harness)
        async with (
            model("echo from the executor; exit 7", tmp_path) as scripted,
            codex(binary, "app-server", home=tmp_path, **noise) as process,
        ):
            await turn(process, str(tmp_path))
            output = await scripted.output()
        assert "from the executor" in output
        assert "exited with code 7" in output

        url = visitor.hub.url.replace("http://", "noise+http://")
        async with exec_server.connect(f"{url}/{NAME}", token=harness) as client:
            done = await client.run(["sh", "-c", "seq 1 50000; exit 3"])
            assert done.returncode == 3
            assert done.stdout == b"".join(b"%d\n" % n for n in range(1, 50001))
