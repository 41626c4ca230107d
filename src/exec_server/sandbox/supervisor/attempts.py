"""What a notified system call tries to do: paths, addresses and flags, read from its process.

Everything here is read from the memory of a program that may change it at any time. So an attempt
is only a hint for a record. What a client grants is opened outside, by the path that was read here,
and never by the call itself. The keeper loads this file by its path, so it imports the standard
library only, and it is long because it cannot import another file of ours.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # Where the paths and flags of a system call are, as indices of the fields of a `Call`: for each
    # path its directory, or None, and the path itself; the flags of an open, or None for calls that
    # always write; and whether a link at the end of a path is followed if the flags do not tell.
    CallOutline = tuple[tuple[tuple[int | None, int], ...], int | None, bool]

# For each call with paths: its operation, where its paths are (the argument with the directory, or
# None; the argument with the path), and what it does: it opens, with its flags in that argument; it
# makes, changes or removes a name, or it changes the file behind the name.
_OPEN, _OPEN_HOW, _MAKE, _REMOVE, _MOVE, _CHANGE, _CHANGE_LINK = range(7)
PATH_CALLS: dict[str, tuple[str, tuple[tuple[int | None, int], ...], int, int]] = {
    "open": ("open", ((None, 0),), _OPEN, 1),
    "openat": ("open", ((0, 1),), _OPEN, 2),
    "creat": ("open", ((None, 0),), _OPEN, -1),
    "openat2": ("open", ((0, 1),), _OPEN_HOW, 2),
    "mkdir": ("mkdir", ((None, 0),), _MAKE, 0),
    "mkdirat": ("mkdir", ((0, 1),), _MAKE, 0),
    "mknod": ("mknod", ((None, 0),), _MAKE, 0),
    "mknodat": ("mknod", ((0, 1),), _MAKE, 0),
    "symlink": ("symlink", ((None, 1),), _MAKE, 0),
    "symlinkat": ("symlink", ((1, 2),), _MAKE, 0),
    "link": ("link", ((None, 1),), _MAKE, 0),
    "linkat": ("link", ((2, 3),), _MAKE, 0),
    "unlink": ("unlink", ((None, 0),), _REMOVE, 0),
    "unlinkat": ("unlink", ((0, 1),), _REMOVE, 0),
    "rmdir": ("rmdir", ((None, 0),), _REMOVE, 0),
    "rename": ("rename", ((None, 0), (None, 1)), _MOVE, 0),
    "renameat": ("rename", ((0, 1), (2, 3)), _MOVE, 0),
    "renameat2": ("rename", ((0, 1), (2, 3)), _MOVE, 0),
    "truncate": ("truncate", ((None, 0),), _CHANGE, 0),
    "chmod": ("chmod", ((None, 0),), _CHANGE, 0),
    "fchmodat": ("chmod", ((0, 1),), _CHANGE, 0),
    "fchmodat2": ("chmod", ((0, 1),), _CHANGE, 0),
    "chown": ("chown", ((None, 0),), _CHANGE, 0),
    "lchown": ("chown", ((None, 0),), _CHANGE_LINK, 0),
    "fchownat": ("chown", ((0, 1),), _CHANGE_LINK, 0),
    "utime": ("utime", ((None, 0),), _CHANGE, 0),
    "utimes": ("utime", ((None, 0),), _CHANGE, 0),
    "futimesat": ("utime", ((0, 1),), _CHANGE, 0),
    "utimensat": ("utime", ((0, 1),), _CHANGE, 0),
    "setxattr": ("setxattr", ((None, 0),), _CHANGE, 0),
    "lsetxattr": ("setxattr", ((None, 0),), _CHANGE_LINK, 0),
    "removexattr": ("removexattr", ((None, 0),), _CHANGE, 0),
    "lremovexattr": ("removexattr", ((None, 0),), _CHANGE_LINK, 0),
}
# The arguments with a mode, a length or flags.
_EXTRAS = {
    "mkdir": 1,
    "mkdirat": 2,
    "unlinkat": 2,
    "renameat2": 4,
    "linkat": 4,
    "chmod": 1,
    "fchmodat": 2,
    "fchmodat2": 2,
    "truncate": 1,
    "utimensat": 3,
}
# The argument with the text of a symbolic link.
_LINK_TEXTS = {"symlink": 0, "symlinkat": 0}
# The arguments with the directory and the path of a file that gets a second name.
_LINKED: dict[str, tuple[int | None, int]] = {"link": (None, 0), "linkat": (0, 1)}
_REMOVES_DIRECTORY = 0x200
# The bits of a mode that give a program the rights of the file's owner or group.
_GIVES_RIGHTS = stat.S_ISUID | stat.S_ISGID
_TIMES_BYTES = 32
# Operations that a supervisor can do for a program.
DOABLE = frozenset(
    "open mkdir unlink rmdir rename symlink link chmod truncate utime connect".split()
)
# Calls for which it does not: they are old, and what they ask for has another form.
_OLD_CALLS = frozenset(("utime", "utimes", "futimesat"))
# The calls whose second argument is an address, or whose fifth one is.
_ADDRESSES = {"connect": (1, 2), "bind": (1, 2), "sendto": (4, 5)}
_SOCKET_CALLS = frozenset(
    "socket socketpair connect accept accept4 bind listen sendto sendmmsg".split()
)
_CREAT_FLAGS = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
_TEMPORARY = getattr(os, "O_TMPFILE", 0)
_PATH_BYTES, _PAGE = 4096, 4096
# Most paths are shorter.
_USUAL_BYTES = 256
_ADDRESS_BYTES = 128
# The arguments are the last six of twelve fields of a call, see notifications.py.
_ARGUMENTS = 6
_HERE = -100
_X32 = 0x40000000
_TYPE_MASK = 0xF
# Paths that lead to the descriptors of the process that opens them.
_OWN_DESCRIPTORS = (b"/dev/fd", b"/dev/stdin", b"/dev/stdout", b"/dev/stderr", b"/proc")
# The target of a socket of this machine begins with this.
_UNIX = b"unix:"
_FCNTL = {1024: "F_SETLEASE", 1040: "F_SETDELEG"}
_IOCTL = {0x5412: "TIOCSTI", 0x541C: "TIOCLINUX"}


class Unseen(Exception):
    """What a call is about cannot be read: its process is gone, or keeps its memory to itself."""


class PathAttempt:
    """An attempt to use the file at *path*, which is free of symbolic links."""

    __slots__ = (
        "_exists",
        "detail",
        "extra",
        "flags",
        "is_special",
        "operation",
        "path",
        "renames",
        "source",
        "writes",
    )

    def __init__(
        self, operation: str, path: bytes, *, writes: bool, exists: bool, renames: bool = False
    ) -> None:
        self.operation = operation
        self.path = path
        self._exists = exists
        self.writes = writes
        self.renames = renames
        # The flags of an open; the mode of a file or directory, or its new length.
        self.flags: int | None = None
        self.extra = 0
        # The text of a symbolic link, or new times; the file that gets a second name.
        self.detail: bytes | None = None
        self.source: bytes | None = None
        # True if the call asks for more than its operation and its paths say.
        self.is_special = False

    def is_permitted(self) -> bool:
        """True if the modes and owners of files would allow a change, without any sandbox."""
        if not self.writes:
            return True
        if self._exists and not self.renames:
            return os.access(self.path, os.W_OK, effective_ids=True)
        return os.access(os.path.dirname(self.path), os.W_OK | os.X_OK, effective_ids=True)

    @property
    def is_doable(self) -> bool:
        """True if a supervisor can do it for the program."""
        return self.operation in DOABLE and not self.is_special


def call_outlines(calls: dict[int, str]) -> dict[int, CallOutline]:
    """The outlines of those of *calls* whose paths and flags are all in their arguments."""
    return {
        number: _outline(name)
        for number, name in calls.items()
        if name in PATH_CALLS and PATH_CALLS[name][2] != _OPEN_HOW
    }


def _outline(name: str) -> CallOutline:
    _, places, does, argument = PATH_CALLS[name]
    paths = tuple(
        (None if directory is None else _ARGUMENTS + directory, _ARGUMENTS + text)
        for directory, text in places
    )
    flags = _ARGUMENTS + argument if does == _OPEN and argument >= 0 else None
    return paths, flags, does in (_OPEN, _CHANGE)


def path_attempts(name: str, call: Any) -> list[PathAttempt]:
    """What *call*, a system call with paths, tries; paths at which it fails anyway are left out.

    Raises Unseen.
    """
    operation, places, does, argument = PATH_CALLS[name]
    if does in (_OPEN, _OPEN_HOW):
        attempt = _opening(call, operation, places[0], does, argument)
        return [] if attempt is None else [attempt]
    found = []
    for number, (directory, text) in enumerate(places):
        follows = does == _CHANGE
        path, exists = _resolved(call, directory, text, follows=follows)
        is_made = does == _MAKE or (does == _MOVE and number == 1)
        if path is None or (is_made and exists and does == _MAKE) or not (is_made or exists):
            return []
        renames = does in (_MAKE, _REMOVE, _MOVE)
        found.append(PathAttempt(operation, path, writes=True, exists=exists, renames=renames))
    if name in _EXTRAS:
        _add_extra(name, _at(call, _EXTRAS[name]), found)
    return found


def add_details(name: str, call: Any, found: list[PathAttempt]) -> None:
    """Add what only a supervisor that does the call has to know, to the attempts of `call`.

    Raises Unseen.
    """
    first = found[0]
    first.is_special = first.is_special or name in _OLD_CALLS
    if name in _LINK_TEXTS:
        first.detail = text_at(call.pid, _at(call, _LINK_TEXTS[name]))
    elif name in _LINKED:
        first.source, exists = _resolved(call, *_LINKED[name], follows=False)
        first.is_special = first.is_special or not exists
    elif name == "utimensat" and _at(call, 2):
        first.detail = _memory(call.pid, _at(call, 2), _TIMES_BYTES)
        first.is_special = first.is_special or len(first.detail) != _TIMES_BYTES


def _add_extra(name: str, extra: int, found: list[PathAttempt]) -> None:
    if name != "truncate":
        extra &= 0xFFFFFFFF
    for attempt in found:
        attempt.extra = extra
        if name == "unlinkat" and extra == _REMOVES_DIRECTORY:
            attempt.operation = "rmdir"
        elif name in ("renameat2", "linkat", "utimensat"):
            attempt.is_special = bool(extra)
        elif name in ("chmod", "fchmodat", "fchmodat2"):
            attempt.is_special = bool(extra & _GIVES_RIGHTS)


def _opening(
    call: Any, operation: str, place: tuple[int | None, int], does: int, argument: int
) -> PathAttempt | None:
    resolves_itself = False
    if does == _OPEN_HOW:
        flags, mode, resolve = struct.unpack("=QQQ", _memory(call.pid, _at(call, argument), 24))
        resolves_itself = bool(resolve)
    elif argument < 0:
        flags, mode = _CREAT_FLAGS, _at(call, 1)
    else:
        flags, mode = _at(call, argument) & 0xFFFFFFFF, _at(call, argument + 1) & 0o7777
    if flags & os.O_PATH:
        return None
    is_made_new = bool(flags & os.O_CREAT and flags & os.O_EXCL)
    follows = not flags & os.O_NOFOLLOW and not is_made_new
    path, exists = _resolved(call, *place, follows=follows)
    if path is None or (not exists and not flags & os.O_CREAT) or (exists and is_made_new):
        return None
    writes = bool(flags & (os.O_ACCMODE | os.O_TRUNC)) or not exists
    attempt = PathAttempt(operation, path, writes=writes, exists=exists)
    attempt.flags, attempt.extra = flags, mode
    attempt.is_special = resolves_itself or flags & _TEMPORARY == _TEMPORARY
    return attempt


def is_fifo(path: bytes) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _resolved(
    call: Any, directory: int | None, text: int, *, follows: bool
) -> tuple[bytes | None, bool]:
    """The path that arguments of *call* lead to on the host, and whether it exists.

    None stands for a path that leads nowhere, or into the process itself.
    """
    name = text_at(call.pid, _at(call, text)) if _at(call, text) else b""
    if not name:
        # It is about a file that the program has open.
        return None, False
    fd = _HERE if directory is None else _signed(_at(call, directory))
    return _led(call, fd, name, follows=follows)


def _led(call: Any, fd: int, name: bytes, *, follows: bool) -> tuple[bytes | None, bool]:
    """Where *name* leads for the process of *call*, from its directory *fd*."""
    if name.startswith(b"/"):
        above = link_at(b"/proc/%d/root" % call.pid)
        joined = name if above == b"/" else above + name
    else:
        place = b"cwd" if fd == _HERE else b"fd/%d" % fd
        joined = link_at(b"/proc/%d/%b" % (call.pid, place)) + b"/" + name
    if not joined.startswith(b"/") or is_own_descriptor(joined):
        return None, False
    return _located(joined, follows=follows)


def is_own_descriptor(path: bytes) -> bool:
    """True if *path* may lead to the descriptors of the process that opens it."""
    if not (b"/dev/" in path or b"/proc" in path):
        return False
    normal = os.path.normpath(path)
    return any(normal == own or normal.startswith(own + b"/") for own in _OWN_DESCRIPTORS)


def _located(path: bytes, *, follows: bool) -> tuple[bytes | None, bool]:
    path = path.rstrip(b"/") or b"/"
    try:
        return opened_path(path, 0 if follows else os.O_NOFOLLOW), True
    except FileNotFoundError:
        pass
    except OSError:
        return None, False
    above, _, name = path.rpartition(b"/")
    if name in (b"", b".", b".."):
        return None, False
    try:
        if follows and os.path.islink(path):
            return os.path.realpath(path), False
        return os.path.join(opened_path(above or b"/", os.O_DIRECTORY), name), False
    except OSError:
        return None, False


def opened_path(path: bytes, flags: int) -> bytes:
    """Where *path* leads, by one call that has no effect on what it opens."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC | flags)
    try:
        found = os.readlink(b"/proc/self/fd/%d" % fd)
    finally:
        os.close(fd)
    if not found.startswith(b"/"):
        raise OSError(0, "this is no file")
    return found


