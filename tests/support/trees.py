"""A tree with one of everything that a file system can hold, and what it looks like afterwards."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

# Names that are awkward in URIs, in JSON or in neither, but valid in a path.
ODD_NAMES = [
    b"a b",
    b"caf\xc3\xa9",
    b"100%",
    b"%41",
    b"a#b?c",
    b"back\\slash",
    b"quote\"'`",
    b"semi;colon:at@",
    b"{brace}[bracket]",
    b"...",
    b"~",
    b"-n",
    b"\xf0\x9f\x98\x80",
    b"x" * 255,
]
# The reference cannot list these: it looks them up under another name.
NOT_UTF8 = b"\xff\xfe"
WITH_BREAKS = [b"tab\there", b"line\nbreak"]
THEN = 1_600_000_000


def make_tree(root: bytes) -> None:
    """Fill the directory *root*: files, directories, links of all kinds, FIFO, socket."""
    os.makedirs(root, exist_ok=True)
    _files(root)
    _links(root)
    os.mkfifo(root + b"/fifo")
    _make_socket(root)
    for folder, directories, files in os.walk(root, topdown=False):
        for name in (*files, *directories):
            os.utime(os.path.join(folder, name), (THEN, THEN), follow_symlinks=False)
    os.utime(root, (THEN, THEN))


def _files(root: bytes) -> None:
    for name, content in {
        b"file": b"content",
        b"empty": b"",
        b"big": bytes(range(256)) * 1200,
        b".hidden": b"dot",
        b"setuid": b"#!",
        b"readonly": b"r",
        b"dir/inner": b"inside",
        b"dir/sub/deep": b"deeper",
        b"dir/.git/config": b"hidden",
        b"other/file": b"other",
    }.items():
        os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
        Path(os.fsdecode(os.path.join(root, name))).write_bytes(content)
    os.mkdir(root + b"/hollow")
    os.chmod(root + b"/setuid", 0o4755)
    os.chmod(root + b"/readonly", 0o444)
    os.link(root + b"/file", root + b"/hardlink")
    os.mkdir(root + b"/odd")
    for name in ODD_NAMES:
        Path(os.fsdecode(os.path.join(root, b"odd", name))).write_bytes(name)


def _links(root: bytes) -> None:
    for name, target in {
        b"to_file": b"file",
        b"to_dir": b"dir",
        b"to_nothing": b"nowhere",
        b"to_itself": b"to_itself",
        b"to_loop": b"to_other_loop",
        b"to_other_loop": b"to_loop",
        b"to_fifo": b"fifo",
        b"to_root": root,
        b"to_parent": b"..",
        b"to_link": b"to_file",
        b"to_below_file": b"file/x",
        b"dir/up": b"../other",
        b"dir/sub/back": b"../..",
    }.items():
        os.symlink(target, os.path.join(root, name))


def _make_socket(root: bytes) -> None:
    here = os.getcwd()
    # The address of a socket is short; relative it always fits.
    os.chdir(root)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(b"socket")
    finally:
        os.chdir(here)


def guard(root: bytes) -> None:
    """Add parts to a tree that an ordinary user cannot read, list or search."""
    for folder in (b"/closed", b"/listed", b"/searched", b"/sealed"):
        os.makedirs(root + folder + b"/dir")
        Path(os.fsdecode(root + folder + b"/file")).write_bytes(b"x")
        os.symlink(b"file", root + folder + b"/link")
    Path(os.fsdecode(root + b"/secret")).write_bytes(b"s")
    os.chmod(root + b"/secret", 0)
    os.chmod(root + b"/closed", 0)
    os.chmod(root + b"/listed", 0o444)
    os.chmod(root + b"/searched", 0o311)
    os.chmod(root + b"/sealed", 0o555)


def paths_in(root: bytes) -> list[bytes]:
    """Every name in a tree, relative to *root*, and some that are not there."""
    found = [b""]
    for folder, directories, files in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, n), root) for n in (*directories, *files)]
    return [
        *sorted(found),
        b"missing",
        b"missing/below",
        b"file/below",
        b"to_dir/inner",
        b"to_dir/missing",
        b"to_nothing/below",
        b"to_itself/below",
        b"to_parent/..",
        b"fifo/below",
        b"y" * 256,
    ]


def snapshot(root: bytes) -> dict[bytes, tuple[Any, ...]]:
    """What is in a tree: kind, mode, content or target, number of names."""
    found: dict[bytes, tuple[Any, ...]] = {}
    for folder, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = _described(path, root)
    return found


def _described(path: bytes, root: bytes) -> tuple[Any, ...]:
    status = os.lstat(path)
    mode = oct(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return mode, os.readlink(path).replace(root, b"ROOT")
    if stat.S_ISREG(status.st_mode):
        return mode, Path(os.fsdecode(path)).read_bytes(), status.st_nlink
    return (mode,)
