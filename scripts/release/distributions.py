"""The wheel and the source archive of a commit; the same commit gives the same bytes."""

from __future__ import annotations

import hashlib
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path
from subprocess import check_output

from scripts.release.shell import ROOT, ReleaseFailed, run


def export(commit: str, folder: Path) -> None:
    """Write the files of *commit* to *folder*, without anything else that may lie about."""
    archive = check_output(["git", "archive", "--format=tar", commit], cwd=ROOT)
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def time_of(commit: str) -> str:
    """The second of *commit*, which is the time of every file in what is built from it."""
    return run("git", "show", "--no-patch", "--format=%ct", commit).strip()


def build(commit: str, scratch: Path, out: Path, *, umask: str = "022") -> list[Path]:
    """Build the source archive of *commit*, and the wheel from the archive, into *out*."""
    source = scratch / "source"
    source.mkdir(parents=True)
    export(commit, source)
    command = f'umask {umask}; exec "$0" -m build --no-isolation --outdir "$1" "$2"'
    env = {"SOURCE_DATE_EPOCH": time_of(commit), "PYTHONHASHSEED": "0"}
    run("sh", "-c", command, sys.executable, out, source, cwd=scratch, env=env)
    return sorted(out.iterdir())


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_twice(commit: str, scratch: Path, out: Path) -> list[Path]:
    """Build *commit* in two folders with different modes, and compare the digests."""
    first = build(commit, scratch / "one", out)
    second = build(commit, scratch / "another one", scratch / "again", umask="077")
    for path, again in zip(first, second, strict=True):
        if path.name != again.name or digest(path) != digest(again):
            raise ReleaseFailed(f"{path.name} is different when it is built again")
    return first


def check(built: list[Path], version: str) -> None:
    """Fail unless the tools of the index accept both, and the wheel has the version and licence."""
    run(sys.executable, "-m", "twine", "check", "--strict", *built)
    wheels = [path for path in built if path.suffix == ".whl"]
    run(sys.executable, "-m", "check_wheel_contents", *wheels)
    (wheel,) = wheels
    if wheel.name != f"exec_server-{version}-py3-none-any.whl":
        raise ReleaseFailed(f"the wheel is called {wheel.name}")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    for needed in ("exec_server/py.typed", f"exec_server-{version}.dist-info/licenses/LICENSE"):
        if needed not in names:
            raise ReleaseFailed(f"{wheel.name} has no {needed}")