# Calls that are refused whatever they do.


def refused_call(name: str, call: Any) -> tuple[str, str, bytes]:
    """The kind, the operation and the target of a call that the filter itself refuses."""
    if name in _SOCKET_CALLS:
        return "socket", name, _socket_target(name, call)
    detail = ""
    if name in ("fcntl", "ioctl"):
        names = _FCNTL if name == "fcntl" else _IOCTL
        request = _at(call, 1) & 0xFFFFFFFF
        detail = " " + names.get(request, hex(request))
    return "syscall", "call", f"{name}{detail}".encode()


def foreign_call(call: Any) -> tuple[str, str, bytes]:
    """The same for a call of another architecture."""
    if call.number & _X32:
        return "syscall", "call", b"x32 call %d" % (call.number & ~_X32)
    return "syscall", "call", b"call %d of another architecture" % call.number


def is_unix(target: bytes) -> bool:
    """True if a socket's target, as `refused_call` tells it, is one of this machine."""
    return target.startswith(b"unix")


def is_missing_socket(target: bytes) -> bool:
    """True for the path of a unix socket where there is none, so that nothing was refused."""
    if not target.startswith(_UNIX + b"/"):
        return False
    try:
        return not stat.S_ISSOCK(os.stat(target[len(_UNIX) :]).st_mode)
    except OSError:
        return True


