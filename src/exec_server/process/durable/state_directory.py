"""The state directory of a server: who owns it, and the jobs and sessions in it.

::

    lock               held by the server that uses the directory; its text is that server's pid
    keeper.sock        where the durable keeper listens
    keeper.lock        held by the durable keeper
    keeper.key         what a server has to say to it first
    keeper.log         what the durable keeper says when it is in trouble
    sessions/*.json    sessions with durable jobs
    jobs/JOB/job.json  what a job is; never its environment
    jobs/JOB/started   exists once the keeper has begun to start the job
    jobs/JOB/status    the wait status, written by the keeper
    jobs/JOB/control.json  who drives it, if it was ever shared
    jobs/JOB/sizes, checkpoint  what its terminal was, see stored_screen.py
    jobs/JOB/...       the journal, see journal.py

The directory is private (mode 0700), and so are all files. It is made with the first durable job or
the first sandbox, which must not reach it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from exec_server.errors import ConfigurationError
from exec_server.process.durable.durable_keeper import KEY, SOCKET
from exec_server.process.durable.keeper_strangers import KEY_BYTES
from exec_server.process.durable.kept_job import STARTED, STATUS
from exec_server.process.durable.stored_control import StoredControl
from exec_server.protocol.participants import Kind

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_JOB_FILE = "job.json"
_CONTROL_FILE = "control.json"
# What a sandbox has refused, see sandbox/supervisor/record_file.py.
_RECORD_FILE = "denials"
_SUFFIX = ".json"


class StoredSession(msgspec.Struct, rename="camel", kw_only=True):
    """A session that the next server goes on with."""

    id: str
    # The principal that it belongs to.
    owner: str
    retention: float
    generation: int
    # The bits that all marks of its processes have in common.
    mark: int


class StoredJob(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What a job is."""

    session_id: str
    process_id: str
    argv: list[str]
    cwd: str
    tty: bool
    rows: int
    cols: int
    exit_signals: bool
    # The client wants to know the pid, and the signal that ends the process.
    details: bool = False
    # The client wants to know why the process ends, and what it uses.
    report: bool = False
    # The size of the window that the client asked for.
    flow_window: int | None = None
    # The backend that confines it, None without a sandbox; and why its command was not run.
    sandbox: str | None = None
    refusal: str | None = None
    # What it is called, and who types at first, if the start says it.
    name: str | None = None
    driver: Kind | None = None
    # Its screen is wanted from the first output on.
    screen: bool = False
    # The bytes of output after which its keeper is told to end it.
    output_limit: int | None = None
    mark: int
    # Milliseconds since 1970.
    started_at: int
    boot_id: str


class StoredStatus(msgspec.Struct, rename="camel"):
    """How a job has ended, as the keeper saw it."""

    status: int
    pid: int
    # Milliseconds since 1970.
    ended_at: int
    # Why the keeper has killed it, and the facts of its end, if the start asked for them.
    reason: str | None = None
    facts: dict[str, Any] | None = None


Saved = TypeVar("Saved", StoredSession, StoredJob, StoredStatus, StoredControl)


