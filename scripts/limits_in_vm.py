"""Run by scripts/limits_vm.sh inside of a virtual machine: the attackers of limits on cgroup v2.

`python3 limits_in_vm.py` runs itself once for each place of a server, as `limits_in_vm.py PLACE`,
and ends with status 0 if every limit that was granted has stopped its attacker. The variable
`places` may choose some of the places.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from exec_server.client.client import ExecServerClient
from exec_server.local_server import local
from tests.support.attackers import ATTACKERS

CGROUPS = Path("/sys/fs/cgroup")
USER = 1000
# Attackers end by themselves after 60 seconds.
PATIENCE = 50.0
# What is expected of `memory` in each place: its mechanism, and the user of the server.
PLACES = {
    "root": ("cgroup2", 0),
    "alone": ("cgroup2", 0),
    "delegated": ("cgroup2", USER),
    "subgroup": ("cgroup2", USER),
    "crowded": ("watched", 0),
    "unprivileged": ("watched", USER),
}


def main() -> int:
    if len(sys.argv) > 1:
        return asyncio.run(attacked(sys.argv[1]))
    (CGROUPS / "cgroup.subtree_control").write_text("+memory +pids +cpu")
    failures = 0
    chosen = os.environ.get("places", "").split(",")
    for place, (_, uid) in PLACES.items():
        if chosen != [""] and place not in chosen:
            continue
        group = CGROUPS if place in ("root", "unprivileged") else CGROUPS / place
        group.mkdir(exist_ok=True)
        other = None
        if place == "crowded":
            other = subprocess.Popen(["/bin/busybox", "sleep", "1000"])
            (group / "cgroup.procs").write_text(str(other.pid))
        if place in ("delegated", "subgroup"):
            delegate(group, uid)
        if place == "subgroup":
            group /= "server"
            group.mkdir()
            delegate(group, uid)
        failures += run_in(group, place, uid)
        if other is not None:
            is_there = f"/{place}\n" in Path(f"/proc/{other.pid}/cgroup").read_text()
            failures += told(place, "other processes are left alone", is_there)
            other.kill()
            other.wait()
    return failures


def delegate(group: Path, uid: int) -> None:
    for name in (".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
        os.chown(group / name, uid, uid)


def run_in(group: Path, place: str, uid: int) -> int:
    def enter() -> None:
        (group / "cgroup.procs").write_text("0")
        os.setgid(uid)
        os.setuid(uid)

    return subprocess.run(
        [sys.executable, __file__, place], preexec_fn=enter, check=False
    ).returncode


async def attacked(place: str) -> int:
    """How many attackers were not stopped."""
    failures = 0
    mechanism, _ = PLACES[place]
    with tempfile.TemporaryDirectory() as folder:
        async with local() as client:
            for name, attacker in ATTACKERS.items():
                if attacker.limit == "disk":
                    # There is no disk here.
                    continue
                held, is_stopped = await stopped(client, name, folder)
                is_right = attacker.limit != "memory" or held == mechanism
                failures += told(place, f"{name} ({held})", is_stopped and is_right)
            failures += told(place, "cpuRate", await holds_rate(client, mechanism))
    return failures


async def stopped(client: ExecServerClient, name: str, folder: str) -> tuple[str, bool]:
    attacker = ATTACKERS[name]
    process = await client.start(
        [sys.executable, "-c", attacker.code],
        cwd="/",
        env={"PLACE": folder},
        limits={attacker.limit: attacker.value},
    )
    held = process.limits[attacker.limit].mechanism
    async with process, asyncio.timeout(PATIENCE):
        if name == "daemon":
            # The end of its output is the end of the daemon.
            return held, bool(await process.stdout.read())
        if attacker.is_refused and held != "watched":
            return held, 0 < int(await process.stdout.readline()) < attacker.value
        return held, await process.wait() == 137


async def holds_rate(client: ExecServerClient, mechanism: str) -> bool:
    script = (
        "import time\nend, begun = time.time() + 3, time.process_time()\n"
        "while time.time() < end: pass\nprint(time.process_time() - begun)"
    )
    argv = [sys.executable, "-c", script]
    process = await client.start(argv, cwd="/", limits={"cpuRate": 0.2})
    held = process.limits["cpuRate"].mechanism
    async with process:
        used = float(await process.stdout.read())
        await process.wait()
    return held == "none" if mechanism == "watched" else held == mechanism and used < 1.5


def told(place: str, what: str, is_well: bool) -> int:
    print("ok  " if is_well else "FAIL", f"{place}: {what}", flush=True)
    return not is_well


if __name__ == "__main__":
    sys.exit(main())
