"""A registry on a full disk: clients go on, events wait, and commands say what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from exec_server.hub.store.disk_reserve import DiskReserve
from tests.requirements import requirement

# The script has a disk of its own, which it fills.
PROGRAM = """
import asyncio, os, subprocess, sys, time
import aiohttp
from msgspec.structs import replace
from exec_server.hub.registry_service import HubOptions, serve_hub
from exec_server.limits import DEFAULT_LIMITS
from tests.hub.conftest import Visitor, bring_online

folder = sys.argv[1]
state = os.path.join(folder, "registry.sqlite3")
filler = os.path.join(folder, "filler")

def fill():
    with open(filler, "ab", buffering=0) as file:
        for size in (65536, 4096, 512):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass

def token_create():
    words = [sys.executable, "-m", "exec_server", "registry", "token", "create", "harness", "x"]
    return subprocess.run([*words, "--state", state], capture_output=True, text=True)

async def metric(visitor, secret, name):
    text = str((await visitor.ask("GET", "/metrics", secret)).body)
    return int(text.rpartition(f"registry_{name} ")[2].split()[0])

async def main():
    limits = replace(DEFAULT_LIMITS, hub_audit_waiting=50)
    async with (
        serve_hub(HubOptions(state=state), limits=limits) as hub,
        aiohttp.ClientSession() as web,
    ):
        visitor = Visitor(hub, web)
        pair = await bring_online(visitor)
        _, observer = await visitor.token("observe")
        fill()
        for number in range(150):
            answer = await visitor.connect(pair.name, pair.harness)
            assert answer.status == 200, (number, answer)
            answer = await visitor.validate(pair.name, pair.enrolment, answer.body)
            assert answer.body == {"valid": True}, (number, answer)
        for number in range(10):
            answer = await visitor.register(f"new-{number}", pair.enrolment)
            assert answer.status == 200, (number, answer)
        assert await metric(visitor, observer, "events_lost_total") > 0
        assert 0 < await metric(visitor, observer, "events_waiting") <= 150
        fill()
        created = token_create()
        print("STDERR", created.returncode, created.stderr.replace("\\n", " "))
        assert created.returncode == 1 and "Traceback" not in created.stderr
        assert "the disk is full" in created.stderr, created.stderr
        os.unlink(filler)
        while await metric(visitor, observer, "events_waiting"):
            pass
        names = [event.name for event in await hub.store.events(limit=1000)]
        assert "events lost" in names and "registered" in names, names
        assert token_create().returncode == 0
        visitor.drop_all()
    print("DONE")

asyncio.run(main())
"""


@requirement("hub/store:full-disk")
def test_clients_go_on_while_the_disk_is_full(tmp_path):
    folder, program = tmp_path / "disk", tmp_path / "program.py"
    folder.mkdir()
    program.write_text(textwrap.dedent(PROGRAM))
    mounted = (
        f"mount -t tmpfs -o size=24m tmpfs {folder} && exec {sys.executable} {program} {folder}"
    )
    own_mounts = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*own_mounts, f"mount -t tmpfs tmpfs {folder}"], check=False).returncode:
        pytest.skip("a disk of one's own needs user namespaces")
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [*own_mounts, mounted], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and "DONE" in done.stdout, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr


def test_the_reserve_is_released_once_and_made_again(tmp_path):
    reserve = DiskReserve(str(tmp_path / "state"))
    file = tmp_path / "state.reserve"
    assert file.stat().st_blocks * 512 >= 4 << 20 and file.stat().st_mode & 0o777 == 0o600
    assert reserve.release() and not file.exists()
    assert not reserve.release()
    assert reserve.restore() and file.exists()


def test_a_reserve_that_cannot_be_made_is_no_error(tmp_path):
    reserve = DiskReserve(str(tmp_path / "missing" / "state"))
    assert not reserve.release() and not reserve.restore()