class ConnectAttempt:
    """An attempt to connect the socket *fd* of a process to the one at the path of *target*."""

    __slots__ = ("fd", "path")

    operation = "connect"

    def __init__(self, call: Any, target: bytes) -> None:
        self.fd = _signed(_at(call, 0))
        self.path = target[len(_UNIX) :]


def connect_attempt(operation: str, target: bytes, call: Any) -> ConnectAttempt | None:
    """What *call* tries, as `refused_call` tells it, if a supervisor could do it."""
    if operation != "connect" or not target.startswith(_UNIX + b"/"):
        return None
    return ConnectAttempt(call, target)


def _socket_target(name: str, call: Any) -> bytes:
    if name in ("socket", "socketpair"):
        return _family(_at(call, 0)) + b" " + _kind(_at(call, 1))
    if name in _ADDRESSES:
        address, length = _ADDRESSES[name]
        try:
            size = min(_at(call, length) & 0xFFFFFFFF, _ADDRESS_BYTES)
            if _at(call, address) and size >= 2:
                return _address(call, _memory(call.pid, _at(call, address), size))
        except Unseen:
            pass
    return b"socket"


def _family(number: int) -> bytes:
    try:
        return socket.AddressFamily(number & 0xFFFFFFFF).name.removeprefix("AF_").lower().encode()
    except ValueError:
        return b"family %d" % (number & 0xFFFFFFFF)


