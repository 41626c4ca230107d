"""Rename a directory from a mount namespace in which nothing is mounted on it.

moves_from_new_namespace.py ROOT SPOT NAME...

The kernel keeps a mount point in its place only for processes of the same mount namespace. This
program makes one whose only mount is a new file system over the directory SPOT, and renames each
NAME in ROOT by the descriptor of ROOT. It prints what came of it.
"""

import ctypes
import os
import sys

CLONE_NEWNS, CLONE_NEWUSER, MNT_DETACH = 0x00020000, 0x10000000, 2

libc = ctypes.CDLL(None, use_errno=True)


def check(step, result):
    if result < 0:
        sys.exit(f"{step}: {os.strerror(ctypes.get_errno())}")


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def main():
    root, spot, *names = sys.argv[1:]
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    uid, gid = os.getuid(), os.getgid()
    check("unshare", libc.unshare(CLONE_NEWUSER | CLONE_NEWNS))
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"0 {uid} 1")
    write("/proc/self/gid_map", f"0 {gid} 1")
    check("mount", libc.mount(b"new", spot.encode(), b"tmpfs", 0, None))
    os.chdir(spot)
    check("pivot_root", libc.pivot_root(b".", b"."))
    check("umount", libc.umount2(b".", MNT_DETACH))
    for name in names:
        os.rename(name, f"{name}-moved", src_dir_fd=folder, dst_dir_fd=folder)
        print("renamed", name, flush=True)


main()
