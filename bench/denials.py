"""What a supervisor costs: `python bench/denials.py`; compiles a file with and without one.

Each round runs every variant once, so that other load of the machine hits all of them.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import exec_server
from exec_server.protocol.sandbox import workspace_write

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
# So many compilations a run: the start of a sandbox is measured apart.
COMPILATIONS = 5
SOURCE = '#include <stdio.h>\n#include <stdlib.h>\nint main(void) { printf("%d", rand()); }\n'


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


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "main.c").write_text(SOURCE)
        (folder / "closed").write_text("secret")
        script = f"for i in $(seq {COMPILATIONS}); do gcc -O1 -o main main.c; done"
        plain, reads = workspace_write([folder], exclude_tmp=False), scoped(folder)
        variants: dict[str, dict[str, Any]] = {
            "writes, off": {"sandbox": plain},
            "writes, on": {"sandbox": plain, "denials": True},
            "reads, off": {"sandbox": reads, "env": {"TMPDIR": name}},
            "reads, on": {"sandbox": reads, "env": {"TMPDIR": name}, "denials": True},
        }
        took: dict[str, list[float]] = {variant: [] for variant in variants}
        async with exec_server.local() as client:
            for number in range(ROUNDS + 1):
                for variant, options in variants.items():
                    began = time.perf_counter()
                    process = await client.start(["sh", "-c", script], cwd=name, **options)
                    out, err = await process.communicate()
                    assert process.returncode == 0, (out, err)
                    if number:
                        took[variant].append(time.perf_counter() - began)
        for variant, times in took.items():
            best, middle = min(times), statistics.median(times)
            each = 1000 / COMPILATIONS
            print(f"{variant:12} median {middle * each:6.2f} ms, best {best * each:6.2f} ms")
        for kind in ("writes", "reads"):
            pairs = zip(took[f"{kind}, on"], took[f"{kind}, off"], strict=True)
            ratio = statistics.median(on / off for on, off in pairs)
            print(f"{kind}: {100 * (ratio - 1):+.1f} % (median of {ROUNDS} pairs)")


asyncio.run(main())