def _kind(number: int) -> bytes:
    try:
        return socket.SocketKind(number & _TYPE_MASK).name.removeprefix("SOCK_").lower().encode()
    except ValueError:
        return b"%d" % (number & _TYPE_MASK)


def _address(call: Any, raw: bytes) -> bytes:
    family = int.from_bytes(raw[:2], "little")
    if family == socket.AF_UNIX:
        name = raw[2:]
        if name[:1] == b"\0":
            return _UNIX + b"@" + name[1:].rstrip(b"\0")
        name = name.partition(b"\0")[0]
        path, _ = _led(call, _HERE, name, follows=True) if name else (None, False)
        return _UNIX + (name if path is None else path)
    if family == socket.AF_INET and len(raw) >= 8:
        host = socket.inet_ntop(socket.AF_INET, raw[4:8])
        return f"{host}:{int.from_bytes(raw[2:4], 'big')}".encode()
    if family == socket.AF_INET6 and len(raw) >= 24:
        host = socket.inet_ntop(socket.AF_INET6, raw[8:24])
        return f"[{host}]:{int.from_bytes(raw[2:4], 'big')}".encode()
    return _family(family)


# What /proc tells of a process.


def program_of(pid: int) -> bytes:
    """The path of the program that *pid* runs; empty if that cannot be read."""
    try:
        return os.readlink(b"/proc/%d/exe" % pid)
    except OSError:
        return b""


