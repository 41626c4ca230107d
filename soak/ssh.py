"""Clone and copy through the ssh door again and again: ``python soak/ssh.py --help``.

Each `git clone` and each `rsync` has its own ssh connection, and a time after which it counts as
stalled. At the end everything is compared, and the number of stalls has to be 0.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the packages are found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tests.support.servers import start_server
from tests.support.ssh_host import SshHost

_STALL_SECONDS = 60


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=int, default=1000, help="[default: %(default)s]")
    parser.add_argument("--rsyncs", type=int, default=1000, help="[default: %(default)s]")
    parser.add_argument("--linger", default="10", help="of the door; 0: none [default: 10]")
    options = parser.parse_args(words)
    with (
        tempfile.TemporaryDirectory(prefix="ssh-") as folder,
        start_server("--listen", "ws://127.0.0.1:0") as server,
    ):
        host = SshHost(Path(folder), server.url, options=("--linger", options.linger))
        soak = _Soak(host, Path(folder))
        stalls = soak.repeat("git clone", options.clones, soak.clone)
        stalls += soak.repeat("rsync", options.rsyncs, soak.rsync)
    return 1 if stalls else 0


class _Soak:
    def __init__(self, host: SshHost, folder: Path) -> None:
        self._host = host
        self._copy = folder / "copy"
        self._tree = folder / "tree"
        self._repository = folder / "repository"
        for number in range(50):
            path = self._tree / f"d{number % 5}" / f"file-{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(20_000))
        shutil.copytree(self._tree, self._repository)
        git = [
            "git",
            "-C",
            str(self._repository),
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example",
        ]
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
            subprocess.run([*git, *words], check=True)

    def clone(self) -> list[str]:
        return ["git", "clone", "-q", f"build:{self._repository}", str(self._copy)]

    def rsync(self) -> list[str]:
        words = ["rsync", "-a", "-e", self._host.command]
        return [*words, f"{self._tree}/", f"build:{self._copy}/"]

    def repeat(self, name: str, times: int, make: Callable[[], list[str]]) -> int:
        """Run a command so many times; the number of those that stalled."""
        stalls, slowest = 0, 0.0
        began = time.monotonic()
        env = {**self._host.env, "GIT_SSH_COMMAND": self._host.command}
        for number in range(times):
            started = time.monotonic()
            try:
                subprocess.run(make(), env=env, check=True, timeout=_STALL_SECONDS)
                self._check()
            except subprocess.TimeoutExpired:
                stalls += 1
                print(f"{name} {number} has stalled", flush=True)
            slowest = max(slowest, time.monotonic() - started)
            shutil.rmtree(self._copy, ignore_errors=True)
        seconds = time.monotonic() - began
        print(f"{times} x {name}: {stalls} stalls, {seconds:.0f} s, slowest {slowest:.2f} s")
        return stalls

    def _check(self) -> None:
        compared = filecmp.dircmp(self._tree, self._copy, ignore=[".git"])
        assert not compared.left_only and not compared.right_only and not compared.diff_files
        for each in compared.subdirs.values():
            assert not each.left_only and not each.right_only and not each.diff_files


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
