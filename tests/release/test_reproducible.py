"""The same files give the same wheel: it can be compared with what a stranger builds."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.requirements import requirement
from tests.support.source_tree import REPOSITORY

BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE")


def build(folder: Path, *, umask: str, mtime: int) -> dict[str, str]:
    """Build the wheel from a copy of the sources in *folder*; return the digests by name."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "src", folder / "src", ignore=ignored)
    for name in BUILT_FROM:
        shutil.copy(REPOSITORY / name, folder / name)
    for path in folder.rglob("*"):
        os.utime(path, (mtime, mtime))
    hatchling = f'"{sys.executable}" -m hatchling build -t wheel -d out'
    subprocess.run(
        ["sh", "-c", f"umask {umask}; chmod -R go-w .; {hatchling}"],
        cwd=folder,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1800000000"},
        check=True,
        capture_output=True,
        timeout=120,
    )
    built = (folder / "out").iterdir()
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built}


@requirement("release:reproducible")
def test_times_modes_and_folders_do_not_change_the_wheel(tmp_path):
    first = build(tmp_path / "one", umask="022", mtime=1_500_000_000)
    second = build(tmp_path / "another one", umask="077", mtime=1_700_000_000)
    assert len(first) == 1
    assert first == second
