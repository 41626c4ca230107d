"""What a supervisor costs: `python bench/denials.py [ROUNDS] [--work WORK,...] [--before FOLDER]`.

It compiles with and without a supervisor, in a sandbox that limits writes and in one that also
limits reads. The work is `tiny`, five compilations of a program of three lines; `file`, one of
2,000 lines with -O2; `make`, eight files of 250 lines with `make -j2`; or `one`, one tiny program,
with the start of its sandbox. Each round does all work in every variant once, so that other load of
the machine hits all of them. With `--before`, a `src` folder of another version, both versions take
turns in the same rounds.

The processor time is that of everything below the server: the compiler, bubblewrap, the keeper and
the supervisor. The kernel tells it in steps of 10 ms, so each variant has a server of its own, and
its time is read at the beginning and at the end. A start of nothing is measured, and subtracted.
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
from typing import Any

import exec_server
from exec_server.protocol.sandbox import workspace_write

SOURCE = '#include <stdio.h>\n#include <stdlib.h>\nint main(void) { printf("%d", rand()); }\n'
# Ten lines of a program.
FUNCTION = """
static double work_{n}(const char *text, double *table, int count) {{
    double sum = {n};
    for (int i = 0; i < count; i++) {{
        table[i] = table[i] * {n} + (text[i % 7] ? sin(table[i]) : 1.0);
        sum += i % 3 ? table[i] : -table[i];
    }}
    if (sum > {n}) printf("%s %f\\n", text, sum);
    return sum + strlen(text) + (double) rand();
}}
"""
NOTHING = ":"
WORK = {
    "one": "gcc -O1 -o main main.c",
    "tiny": "for i in 1 2 3 4 5; do gcc -O1 -o main main.c; done",
    "file": "gcc -O2 -o large large.c -lm",
    "make": "rm -f *.o; make -s -j2",
}
KINDS = ("writes", "reads")
_TICKS = os.sysconf("SC_CLK_TCK")
_FIRST_TIME, _LAST_TIME = 11, 15
# The version, the kind, "on" or "off", and the work.
Variant = tuple[str, str, str, str]


def program(functions: range, *, name: str) -> str:
    lines = [f"#include <{header}.h>\n" for header in ("math", "stdio", "stdlib", "string")]
    lines += [FUNCTION.format(n=number) for number in functions]
    calls = "".join(f"    sum += work_{number}(text, table, 7);\n" for number in functions)
    lines.append(f"double {name}(const char *text, double *table) {{\n    double sum = 0;\n{calls}")
    return "".join([*lines, "    return sum;\n}\n"])


def write_sources(folder: Path) -> None:
    (folder / "closed").write_text("secret")
    (folder / "main.c").write_text(SOURCE)
    main = 'int main(void) { double table[7] = {1}; return (int) all0("a text", table); }\n'
    (folder / "large.c").write_text(program(range(180), name="all0") + main)
    for number in range(8):
        part = program(range(number * 22, number * 22 + 22), name=f"all{number}")
        (folder / f"part{number}.c").write_text(part + (main if number == 0 else ""))
    parts = " ".join(f"part{number}.o" for number in range(8))
    (folder / "Makefile").write_text(f"CFLAGS = -O2\nall: {parts}\n\tgcc -o all {parts} -lm\n")


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
        self.walls: list[float] = []
        self._used_before = 0.0

    def begin(self) -> None:
        """Count from now on."""
        self.walls.clear()
        self._used_before = self._used()

    async def run(self, script: str, folder: Path, **options: Any) -> None:
        began = time.perf_counter()
        process = await self._client.start(["sh", "-c", script], cwd=str(folder), **options)
        out, err = await process.communicate()
        self.walls.append(time.perf_counter() - began)
        assert process.returncode == 0, (out, err)
        # The supervisor ends a little later.
        await asyncio.to_thread(_wait_until_childless, self._pids[1:])

    def cpu(self) -> float:
        """The mean processor time of a run."""
        return (self._used() - self._used_before) / len(self.walls)

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


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rounds", type=int, nargs="?", default=20)
    parser.add_argument("--work", default="tiny", help=f"some of {','.join(WORK)}; default: tiny")
    parser.add_argument(
        "--before", metavar="FOLDER", type=os.path.abspath, help="the `src` of another version"
    )
    options = parser.parse_args()
    options.work = options.work.split(",")
    if unknown := set(options.work) - set(WORK):
        parser.error(f"unknown work: {', '.join(sorted(unknown))}")
    return options


async def main() -> None:
    options = parsed()
    sources = {"now": str(Path(exec_server.__file__).parents[1])}
    if options.before:
        sources["before"] = options.before
    scripts = {NOTHING: NOTHING} | {name: WORK[name] for name in options.work}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sources(folder)
        async with contextlib.AsyncExitStack() as stack:
            servers: dict[Variant, BenchServer] = {}
            for number in range(options.rounds + 1):
                for what, script in scripts.items():
                    for (kind, state), arguments in variants(folder).items():
                        for version, source in sources.items():
                            key = (version, kind, state, what)
                            if key not in servers:
                                servers[key] = await started(stack, source)
                            await servers[key].run(script, folder, **arguments)
                            if not number:
                                servers[key].begin()
            print(f"{options.rounds} rounds; the load is {os.getloadavg()[0]:.1f}")
            for what in options.work:
                for version in sources:
                    for kind in KINDS:
                        _report(version, kind, what, servers)


def _report(version: str, kind: str, what: str, servers: dict[Variant, BenchServer]) -> None:
    on, off = (servers[version, kind, state, what] for state in ("on", "off"))
    starts = [servers[version, kind, state, NOTHING].cpu() for state in ("on", "off")]
    wall = statistics.median(a / b for a, b in zip(on.walls, off.walls, strict=True))
    alone = [on.cpu() - starts[0], off.cpu() - starts[1]]
    print(
        f"{version:6} {what:5} {kind:6}  wall {100 * (wall - 1):+6.1f} %"
        f"   cpu {100 * (on.cpu() / off.cpu() - 1):+6.1f} %"
        f"   cpu without the start {100 * (alone[0] / alone[1] - 1):+6.1f} %"
        f"   {1000 * alone[1]:6.1f} ms + {1000 * (alone[0] - alone[1]):5.2f} ms"
        f"   start {1000 * (starts[0] - starts[1]):+5.1f} ms"
    )


asyncio.run(main())