def status_of(pid: int) -> tuple[int, int]:
    """The process to which the thread *pid* belongs, and its umask."""
    process, mask = pid, 0o022
    try:
        with open(f"/proc/{pid}/status", "rb") as lines:
            for line in lines:
                name, _, value = line.partition(b":\t")
                if name == b"Umask":
                    mask = int(value, 8)
                elif name == b"Tgid":
                    process = int(value)
                    break
    except (OSError, ValueError):
        pass
    return process, mask


def has_signal(pid: int) -> bool:
    """True if a signal waits for the thread *pid*, which gets it when its call returns."""
    try:
        with open(f"/proc/{pid}/status", "rb") as lines:
            found = [line for line in lines if line.startswith((b"SigPnd", b"ShdPnd"))]
    except OSError:
        return True
    return any(line.split()[1].strip(b"0") for line in found)


def link_at(path: bytes) -> bytes:
    try:
        return os.readlink(path)
    except OSError as exc:
        raise Unseen from exc


def text_at(pid: int, address: int) -> bytes:
    """The text at *address*; the kernel accepts no path of more than 4 KiB.

    Raises Unseen.
    """
    _usual.base = address
    count = _read_memory(pid, _local_pointer, _ONE, _usual_pointer, _ONE, _NO_FLAGS)
    text = _buffer.value
    if len(text) < count:
        return text
    first = _PAGE - address % _PAGE
    data = _memory(pid, address, first)
    if b"\0" not in data:
        data += _memory(pid, address + first, _PATH_BYTES)
    text, end, _ = data.partition(b"\0")
    if not end:
        raise Unseen
    return text


class _Vector(ctypes.Structure):
    """`struct iovec`."""

    _fields_ = (("base", ctypes.c_uint64), ("length", ctypes.c_uint64))


# They are made once: to convert arguments takes more time than to read.
_buffer = ctypes.create_string_buffer(_PATH_BYTES + 1)
_local, _remote = _Vector(ctypes.addressof(_buffer), _PATH_BYTES), _Vector(0, 0)
_usual = _Vector(0, _USUAL_BYTES)
_local_pointer, _remote_pointer, _usual_pointer = map(ctypes.byref, (_local, _remote, _usual))
_read_memory = ctypes.CDLL(None).process_vm_readv
_read_memory.restype = ctypes.c_ssize_t
_ONE, _NO_FLAGS = ctypes.c_ulong(1), ctypes.c_ulong(0)


def _memory(pid: int, address: int, size: int) -> bytes:
    """Up to *size* bytes of the memory of *pid*, all of which are on one page, or on mapped ones.

    Raises Unseen.
    """
    size = min(size, _PATH_BYTES)
    _remote.base, _remote.length = address, size
    count = _read_memory(pid, _local_pointer, _ONE, _remote_pointer, _ONE, _NO_FLAGS)
    if count >= min(size, 24):
        return _buffer.raw[:count]
    # A container may refuse this call, and a text may end before a page that is not there.
    return _memory_by_file(pid, address, size)


def _memory_by_file(pid: int, address: int, size: int) -> bytes:
    try:
        fd = os.open(b"/proc/%d/mem" % pid, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, size, address)
        finally:
            os.close(fd)
    except (OSError, OverflowError) as exc:
        raise Unseen from exc
    if len(data) < min(size, 24):
        raise Unseen
    return data


def _at(call: Any, argument: int) -> int:
    number: int = call[_ARGUMENTS + argument]
    return number


def _signed(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number
