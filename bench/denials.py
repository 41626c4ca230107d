"""What a supervisor costs: `python bench/denials.py [ROUNDS] [--before FOLDER]`.

It compiles a file with and without a supervisor, in a sandbox that limits writes and in one that
also limits reads. Each round runs every variant once, so that other load of the machine hits all of
them; each variant has its own start without a compilation, so that the start is told apart. With
`--before`, a `src` folder of another version, both versions take turns in the same rounds.

The processor time is that of everything below the server: the compiler, bubblewrap, the keeper and
the supervisor.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shlex
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import exec_server
from exec_server.protocol.sandbox import workspace_write

# So many compilations a run.
COMPILATIONS = 5
SOURCE = '#include <stdio.h>\n#include <stdlib.h>\nint main(void) { printf("%d", rand()); }\n'
KINDS = ("writes", "reads")
_TICKS = os.sysconf("SC_CLK_TCK")
_FIRST_TIME, _LAST_TIME = 11, 15


class Cost(NamedTuple):
    """Seconds of one run."""

    wall: float
    cpu: float


def scoped(folder: Path) -> dict[str, Any]:
    """A policy that closes a file to readers, so that every open is watched."""
    entries = [
        {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"},
        {"path": {"type": "path", "path": f"file://{folder}"}, "access": "write"},
        {"path": {"type": "path", "path": f"file://{folder}/closed"}, "access": "deny"},
    ]
    files = {"type": "restricted", "entries": entries}
    permissions = {"type": "managed", "file_system": files, "network": "restricted"}
    return {"permissions": permissions, "windowsSandboxLevel": "disabled"}


class BenchServer:
    """A server as a child of this process, reached through its stdin and stdout."""

    def __init__(self, client: exec_server.ExecServerClient, pids: list[int]) -> None:
        self._client = client
        # The server, and its keeper, to which the times of its dead children were added.
        self._pids = pids

    async def run(self, script: str, folder: Path, **options: Any) -> Cost:
        began, used = time.perf_counter(), self._used()
        process = await self._client.start(["sh", "-c", script], cwd=str(folder), **options)
        out, err = await process.communicate()
        took = time.perf_counter() - began
        assert process.returncode == 0, (out, err)
        # The supervisor ends a little later.
        await asyncio.to_thread(_wait_until_childless, self._pids[1:])
        return Cost(took, self._used() - used)

    def _used(self) -> float:
        total = 0
        for pid in self._pids:
            text = Path(f"/proc/{pid}/stat").read_text()
            fields = text[text.rindex(")") + 2 :].split()
            total += sum(map(int, fields[_FIRST_TIME:_LAST_TIME]))
        return total / _TICKS


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _wait_until_childless(pids: list[int]) -> None:
    while any(map(_children, pids)):
        time.sleep(0.001)


async def started(stack: contextlib.AsyncExitStack, source: str) -> BenchServer:
    before = set(_children(os.getpid()))
    command = ["env", f"PYTHONPATH={source}", sys.executable, "-m", "exec_server", "--listen"]
    url = f"stdio:{shlex.join([*command, 'stdio'])}"
    client = await stack.enter_async_context(exec_server.connect(url))
    await client.run(["true"])
    (server,) = set(_children(os.getpid())) - before
    return BenchServer(client, [server, *_children(server)])


def variants(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    plain, reads = workspace_write([folder], exclude_tmp=False), scoped(folder)
    env = {"TMPDIR": str(folder)}
    return {
        ("writes", "off"): {"sandbox": plain},
        ("writes", "on"): {"sandbox": plain, "denials": True},
        ("reads", "off"): {"sandbox": reads, "env": env},
        ("reads", "on"): {"sandbox": reads, "env": env, "denials": True},
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rounds", type=int, nargs="?", default=20)
    parser.add_argument(
        "--before", metavar="FOLDER", type=os.path.abspath, help="the `src` of another version"
    )
    options = parser.parse_args()
    sources = {"now": str(Path(exec_server.__file__).parents[1])}
    if options.before:
        sources["before"] = options.before
    scripts = {"gcc": f"for i in $(seq {COMPILATIONS}); do gcc -O1 -o main main.c; done", "": ":"}
    costs: dict[tuple[str, ...], list[Cost]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "main.c").write_text(SOURCE)
        (folder / "closed").write_text("secret")
        async with contextlib.AsyncExitStack() as stack:
            servers = {version: await started(stack, source) for version, source in sources.items()}
            for number in range(options.rounds + 1):
                for variant, arguments in variants(folder).items():
                    for version, server in servers.items():
                        for what, script in scripts.items():
                            cost = await server.run(script, folder, **arguments)
                            if number:
                                costs.setdefault((version, *variant, what), []).append(cost)
    load = os.getloadavg()[0]
    print(f"{options.rounds} rounds of {COMPILATIONS} compilations; the load is {load:.1f}")
    for version in sources:
        for kind in KINDS:
            _report(version, kind, costs)


def _report(version: str, kind: str, costs: dict[tuple[str, ...], list[Cost]]) -> None:
    def mean(state: str, what: str) -> float:
        return statistics.fmean(cost.cpu for cost in costs[version, kind, state, what])

    on, off = costs[version, kind, "on", "gcc"], costs[version, kind, "off", "gcc"]
    wall = statistics.median(a.wall / b.wall for a, b in zip(on, off, strict=True))
    alone = [mean(state, "gcc") - mean(state, "") for state in ("on", "off")]
    start = mean("on", "") - mean("off", "")
    print(
        f"{version:6} {kind:6}  wall {100 * (wall - 1):+6.1f} %"
        f"   cpu {100 * (mean('on', 'gcc') / mean('off', 'gcc') - 1):+6.1f} %"
        f"   cpu without the start {100 * (alone[0] / alone[1] - 1):+6.1f} %"
        f"   gcc {1000 * alone[1] / COMPILATIONS:5.1f} ms"
        f" + {1000 * (alone[0] - alone[1]) / COMPILATIONS:5.2f} ms"
        f"   start {1000 * start:+5.1f} ms"
    )


asyncio.run(main())
