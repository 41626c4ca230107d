"""Where the time of a sandboxed start goes: bubblewrap alone, with one part more in each row.

    python bench/bubblewrap_parts.py [--rounds 40]

Each row runs /bin/true. The floor is `unshare` with the same namespaces and without a single mount,
so that what is above it is what bubblewrap mounts. Rounds go through all rows in turn, so that a
busy machine is busy for all.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine
from exec_server.sandbox.bubblewrap import find
from exec_server.sandbox.guard import MACHINE_FILES

_TRUE = "/bin/true"
_ROOT = ("--ro-bind", "/", "/")
# Users, mounts, processes, messages and the network.
_ALL_NAMESPACES = ("-U", "-r", "-m", "-p", "-f", "-i", "-n")
_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc")


def rows(bubblewrap: str) -> dict[str, list[str]]:
    """Commands by the name of what was added last."""
    found = [f"/proc/{name}" for name in MACHINE_FILES if os.path.exists(f"/proc/{name}")]
    words = [bubblewrap]
    commands = {"no bubblewrap": [_TRUE]}
    unshare = shutil.which("unshare")
    if unshare is not None:
        commands["floor: all namespaces, no mounts"] = [unshare, *_ALL_NAMESPACES, _TRUE]
    for name, more in (
        ("a read-only root", _ROOT),
        ("namespaces of users, processes, messages", _NAMESPACES),
        ("a network of its own", ("--unshare-net",)),
        ("/dev", ("--dev", "/dev")),
        ("/proc", ("--proc", "/proc")),
        (
            f"{len(found)} read-only places in /proc (now the guard's)",
            tuple(word for path in found for word in ("--ro-bind", path, path)),
        ),
    ):
        words += more
        commands[name] = [*words, _TRUE]
    return commands


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    bubblewrap = find("bwrap")
    if bubblewrap is None:
        raise SystemExit("bubblewrap is not installed")
    commands = rows(bubblewrap)
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            begun = time.perf_counter()
            subprocess.run(command, check=True)
            seconds[name].append(time.perf_counter() - begun)
    mounts = len(Path("/proc/self/mountinfo").read_text().splitlines())
    print(f"load {machine.load():.1f}, {mounts} mounts on this machine")
    print(f"{'':42} {'least':>9} {'median':>9}")
    for name, found in seconds.items():
        print(f"{name:42} {min(found) * 1e3:6.2f} ms {statistics.median(found) * 1e3:6.2f} ms")


if __name__ == "__main__":
    main()
