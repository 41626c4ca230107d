"""A PostgreSQL server of the test's own, from the system's packages, that can be killed."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import random
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from tests.support.leaks import children
from tests.support.servers import tied

# How long anything here may take; nothing waits for it when all is well.
PATIENCE = 30.0
# A user who needs this password, which is like no other text; everybody else needs none.
LOCKED = "locked"
PASSWORD = "pa55-w0rd-0f-n0-0ther"

_SETTINGS = {
    # Nothing is lost when processes are killed; only the machine must not be.
    "fsync": "off",
    "max_connections": "200",
    "shared_buffers": "16MB",
    "autovacuum": "off",
    "listen_addresses": "127.0.0.1",
    # What a kill leaves behind goes with the folder.
    "dynamic_shared_memory_type": "mmap",
}
_ACCESS = f"""\
host  all  {LOCKED}  127.0.0.1/32  scram-sha-256
host  all  all       127.0.0.1/32  trust
local all  all                     trust
"""


def binaries() -> Path | None:
    """The folder with `initdb` and `postgres`; the newest where there are several."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(folders, key=lambda folder: float(folder.parent.name), default=None)


class Postgres:
    """A server with a folder and a port of its own; `with` starts it and removes it.

    Start it in the main thread.
    """

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = (f"test_{number}" for number in itertools.count(1))
        # Not below pytest's folders: another user must get there, and names of sockets are short.
        self.folder = Path(tempfile.mkdtemp(prefix="exec-pg-"))
        self._data = self.folder / "data"
        # PostgreSQL does not run as root.
        self._user = _other_user() if os.geteuid() == 0 else None
        self.port = _free_port()

    def __enter__(self) -> Self:
        try:
            if self._user is not None:
                os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
            self._initialize()
            self.start()
            self.execute(f"CREATE ROLE {LOCKED} LOGIN PASSWORD '{PASSWORD}'")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it as it wants to be ended, which leaves no zombies, or else with a kill."""
        if self._process is not None and self._process.poll() is None:
            # Who is paused hears nothing else.
            self.resume()
            self._process.send_signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE)
        self.kill()
        shutil.rmtree(self.folder)

    def url(self, database: str = "postgres", *, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """The URL of a new one, empty."""
        name = next(self._databases)
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def execute(self, statement: str, *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """As the server's owner; the rows, if it gives any."""
        url, seconds = self.url(database), round(PATIENCE)
        with psycopg.connect(url, autocommit=True, connect_timeout=seconds) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Returns once it answers, which after a kill is when it has recovered."""
        self.begin()
        deadline = time.monotonic() + PATIENCE
        while not self.answers():
            assert self.is_running and time.monotonic() < deadline, self.log()

    def begin(self) -> None:
        """Start it and do not wait."""
        assert self._process is None, "it runs"
        settings = {**_SETTINGS, "port": str(self.port), "unix_socket_directories": self.folder}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = self._popen("postgres", "-D", str(self._data), *options, output=log)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL to all of it; returns when none is left. It need not run."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        # So that it has no more children than we see.
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        descriptors = [os.pidfd_open(pid) for pid in (*children(process.pid), process.pid)]
        for descriptor in descriptors:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        for descriptor in descriptors:
            # It can be read when its process has ended, and with it its sockets.
            select.select([descriptor], [], [], PATIENCE)
            os.close(descriptor)
        process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def revive(self) -> None:
        """It runs, whatever was done to it before."""
        if self._process is not None and self._process.poll() is None:
            self.resume()
        else:
            self.restart()

    def pause(self) -> None:
        """It hangs: connections stay, but get no answer."""
        for pid in self._pids():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._pids():
            # Its children may come and go.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def _pids(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid, *children(self._process.pid)]

    def _initialize(self) -> None:
        words = ["-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        words += ["--locale=C", "--no-sync", "--no-instructions"]
        process = self._popen("initdb", *words, output=subprocess.PIPE)
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
        (self._data / "pg_hba.conf").write_text(_ACCESS)

    def _popen(self, program: str, *words: str, output: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*tied(), self._programs / program, *words],
            cwd=self.folder,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=self._user and self._user.pw_uid,
            group=self._user and self._user.pw_gid,
            extra_groups=None if self._user is None else [],
        )

    def answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


@contextlib.contextmanager
def running() -> Iterator[Postgres | None]:
    """A server while the block lasts; None where there is no PostgreSQL."""
    programs = binaries()
    if programs is None:
        yield None
        return
    with Postgres(programs) as server:
        yield server


def _other_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise AssertionError("root needs another user to run PostgreSQL as")


def _free_port() -> int:
    """None that the kernel gives to outgoing connections, so that it is still free after a kill."""
    while True:
        port = random.randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
