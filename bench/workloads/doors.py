"""What passes through our doors beside ssh: forwarded ports, direct and through a relay, and rsync.

Each workload takes turns with ssh on the same machine. ssh encrypts, and so does the relay; a
direct connection over ws:// does not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import ports
from bench.client import now
from bench.servers import Server
from bench.ssh_door import door_config
from bench.transfer import start_sshd
from bench.workload import Figures, Scale, workload

_TURNS = 3
_MEGABYTES = 200
_WAYS = {"down": b"s", "up": b"r"}


# The stock server has streams only by a helper program, and is left out.
@workload(server="durable", most_rounds=1)
def forward_direct(server: Server, scale: Scale) -> Figures:
    """Rates of `exec-server port -L`, and those of `ssh -L` in turns with it."""
    with _place() as (stack, folder):
        far = stack.enter_context(ports.target())
        url = f"ws://127.0.0.1:{server.port}"
        door = ports.Forward("door", ports.our_forward(stack, url, far)[0])
        beside = ports.ssh_forward(stack, folder, far)
        forwards = {"": door} if beside is None else {"": door, "_ssh": beside}
        return _rates(forwards, scale)


@workload(server="durable", most_rounds=1)
def forward_relay(server: Server, scale: Scale) -> Figures:
    """The same through a registry, with a server of its own behind it."""
    with _place() as (stack, folder):
        far = stack.enter_context(ports.target())
        url, words, _ = ports.behind_registry(stack, folder)
        door = ports.Forward("door", ports.our_forward(stack, url, far, *words)[0])
        return _rates({"": door}, scale)


@workload(server="durable", most_rounds=1)
def rsync_ssh(server: Server, scale: Scale) -> Figures:
    """Megabytes in a second of `rsync -e ssh` through the ssh door, and through sshd."""
    programs = {name: shutil.which(name, path=_path()) for name in ("sshd", "ssh", "rsync")}
    if (sshd := programs["sshd"]) is None or None in programs.values():
        return {}
    with _place() as (stack, folder):
        configs = {"": door_config(stack, folder), "_sshd": start_sshd(stack, sshd, folder)}
        size = scale.bytes(_MEGABYTES * 1_000_000)
        large, copy = folder / "large", folder / "copy"
        large.write_bytes(os.urandom(size))
        figures: Figures = {}
        for way, words in {
            "up": [str(large), f"there:{copy}"],
            "down": [f"there:{large}", str(copy)],
        }.items():
            times: dict[str, list[float]] = {name: [] for name in configs}
            for _ in range(_TURNS):
                for name, config in configs.items():
                    times[name].append(_rsync(config, words, copy))
            figures |= {f"{way}{n}": size / statistics.median(t) for n, t in times.items()}
        return figures


def _rates(forwards: dict[str, ports.Forward], scale: Scale) -> Figures:
    megabytes = scale.count(_MEGABYTES)
    figures: Figures = {}
    for way, kind in _WAYS.items():
        found: dict[str, list[float]] = {name: [] for name in forwards}
        for _ in range(_TURNS):
            for name, forward in forwards.items():
                found[name].append(ports.rate(forward, kind, megabytes)[0] * 1e6)
        figures |= {f"{way}{name}": statistics.median(each) for name, each in found.items()}
    return figures


def _rsync(config: str, words: list[str], copy: Path) -> float:
    copy.unlink(missing_ok=True)
    begin = now()
    subprocess.run(["rsync", "-We", f"ssh -F {config}", *words], check=True)
    return now() - begin


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"


@contextlib.contextmanager
def _place() -> Iterator[tuple[contextlib.ExitStack, Path]]:
    """Where what is started ends again, and a short path for its state and sockets."""
    before = os.environ.get("XDG_STATE_HOME")
    with tempfile.TemporaryDirectory(prefix="doors-") as name, contextlib.ExitStack() as stack:
        os.environ["XDG_STATE_HOME"] = name
        try:
            yield stack, Path(name)
        finally:
            if before is None:
                del os.environ["XDG_STATE_HOME"]
            else:
                os.environ["XDG_STATE_HOME"] = before
