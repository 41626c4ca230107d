"""Releases to compare: a wheel of each, installed in an environment of its own.

No package is downloaded: the environments look for what the wheels need in the one that runs this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SECONDS = 120
# What a release is called in the table, and its commit. None was ever uploaded, so they are built.
OLD = {
    "0.1.0": "c27f2d7",
    # Between both: durable jobs and their keeper exist, and nothing that came after them.
    "0.2.0a1": "8966e65",
}


class UpgradeBroken(Exception):
    """Two releases do not work together as docs/upgrading.md promises."""


class Release:
    """An installed release; *home* is where its programs keep their state."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.python = folder / "bin" / "python"
        self.program = folder / "bin" / "exec-server"

    def __str__(self) -> str:
        return self.name

    def run(self, home: Path, *words: str | Path, stdin: str = "", status: int = 0) -> str:
        """Run a command of this release; returns what it printed to stdout."""
        return self._call([self.program, *words], home, stdin, status)

    def probe(self, home: Path, *words: str) -> str:
        """Run the program with the client library that is in `probe.py`."""
        return self._call([self.python, Path(__file__).with_name("probe.py"), *words], home, "", 0)

    def _call(self, command: list[str | Path], home: Path, stdin: str, status: int) -> str:
        done = subprocess.run(
            [str(word) for word in command],
            input=stdin,
            env=environment(home),
            cwd=home,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode != status:
            shown = " ".join(str(word) for word in command[1:])
            raise UpgradeBroken(
                f"{self.name}: `{shown}` ended with {done.returncode}, not {status}: "
                f"{done.stdout[-500:]}{done.stderr[-1500:]}"
            )
        return done.stdout

    @contextmanager
    def serving(self, home: Path, *words: str | Path, prints_url: bool = True) -> Iterator[str]:
        """Run a server, an executor or a registry; yields its first line, and ends it."""
        server = subprocess.Popen(
            [str(word) for word in (self.program, *words)],
            env=environment(home),
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(home / "stderr").open("a"),
            text=True,
        )
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip() if prints_url else ""
        finally:
            server.terminate()
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def environment(home: Path) -> dict[str, str]:
    """The variables of every program: a home of its own, and nothing of the caller's."""
    home.mkdir(parents=True, exist_ok=True)
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def installed(name: str, commit: str | None, scratch: Path) -> Release:
    """Build the wheel of *commit*, or of the tree as it is, and install it without its needs."""
    source = ROOT
    if commit is not None:
        source = scratch / f"source-{name}"
        archive = subprocess.check_output(["git", "archive", "--format=tar", commit], cwd=ROOT)
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(source, filter="data")
    wheels = scratch / f"wheel-{name}"
    _quietly(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels, cwd=source)
    folder = scratch / f"environment-{name}"
    _quietly(sys.executable, "-m", "venv", "--without-pip", folder)
    (wheel,) = wheels.glob("*.whl")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    _quietly(
        *pip, "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check", wheel
    )
    (packages,) = folder.glob("lib/python3*/site-packages")
    # A path in such a file comes after the environment's own, and files of this kind in it are not
    # read: the package that is installed there in place for development is not found.
    (packages / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Release(name, folder)


def _quietly(*words: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS * 5,
        check=False,
    )
    if done.returncode:
        raise UpgradeBroken(f"{' '.join(map(str, words))} failed:\n{done.stdout}")
