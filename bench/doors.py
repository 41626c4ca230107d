"""Measure what passes through our doors beside plain ssh: `make doors-bench`.

Forwards, direct and through a relay, beside `ssh -L`; rsync through the ssh door beside rsync over
sshd; and `sync` of one large file that has changed a little beside rsync over sshd. All are on the
loopback. The two of a pair are measured in turn, and the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine, ports, ssh_door
from bench.transfer import start_sshd

# How many places of the large file change, and by how much.
_CHANGES, _CHANGED_BYTES = 20, 1000


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=200, help="MB [default: %(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="[default: %(default)s]")
    options = parser.parse_args(words)
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if sshd is None or shutil.which("rsync") is None:
        raise SystemExit("sshd and rsync have to be installed")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="doors-")))
        for name, fact in machine.facts().items():
            print(f"{name}: {fact}")
        print(f"Load: {machine.load():.1f}")
        _forwards(stack, folder, options)
        beside = start_sshd(stack, sshd, folder)
        door = ssh_door.door_config(stack, folder)
        _rsync(folder, {"sshd": beside, "door": door}, options)
        _delta(folder, beside, _url(door), options)
    return 0


def _forwards(stack: contextlib.ExitStack, folder: Path, options: argparse.Namespace) -> None:
    os.environ["XDG_STATE_HOME"] = str(folder)
    far = stack.enter_context(ports.target())
    place = folder / "forwards"
    place.mkdir()
    for forward in ports.forwards(stack, place, far, ["direct", "relay", "ssh"]):
        for way, kind in (("down", b"s"), ("up", b"r")):
            rates = [ports.rate(forward, kind, options.size) for _ in range(options.rounds)]
            speed, used = (statistics.median(each) for each in zip(*rates, strict=True))
            print(f"{forward.name}, {way}: {speed:.0f} MB/s, {used:.1f} ms of CPU a MB", flush=True)


def _rsync(folder: Path, configs: dict[str, str], options: argparse.Namespace) -> None:
    large, copy = folder / "large", folder / "copy"
    large.write_bytes(random.Random(1).randbytes(1_000_000) * options.size)

    def up(config: str) -> float:
        copy.unlink(missing_ok=True)
        return _timed(["rsync", "-We", f"ssh -F {config}", str(large), f"there:{copy}"])

    _pairs("rsync of a new file", {name: partial(up, c) for name, c in configs.items()}, options)


def _delta(folder: Path, config: str, url: str, options: argparse.Namespace) -> None:
    """Before each run the far copy gets its old content."""
    source, theirs = folder / "new", folder / "old"
    for each in (source, theirs):
        each.mkdir()
    content = bytearray(random.Random(2).randbytes(1_000_000 * options.size))
    (folder / "before").write_bytes(content)
    places = random.Random(3)
    for _ in range(_CHANGES):
        start = places.randrange(len(content) - _CHANGED_BYTES)
        content[start : start + _CHANGED_BYTES] = places.randbytes(_CHANGED_BYTES)
    (source / "file").write_bytes(content)
    ours = [sys.executable, "-m", "exec_server", "sync", "-q", str(source), f"{url}:{theirs}"]
    rsync = ["rsync", "-a", "--no-whole-file", "-e", f"ssh -F {config}"]

    def sent(command: list[str]) -> float:
        shutil.copyfile(folder / "before", theirs / "file")
        os.utime(theirs / "file", (1, 1))
        return _timed(command)

    commands = {"rsync": [*rsync, f"{source}/", f"there:{theirs}/"], "sync": ours}
    _pairs("changes of a file", {name: partial(sent, c) for name, c in commands.items()}, options)
    assert (theirs / "file").read_bytes() == content


def _pairs(what: str, runs: dict[str, Callable[[], float]], options: argparse.Namespace) -> None:
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            times[name].append(run())
    for name, seconds in times.items():
        speed = options.size / statistics.median(seconds)
        print(f"{what}, {name}: {statistics.median(seconds):.2f} s, {speed:.0f} MB/s", flush=True)


def _timed(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _url(config: str) -> str:
    return next(word for word in Path(config).read_text().split() if word.startswith("ws://"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
