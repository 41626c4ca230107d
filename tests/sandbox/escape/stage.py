"""A disposable world for the attempts, and witnesses that nothing in it was touched."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.children.escapes.attempt import NUMBERS, Stage
from tests.sandbox.escape.users import User
from tests.support.servers import CHILDREN

_IPC_CREAT, _IPC_RMID = 0o1000, 0
_SHM_SIZE = 4096
_OTHER_UID = 1


class World:
    """A workspace, things outside of it, and listeners that must not receive anything."""

    def __init__(self, user: User, base: Path) -> None:
        self._user = user
        self.base = base
        self.workspace, self.outside = base / "workspace", base / "outside"
        self.abstract = f"escape-{base.name}"
        self.dev_shm = f"/dev/shm/escape-{base.name}"
        self.mq = f"escape-{base.name}"
        self.shm_key = int.from_bytes(os.urandom(3), "big") + 1
        self.stage_file = base / "stage.json"
        self._listeners: list[socket.socket] = []

    def prepare(self, on_exit: contextlib.ExitStack) -> None:
        """Make everything; *on_exit* undoes it."""
        shutil.copytree(CHILDREN / "escapes", self.base / "children" / "escapes")
        self._make_outside()
        self._make_workspace()
        self._give_away()
        self._fifo = os.open(self.outside / "fifo", os.O_RDWR | os.O_NONBLOCK)
        on_exit.callback(os.close, self._fifo)
        self._listen(on_exit)
        self._share(on_exit)
        master, self._terminal = os.openpty()
        on_exit.callback(os.close, master)
        on_exit.callback(os.close, self._terminal)
        os.fchown(self._terminal, self._user.uid, self._user.gid)
        with open(self.outside / "file") as file:
            self.victim = subprocess.Popen(
                ["sleep", "600"], stdin=file, cwd=self.outside, **self._user.options
            )
        on_exit.callback(self._end_victim)
        self.stage_file.touch()
        self._before = self.fingerprint()

    def _make_outside(self) -> None:
        self.outside.mkdir()
        for name in ("file", "renamed", "unlinked", "moved", "exchanged", "replacement"):
            (self.outside / name).write_text(name)
        for name in ("dir", "empty", "moved-dir", "raced"):
            (self.outside / name).mkdir()
        (self.outside / "dir" / "file").write_text("content")
        (self.outside / "dir" / "target").touch()
        os.mkfifo(self.outside / "fifo")
        program = shutil.which("id") or "/bin/true"
        shutil.copy(program, self.outside / "setuid")
        (self.base / "hard-target").write_text("content")

    def _make_workspace(self) -> None:
        self.workspace.mkdir()
        (self.workspace / "sub").mkdir()
        for name in ("file", "moved-out", "exchanged"):
            (self.workspace / name).write_text(name)
        (self.workspace / "link").symlink_to(self.outside / "file")
        (self.workspace / "directory-link").symlink_to(self.outside)
        (self.workspace / "dangling").symlink_to(self.outside / "new-by-dangling")
        os.link(self.base / "hard-target", self.workspace / "hard")
        if os.geteuid() == 0:
            null = self.workspace / "prepared-device"
            os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))

    def _listen(self, on_exit: contextlib.ExitStack) -> None:
        unix, stream, datagram = socket.AF_UNIX, socket.SOCK_STREAM, socket.SOCK_DGRAM
        for family, kind, address in (
            (unix, stream, f"{self.outside}/stream.socket"),
            (unix, socket.SOCK_SEQPACKET, f"{self.outside}/packets.socket"),
            (unix, stream, f"{self.outside}/spare.socket"),
            (unix, stream, f"{self.outside}/replaced.socket"),
            (unix, datagram, f"{self.outside}/datagram.socket"),
            (unix, stream, "\0" + self.abstract),
            (unix, datagram, "\0" + self.abstract + "-datagram"),
            (socket.AF_INET, stream, ("127.0.0.1", 0)),
            (socket.AF_INET, datagram, ("127.0.0.1", 0)),
        ):
            sock = on_exit.enter_context(socket.socket(family, kind))
            sock.bind(address)
            if kind != datagram:
                sock.listen()
            sock.setblocking(False)
            if isinstance(address, str) and address.startswith("/"):
                os.chown(address, self._user.uid, self._user.gid)
            self._listeners.append(sock)

    def _share(self, on_exit: contextlib.ExitStack) -> None:
        """Shared memory, a message queue and a file that every user of this host may use."""
        libc = ctypes.CDLL(None)
        flags = _IPC_CREAT | 0o666
        segment = libc.shmget(self.shm_key, _SHM_SIZE, flags)
        on_exit.callback(libc.shmctl, segment, _IPC_RMID, None)
        semaphore = libc.semget(self.shm_key, 1, flags)
        on_exit.callback(libc.semctl, semaphore, 0, _IPC_RMID)
        queue = libc.msgget(self.shm_key, flags)
        on_exit.callback(libc.msgctl, queue, _IPC_RMID, None)
        mask = os.umask(0)
        number, flags = NUMBERS["mq_open"], os.O_RDWR | os.O_CREAT
        os.close(libc.syscall(number, self.mq.encode(), flags, 0o666, None))
        os.umask(mask)
        on_exit.callback(libc.syscall, NUMBERS["mq_open"] + 1, self.mq.encode())
        Path(self.dev_shm).write_text("content")
        os.chown(self.dev_shm, self._user.uid, self._user.gid)
        on_exit.callback(os.unlink, self.dev_shm)

    def _give_away(self) -> None:
        """Give everything to the user, so that only the sandbox can refuse."""
        for folder, _, files in os.walk(self.base):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                os.chown(path, self._user.uid, self._user.gid, follow_symlinks=False)
        program = self.outside / "setuid"
        if os.geteuid() == 0:
            os.chown(program, _OTHER_UID if self._user.uid == 0 else 0, self._user.gid)
        program.chmod(0o4755)

    def _end_victim(self) -> None:
        self.victim.kill()
        self.victim.wait()

    def tell(self, *, server: int, keeper: int, secret: str) -> None:
        """Write down where everything is."""
        *_, tcp, udp = self._listeners
        stage = Stage(
            workspace=str(self.workspace),
            outside=str(self.outside),
            victim=self.victim.pid,
            server=server,
            keeper=keeper,
            tcp=tcp.getsockname()[1],
            udp=udp.getsockname()[1],
            abstract=self.abstract,
            shm_key=self.shm_key,
            mq=self.mq,
            dev_shm=self.dev_shm,
            terminal=os.ttyname(self._terminal),
            secret=secret,
        )
        self.stage_file.write_text(json.dumps(stage._asdict()))

    def fingerprint(self) -> dict[str, str]:
        """All facts about what is outside, by path."""
        found = {"base": " ".join(sorted(os.listdir(self.base)))}
        for folder, names, files in os.walk(self.outside):
            for path in (folder, *(os.path.join(folder, name) for name in (*names, *files))):
                found[path] = _seen(path)
        found["shm"] = _seen(self.dev_shm)
        return found

    def changes(self) -> list[str]:
        """What has changed, in words; received messages count."""
        now, before = self.fingerprint(), self._before
        changed = [
            f"{path}: {before.get(path)} -> {now.get(path)}"
            for path in sorted(before.keys() | now.keys())
            if before.get(path) != now.get(path)
        ]
        return [*changed, *self._heard()]

    def _heard(self) -> list[str]:
        heard = []
        for sock in self._listeners:
            try:
                if sock.type == socket.SOCK_DGRAM:
                    sock.recv(100)
                else:
                    sock.accept()[0].close()
                heard.append(f"{sock.getsockname()!r} heard something")
            except BlockingIOError:
                pass
        with contextlib.suppress(BlockingIOError):
            heard.append(f"the FIFO heard {os.read(self._fifo, 100)!r}")
        return heard


def _seen(path: str) -> str:
    found = os.lstat(path)
    content = b""
    if stat.S_ISREG(found.st_mode):
        content = Path(path).read_bytes()
    elif stat.S_ISLNK(found.st_mode):
        content = os.readlink(path).encode()
    facts = (
        oct(found.st_mode), found.st_uid, found.st_gid, found.st_ino, found.st_nlink,
        found.st_size, found.st_mtime_ns, found.st_ctime_ns, os.listxattr(path),
    )  # fmt: skip
    return f"{facts} {hashlib.sha256(content).hexdigest()}"


@contextlib.contextmanager
def world(user: User) -> Iterator[World]:
    """A world that belongs to *user*, in a place that every user can reach."""
    with contextlib.ExitStack() as on_exit:
        base = Path(tempfile.mkdtemp(prefix="escape-", dir="/tmp"))
        on_exit.callback(shutil.rmtree, base, ignore_errors=True)
        base.chmod(0o755)
        made = World(user, base)
        made.prepare(on_exit)
        yield made
