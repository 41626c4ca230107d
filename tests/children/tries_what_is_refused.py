"""Try what a sandbox refuses, and what it allows: one line for each attempt, with its result.

The arguments are the workspace, a directory outside of it, a socket, and the names of attempts.
"""

import ctypes
import marshal
import os
import socket
import sys

workspace, outside, listening = sys.argv[1:4]
libc = ctypes.CDLL(None, use_errno=True)
IO_URING_SETUP, X32_GETPID, PTRACE_TRACEME = 425, 0x40000000 + 39, 0


def called(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")


def written(path):
    with open(path, "w") as file:
        file.write("new")


def connected():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(listening)


def many(count):
    for number in range(count):
        try:
            os.mkdir(f"{outside}/{number % 300}")
        except OSError:
            pass


def pair():
    one, other = socket.socketpair()
    os.write(one.fileno(), b"x")
    assert os.read(other.fileno(), 1) == b"x"


def hidden_memory():
    called(libc.prctl(4, 0, 0, 0, 0))
    written(f"{outside}/unseen")


def new_root():
    """Make the directory outside the root, and write to its FIFO by a path that was writable."""
    written(f"{workspace}/fifo-beside")
    called(libc.unshare(0x10000000))
    os.chroot(outside)
    os.close(os.open(f"{workspace}/fifo", os.O_WRONLY | os.O_NONBLOCK))


def forged():
    """Look for the channel of the records in all processes, and write a record to it."""
    record = ("record", "d1", "write", b"/forged", "open", "rule", True, 1, 1, b"/forged", False)
    for name in filter(str.isdigit, os.listdir("/proc")):
        if int(name) == os.getpid():
            continue
        pidfd = libc.syscall(434, int(name), 0)
        for number in range(3, 64):
            taken = libc.syscall(438, pidfd, number, 0)
            if taken >= 0:
                try:
                    os.write(taken, marshal.dumps(record))
                except OSError:
                    pass
                os.close(taken)
        if pidfd >= 0:
            os.close(pidfd)
    for name in os.listdir("/proc/self/fd"):
        try:
            os.write(int(name), marshal.dumps(record) if int(name) > 2 else b"")
        except OSError:
            pass


ATTEMPTS = {
    "write": lambda: written(f"{outside}/new"),
    "old": lambda: written(f"{outside}/old"),
    "read": lambda: open(f"{outside}/secret").close(),
    "protected": lambda: written(f"{workspace}/.git/config"),
    "mkdir": lambda: os.mkdir(f"{outside}/made"),
    "rename": lambda: os.rename(f"{workspace}/mine", f"{outside}/moved"),
    "unlink": lambda: os.unlink(f"{outside}/old"),
    "symlink": lambda: os.symlink("x", f"{outside}/link"),
    "control": lambda: written(f"{outside}/a\x1b[31m\nb"),
    "link-out": lambda: written(f"{workspace}/out/new"),
    "relative": lambda: written(os.path.relpath(f"{outside}/new", os.getcwd())),
    "at": lambda: os.close(
        os.open("new", os.O_WRONLY | os.O_CREAT, dir_fd=os.open(outside, os.O_RDONLY))
    ),
    "fifo": lambda: os.close(os.open(f"{outside}/fifo", os.O_WRONLY | os.O_NONBLOCK)),
    "unix": connected,
    "inet": lambda: socket.socket().close(),
    "ptrace": lambda: called(libc.ptrace(PTRACE_TRACEME, 0, 0, 0)),
    "mount": lambda: called(libc.mount(b"x", workspace.encode(), b"tmpfs", 0, None)),
    # As bubblewrap does it: MS_SILENT | MS_BIND, without a type and without options.
    "silent-bind": lambda: called(libc.mount(workspace.encode(), b"/", None, 0x9000, None)),
    "new-root": new_root,
    "unshare": lambda: called(libc.unshare(0x20000)),
    "uring": lambda: called(libc.syscall(IO_URING_SETUP, 1, 0)),
    "x32": lambda: called(libc.syscall(ctypes.c_long(X32_GETPID))),
    "many": lambda: many(20_000),
    "unseen": hidden_memory,
    "forge": forged,
    # These are allowed, or fail without any sandbox.
    "own": lambda: written(f"{workspace}/own"),
    "own-mkdir": lambda: os.makedirs(f"{workspace}/deep/deeper", exist_ok=True),
    "look": lambda: open(f"{outside}/old").close(),
    "null": lambda: written("/dev/null"),
    "pair": pair,
    "missing": lambda: os.unlink(f"{outside}/nothing"),
    "missing-folder": lambda: written(f"{outside}/nothing/new"),
    "exists": lambda: os.mkdir(outside),
    "no-socket": lambda: socket.socket(socket.AF_UNIX).connect(f"{outside}/nothing"),
}

for name in sys.argv[4:]:
    try:
        ATTEMPTS[name]()
        print(name, "done", flush=True)
    except OSError as exc:
        print(name, exc.errno, flush=True)
