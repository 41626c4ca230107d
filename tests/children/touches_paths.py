"""Tries every kind of access in every directory that is named, and prints what came of each.

In each directory everything is tried on an entry of its own, so that nothing gets in the way of
another: `make_place` makes them. Directories that do not exist are tried as well.
"""

from __future__ import annotations

import errno
import json
import os
import sys


def make_place(path: str) -> None:
    os.makedirs(path, exist_ok=True)
    for name in ("read", "write", "remove", "rename", "chmod", "a.env"):
        with open(f"{path}/{name}", "w") as file:
            file.write(name)
    for name in ("removed-dir", "renamed-dir"):
        os.makedirs(f"{path}/{name}", exist_ok=True)


def _read(path: str) -> None:
    with open(path, "rb") as file:
        # What is hidden behind an empty file is not to be mistaken for the file.
        if not file.read():
            raise OSError(errno.ENODATA, "")


def _create(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))


ACCESSES = {
    "list": lambda place: os.listdir(place),
    "stat": lambda place: os.stat(f"{place}/read"),
    "read": lambda place: _read(f"{place}/read"),
    "read .env": lambda place: _read(f"{place}/a.env"),
    "write": lambda place: os.close(os.open(f"{place}/write", os.O_WRONLY)),
    "truncate": lambda place: os.truncate(f"{place}/write", 0),
    "write .env": lambda place: os.close(os.open(f"{place}/a.env", os.O_WRONLY)),
    "create": lambda place: _create(f"{place}/created"),
    "mkdir": lambda place: os.mkdir(f"{place}/made"),
    "symlink": lambda place: os.symlink("read", f"{place}/linked"),
    "remove": lambda place: os.unlink(f"{place}/remove"),
    "rmdir": lambda place: os.rmdir(f"{place}/removed-dir"),
    "rename": lambda place: os.rename(f"{place}/rename", f"{place}/was-renamed"),
    "rename dir": lambda place: os.rename(f"{place}/renamed-dir", f"{place}/was-renamed-dir"),
    "chmod": lambda place: os.chmod(f"{place}/chmod", 0o600),
    "move away": lambda place: os.rename(place, f"{place}-moved"),
    "make": lambda place: os.mkdir(place),
}


def main() -> None:
    for place in sys.argv[1:]:
        for kind, act in ACCESSES.items():
            try:
                act(place)
                outcome = "allowed"
            except OSError as exc:
                outcome = errno.errorcode.get(exc.errno or 0, "?")
            if kind == "move away" and outcome == "allowed":
                os.rename(f"{place}-moved", place)
            print(json.dumps([place, kind, outcome]))


if __name__ == "__main__":
    main()
