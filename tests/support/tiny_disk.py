"""A file system of a few blocks, mounted in a mount namespace of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_MOUNT = 'mount -t tmpfs -o size="$0",mode=0700 none "$1" && echo ready && exec cat'


@contextlib.contextmanager
def tiny_disk(size: int, at: Path) -> Iterator[Path]:
    """A path to a tmpfs of *size* bytes; skips the test where it cannot be mounted."""
    at.mkdir()
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    try:
        holder = subprocess.Popen(
            ["unshare", "--mount", *rights, "sh", "-c", _MOUNT, str(size), at],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare(1) to mount a small file system with")
    with holder:
        assert holder.stdin is not None and holder.stdout is not None
        if holder.stdout.readline() != b"ready\n":
            pytest.skip("no file system can be mounted in a namespace here")
        yield Path(f"/proc/{holder.pid}/root{at}")
        holder.stdin.close()


def fill(folder: Path) -> Path:
    """Write a file until the disk is full."""
    path = folder / "filling"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (1 << 16, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(fd, b"x" * size)
    finally:
        os.close(fd)
    return path
