"""The reference on both ends, at different nodes of a registry of three."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import exec_server
from tests.requirements import requirement
from tests.support.balancer import Balancer
from tests.support.codex import codex, model, turn
from tests.support.servers import reference_binary

pytestmark = pytest.mark.one_loop

NAME = "build"


@pytest.fixture(scope="module")
def binary() -> Path:
    found = reference_binary()
    if found is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    return found


@requirement("hub/cluster:stock")
async def test_the_reference_meets_itself_across_nodes(binary, cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    enrolment, secret = await cluster.token("enrol"), await cluster.token("connect", "list")
    home, harness_home = tmp_path / "executor", tmp_path / "harness"
    home.mkdir()
    harness_home.mkdir()
    async with AsyncExitStack() as stack:
        near, far = [
            await stack.enter_async_context(Balancer(cluster.ports, first=node).run())
            for node in (0, 2)
        ]
        words = ("exec-server", "--remote", near.url, "--environment-id", NAME)
        executor = codex(binary, *words, home=home, CODEX_API_KEY=enrolment)
        await stack.enter_async_context(executor)
        await cluster.until_online(NAME, secret)
        noise = {
            "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": far.url,
            "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": NAME,
            "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": secret,
        }
        async with (
            model("echo from the executor; exit 7", harness_home) as scripted,
            codex(binary, "app-server", home=harness_home, **noise) as process,
        ):
            await turn(process, str(tmp_path))
            output = await scripted.output()
            # Both are connected, and not to the same node.
            assert 0 in near.nodes and set(near.nodes) == {0}
            assert 2 in far.nodes and set(far.nodes) == {2}
        assert "from the executor" in output
        assert "exited with code 7" in output

        url = f"noise+{far.url}/{NAME}"
        async with exec_server.connect(url, token=secret) as client:
            done = await client.run(["sh", "-c", "seq 1 50000; exit 3"])
            assert done.returncode == 3
            assert done.stdout == b"".join(b"%d\n" % n for n in range(1, 50001))
