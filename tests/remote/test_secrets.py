"""What a command of a client can find out about the secrets of the executor that runs it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from exec_server.cli.main import main
from tests.remote.conftest import connect
from tests.remote.test_cli import ENV, words
from tests.requirements import requirement
from tests.support import cli
from tests.support.leaks import GONE, children, open_descriptors
from tests.support.rendezvous import TOKEN

pytestmark = pytest.mark.one_loop


@requirement("security:executor-secrets")
async def test_the_token_is_in_no_environment_that_a_command_can_read(relay):
    async with cli.running(*words(relay), env=ENV) as process:
        await relay.until(relay.is_online)
        assert relay.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
        async with connect(relay) as client:
            script = "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -a REGISTRY_URL; cat $0"
            found = await client.run(["sh", "-c", script, f"/proc/{process.pid}/environ"])
        assert b"PATH=" in found.stdout
        assert TOKEN.encode() not in found.stdout
        # The keeper, and whatever else the server has started.
        for each in children(process.pid):
            with contextlib.suppress(*GONE):
                assert TOKEN.encode() not in Path(f"/proc/{each}/environ").read_bytes()
        assert not any("memfd" in name for name in open_descriptors(process.pid).values())


@requirement("security:executor-secrets")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_process_of_the_same_user_cannot_inspect_it():
    """As `nobody`, since nothing is hidden from root."""
    script = """
import ctypes, os, subprocess
from exec_server.cli.secret_environment import hide_memory

os.setgid(65534)
os.setuid(65534)
# The change of the user has hidden this process too. A program that is started by its user is not.
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
look = ["cat", f"/proc/{os.getpid()}/environ"]
assert subprocess.run(look, stdout=subprocess.DEVNULL).returncode == 0
hide_memory()
assert subprocess.run(look, stderr=subprocess.DEVNULL).returncode == 1
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_program_that_embeds_us_is_not_started_again(monkeypatch):
    monkeypatch.setenv("EXEC_SERVER_REGISTRY_TOKEN", "secret")
    with pytest.raises(SystemExit):
        main(["--help"])
    assert os.environ["EXEC_SERVER_REGISTRY_TOKEN"] == "secret"
