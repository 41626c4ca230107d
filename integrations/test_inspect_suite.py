"""Inspect's own checks of a sandbox provider, on two servers.

Root may read and write everything, so some checks can only pass on a server without that right, and
others only on one that may become another user. Each check has to pass on one of the two.
"""

from __future__ import annotations

import asyncio
import inspect as introspection
import os
import shutil
import subprocess
import sys
import time

import pytest
from inspect_ai.util._sandbox import self_check

from exec_server.integrations.inspect import ExecServerConfig, ExecServerSandboxEnvironment
from integrations.lifetimes import check as ends_with

CHECKS = [
    function
    for name, function in vars(self_check).items()
    if name.startswith("test_") and introspection.iscoroutinefunction(function)
]
_RIGHTS = "-dac_override,-dac_read_search"
WITHOUT_RIGHTS = ["setpriv", f"--bounding-set={_RIGHTS}", f"--inh-caps={_RIGHTS}"]


@pytest.fixture(scope="module")
def plain_url():
    """A server that runs as root, if this does, without the right to ignore modes."""
    prefix = WITHOUT_RIGHTS if os.geteuid() == 0 and shutil.which("setpriv") else []
    words = [*prefix, sys.executable, "-m", "exec_server"]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    yield process.stdout.readline().decode().strip()
    process.terminate()
    process.communicate(timeout=30)


async def passes(check, url: str) -> str | None:
    """None, or why not."""
    made = await ExecServerSandboxEnvironment.sample_init("t", ExecServerConfig(server=url), {})
    try:
        await check(made["default"])
    except BaseException as exc:
        if isinstance(exc, KeyboardInterrupt):
            raise
        return f"{type(exc).__name__}: {exc}"
    finally:
        await ExecServerSandboxEnvironment.sample_cleanup("t", None, made, False)
    return None


@pytest.mark.asyncio
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_self_check(check, server_url, plain_url):
    why = await passes(check, server_url)
    if why is not None:
        other = await passes(check, plain_url)
        assert other is None, f"as root: {why}; without its rights: {other}"


@pytest.mark.asyncio
async def test_a_sample_leaves_nothing_behind(server_url):
    made = await ExecServerSandboxEnvironment.sample_init("t", server_url, {})
    box = made["default"]
    ran = await box.exec(["sh", "-c", "setsid sleep 600 & echo $!"])
    pid = int(ran.stdout)
    await ExecServerSandboxEnvironment.sample_cleanup("t", None, made, False)
    assert not os.path.exists(box.directory)
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


def test_the_provider_is_found_by_its_name():
    program = (
        "from inspect_ai.util._sandbox.registry import registry_find_sandboxenv as find; "
        "print(find('exec-server').__module__)"
    )
    found = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert found.strip() == "exec_server.integrations.inspect"


LIFETIME = """
import sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.solver import solver
from inspect_ai.util import sandbox
from exec_server.integrations.inspect import ExecServerConfig
url, command = sys.argv[1:]
@solver
def runs():
    async def solve(state, generate):
        await sandbox().exec(["sh", "-c", command])
        return state
    return solve
place = ("exec-server", ExecServerConfig(server=url))
task = Task(dataset=[Sample(input="x")], solver=runs(), sandbox=place)
eval(task, model="none", display="plain", log_dir="logs")
"""


def test_nothing_is_left_when_the_program_ends(impatient_url, tmp_path, ending):
    ends_with(LIFETIME, impatient_url, tmp_path, ending)
