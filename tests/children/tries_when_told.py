"""Do what each line of the input says, and print the result: `write PATH`, `mkdir PATH`, ..."""

import os
import socket
import sys


def written(path):
    with open(path, "w") as file:
        file.write("new")


def connected(path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        print(sock.recv(100).decode(), flush=True)


WORK: dict = {
    "write": written,
    "read": lambda path: print(open(path).read()),
    "mkdir": os.mkdir,
    "rmdir": os.rmdir,
    "unlink": os.unlink,
    "rename": os.rename,
    "symlink": os.symlink,
    "chmod": lambda path, mode="640": os.chmod(path, int(mode, 8)),
    "link": os.link,
    "truncate": lambda path: os.truncate(path, 1),
    "touch": lambda path: os.utime(path, (1, 2)),
    "touch-now": os.utime,
    "connect": connected,
    "datagram": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).close(),
}

print("ready", flush=True)
for line in sys.stdin:
    name, *paths = line.split()
    try:
        WORK[name](*paths)
        print("done", flush=True)
    except OSError as exc:
        print(exc.strerror, flush=True)
