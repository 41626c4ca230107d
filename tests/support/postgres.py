"""A PostgreSQL server for tests, from the system's packages, that can be killed and paused."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.support.daemon import ClosesAtExit, Daemon
from tests.support.leaks import children
from tests.support.ports import free_port

# The longest that any step here may take. A step that succeeds does not wait for it.
PATIENCE = 120.0
# A user who needs this password, which occurs in no other text. Other users need none.
LOCKED = "locked"
PASSWORD = "pa55-w0rd-0f-n0-0ther"

_SETTINGS = {
    # A kill of the processes loses nothing; only a crash of the machine would.
    "fsync": "off",
    "max_connections": "200",
    "shared_buffers": "16MB",
    "autovacuum": "off",
    "listen_addresses": "127.0.0.1",
    # Files that a kill leaves behind are removed with the folder.
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


class Postgres(ClosesAtExit):
    """A server with a folder and a port of its own; `with` starts it and removes it.

    Enter the block in the main thread.
    """

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._databases = (f"test_{number}" for number in itertools.count(1))
        # The folder is not below pytest's: another user must have access, and paths of sockets are
        # short.
        self.folder = Path(tempfile.mkdtemp(prefix="exec-pg-"))
        self._data = self.folder / "data"
        # PostgreSQL does not run as root.
        self._user = _other_user() if os.geteuid() == 0 else None
        self.port = free_port()
        self._server = Daemon(self.folder, "postgres", self._words(), **self._options())

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

    def close(self) -> None:
        """End it by SIGQUIT, which leaves no zombies, or else by SIGKILL."""
        if self.is_running:
            # A paused server would not react.
            self.resume()
            self._server.signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(PATIENCE)
        self.kill()
        shutil.rmtree(self.folder)

    def url(self, database: str = "postgres", *, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """Create an empty database and return its URL."""
        name = next(self._databases)
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def execute(self, statement: str, *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the server's owner, and return its rows, if it has any."""
        url, seconds = self.url(database), round(PATIENCE)
        with psycopg.connect(url, autocommit=True, connect_timeout=seconds) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start it, and return once it answers; after a kill it has to recover first."""
        self.begin()
        deadline = time.monotonic() + PATIENCE
        while not self.answers():
            assert self.is_running and time.monotonic() < deadline, self.log()

    def begin(self) -> None:
        """Start it, and do not wait."""
        self._server.start()

    @property
    def is_running(self) -> bool:
        return self._server.is_running

    def kill(self) -> None:
        """Send SIGKILL to all of its processes, and return when they are gone. It need not run."""
        if not self.is_running:
            self._server.kill()
            return
        # While it is stopped it can have no new children, and collects none that has ended. So no
        # pid of a child can become that of another program.
        self._server.pause()
        descriptors = [os.pidfd_open(pid) for pid in self._pids()]
        for descriptor in descriptors:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        for descriptor in descriptors:
            # It becomes readable when the process has ended and its sockets are closed.
            select.select([descriptor], [], [], PATIENCE)
            os.close(descriptor)
        self._server.kill()

    def restart(self) -> None:
        self.kill()
        self.start()

    def revive(self) -> None:
        """Let it run, whether it was paused or killed."""
        if self.is_running:
            self.resume()
        else:
            self.restart()

    def pause(self) -> None:
        """Stop all of its processes: connections stay, but no answers come."""
        # While it is stopped it can have no new children.
        self._server.pause()
        for pid in children(self._server.pid):
            _signal(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in children(self._server.pid):
            _signal(pid, signal.SIGCONT)
        # The last one: it cannot collect a child before all of them have had their signal.
        self._server.resume()

    def log(self) -> str:
        return self._server.log()

    def _pids(self) -> list[int]:
        return [*children(self._server.pid), self._server.pid]

    def _initialize(self) -> None:
        words = ["-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        words += ["--locale=C", "--no-sync", "--no-instructions"]
        making = Daemon(
            self.folder, "initdb", [self._programs / "initdb", *words], **self._options()
        )
        making.start()
        making.wait(PATIENCE)
        assert making.returncode == 0, making.log()
        (self._data / "pg_hba.conf").write_text(_ACCESS)

    def _words(self) -> list[str | Path]:
        settings = {**_SETTINGS, "port": str(self.port), "unix_socket_directories": self.folder}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self._programs / "postgres", "-D", self._data, *options]

    def _options(self) -> dict[str, Any]:
        return {
            "cwd": self.folder,
            "env": {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            "start_new_session": True,
            "user": self._user and self._user.pw_uid,
            "group": self._user and self._user.pw_gid,
            "extra_groups": None if self._user is None else [],
        }

    def answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


@contextlib.contextmanager
def running() -> Iterator[Postgres | None]:
    """A server while the block lasts; None if PostgreSQL is not installed."""
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


def _signal(pid: int, signum: int) -> None:
    """Send a signal to a process that may have ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)
