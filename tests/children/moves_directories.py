"""Tries to move each directory of its arguments away, in every way there is; prints what it got.

Usage: moves_directories.py SPARE DIRECTORY...

SPARE is a directory in which the child may make names. It prints one JSON object: for each
directory and each way the name of the error, or "done".
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
import sys

_AT_FDCWD, _EXCHANGE = -100, 2
_libc = ctypes.CDLL(None, use_errno=True)


def exchange(one: str, other: str) -> None:
    if _libc.renameat2(_AT_FDCWD, one.encode(), _AT_FDCWD, other.encode(), _EXCHANGE):
        raise OSError(ctypes.get_errno(), "refused")


def by_exchange(path: str, spare: str) -> None:
    fake = os.path.join(spare, "fake")
    os.makedirs(fake, exist_ok=True)
    exchange(path, fake)


def beside_by_exchange(path: str, spare: str) -> None:
    os.makedirs(path + "-fake", exist_ok=True)
    exchange(path, path + "-fake")


def by_a_descriptor(path: str, spare: str) -> None:
    folder = os.open(os.path.dirname(path), os.O_PATH)
    os.rename(os.path.basename(path), "moved", src_dir_fd=folder, dst_dir_fd=folder)


def by_replacing(path: str, spare: str) -> None:
    os.makedirs(path + "-new", exist_ok=True)
    os.rename(path + "-new", path)


def in_a_namespace(path: str, spare: str) -> None:
    script = f"mv -T {path} {path}-moved"
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", script], capture_output=True)
    if done.returncode:
        raise OSError(errno.EBUSY, "refused")


WAYS = {
    "rename": lambda path, spare: os.rename(path, path + "-moved"),
    "rename away": lambda path, spare: os.rename(path, os.path.join(spare, "moved")),
    "rename by a descriptor": by_a_descriptor,
    "exchange": by_exchange,
    "exchange beside it": beside_by_exchange,
    "replace": by_replacing,
    "hard link": lambda path, spare: os.link(path, os.path.join(spare, "linked")),
    "rename in a namespace": in_a_namespace,
}


def tried(way: str, path: str, spare: str) -> str:
    try:
        WAYS[way](path, spare)
    except OSError as exc:
        return errno.errorcode[exc.errno or 0]
    return "done"


def main() -> None:
    spare, *paths = sys.argv[1:]
    print(json.dumps({path: {way: tried(way, path, spare) for way in WAYS} for path in paths}))


if __name__ == "__main__":
    main()