class StateDirectory:
    """The directory *path*, which is used by one server at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._jobs = self.path / "jobs"
        self._sessions = self.path / "sessions"
        self._lock: int | None = None
        self._folder: int | None = None

    @property
    def socket_path(self) -> str:
        """The path of the keeper's socket; that of the directory may be too long for one."""
        return f"/proc/self/fd/{self._folder}/{SOCKET}"

    @property
    def is_open(self) -> bool:
        return self._lock is not None

    def make(self) -> None:
        """Make the directory, so that sandboxes can be kept from it, if that is possible."""
        with contextlib.suppress(OSError):
            if not self.path.exists():
                self.path.mkdir(parents=True, mode=0o700)

    def open(self, *, create: bool) -> bool:
        """Own the directory; False if it does not exist and is not to be made.

        Raises ConfigurationError if it cannot be used, or another server uses it.
        """
        if self._lock is not None:
            return True
        if not create and not os.path.lexists(self.path):
            return False
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._check_content()
            for folder in (self.path, self._jobs, self._sessions):
                _make_private(folder)
            self._lock = self._take_lock()
            self._folder = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as exc:
            self.close()
            text = f"the state directory {self.path} cannot be used: {exc.strerror or exc}"
            raise ConfigurationError(text) from exc
        return True

    def _check_content(self) -> None:
        """Raise OSError if it is a directory for something else, such as /tmp.

        Other users would lose it when it becomes private.
        """
        is_private = stat.S_IMODE(self.path.stat().st_mode) == 0o700
        if not is_private and os.listdir(self.path) and not self._jobs.is_dir():
            raise FileExistsError(0, "it holds other files; name an empty directory")

    def close(self) -> None:
        """Let another server use the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def _take_lock(self) -> int:
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(self.path / "lock", flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(lock)
            raise ConfigurationError(
                f"the state directory {self.path} is used by another exec-server (pid {pid})"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
        return lock

    def new_key(self) -> bytes:
        """The key of a keeper that is about to start."""
        key = secrets.token_bytes(KEY_BYTES)
        _write(self.path / KEY, key)
        return key

    def key(self) -> bytes:
        """The key of the keeper that runs; empty if there is none."""
        with contextlib.suppress(OSError):
            return (self.path / KEY).read_bytes()
        return b""

    # Jobs.

    def job_folder(self, name: str) -> Path:
        return self._jobs / name

    def new_job(self, job: StoredJob) -> str:
        """Make the folder of a job that is about to start; returns its name."""
        name = secrets.token_hex(16)
        folder = self._jobs / name
        folder.mkdir(mode=0o700)
        _write(folder / _JOB_FILE, msgspec.json.encode(job))
        return name

    def new_record_file(self) -> Path:
        """A path for the denials of a job that has no folder yet."""
        return self._jobs / f"{_RECORD_FILE}-{secrets.token_hex(16)}"

    def record_file(self, name: str) -> Path:
        return self._jobs / name / _RECORD_FILE

    def save_job(self, name: str, job: StoredJob) -> None:
        """Write what a job is once more."""
        path = self._jobs / name / _JOB_FILE
        new = path.with_suffix(".new")
        _write(new, msgspec.json.encode(job))
        new.rename(path)

    def save_control(self, name: str, control: StoredControl) -> None:
        path = self._jobs / name / _CONTROL_FILE
        new = path.with_suffix(".new-control")
        _write(new, msgspec.json.encode(control))
        new.rename(path)

    def control(self, name: str) -> StoredControl | None:
        return _read(self._jobs / name / _CONTROL_FILE, StoredControl)

    def jobs(self) -> Iterator[tuple[str, StoredJob | None]]:
        """The name of every job that has run, and what it is, or None if that is unreadable."""
        for entry in os.scandir(self._jobs):
            if not entry.is_dir(follow_symlinks=False):
                if entry.name.startswith(_RECORD_FILE):
                    # Its server was killed before the start.
                    os.unlink(entry.path)
                continue
            if not os.path.lexists(os.path.join(entry.path, STARTED)):
                # Its server was killed before the keeper heard of it.
                self.remove_job(entry.name)
                continue
            yield entry.name, _read(Path(entry.path, _JOB_FILE), StoredJob)

    def status(self, name: str) -> StoredStatus | None:
        return _read(self._jobs / name / STATUS, StoredStatus)

    def age_of_job(self, name: str) -> float:
        """Seconds since a file of the job was written."""
        with contextlib.suppress(OSError):
            files = [entry.stat(follow_symlinks=False) for entry in os.scandir(self._jobs / name)]
            return time.time() - max((file.st_mtime for file in files), default=0)
        return 0.0

    def remove_job(self, name: str) -> None:
        shutil.rmtree(self._jobs / name, ignore_errors=True)

    # Sessions.

    def save_session(self, session: StoredSession) -> None:
        path = self._session_file(session.id)
        new = path.with_suffix(".new")
        _write(new, msgspec.json.encode(session))
        new.rename(path)

    def sessions(self) -> Iterator[StoredSession]:
        for path in self._sessions.glob(f"*{_SUFFIX}"):
            session = _read(path, StoredSession)
            if session is not None and path == self._session_file(session.id):
                yield session

    def remove_session(self, session_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._session_file(session_id))

    def _session_file(self, session_id: str) -> Path:
        # Who knows the id can resume the session, and a sandbox of Landlock can list names.
        digest = hashlib.sha256(session_id.encode()).hexdigest()
        return self._sessions / f"{digest[:32]}{_SUFFIX}"


def boot_id() -> str:
    """A text that is another one after the machine was restarted."""
    try:
        return Path(_BOOT_ID).read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _make_private(folder: Path) -> None:
    """Make *folder* for this user alone. Raises OSError if it is a link or of another user."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if folder.is_symlink():
        raise NotADirectoryError(0, "it is a symbolic link")
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid():
            raise PermissionError(0, f"it belongs to uid {found.st_uid}, not to this user")
        if stat.S_IMODE(found.st_mode) != 0o700:
            os.fchmod(fd, 0o700)
    finally:
        os.close(fd)


def _write(path: Path, data: bytes) -> None:
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    try:
        # A disk that is almost full takes a part.
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def _read(path: Path, kind: type[Saved]) -> Saved | None:
    """What *path* holds; None if it does not exist or is damaged."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
