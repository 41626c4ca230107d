"""Records of detached sessions, kept on this machine so that a later command can resume them."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import logging
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from exec_server.cli.server_access import shown
from exec_server.client.session_token import SessionToken
from exec_server.errors import ConfigurationError
from exec_server.remote.state_dir import state_home

logger = logging.getLogger(__name__)

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Shorter ids would soon be alike.
SHORTEST_ID = 8
_LONGEST_ID = 56
# A record is some hundred bytes and a command line, which the system limits to 2 MiB.
_RECORD_BYTES = 4 << 20


class SavedSession(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A detached process, and how to resume its session. The session token is a secret."""

    id: str
    # A URL or the name of an environment.
    server: str
    session_token: str
    process_id: str
    argv: list[str]
    tty: bool = False
    # Seconds since 1970.
    started_at: float
    # How long the server keeps it while it is detached; None if the server does not say.
    kept_seconds: float | None = None
    # The file of the bearer token; the token itself is not stored.
    token_file: str | None = None
    # The pin of the executor's key, as it was given.
    pin: str | None = None
    # The modes of its terminal that the program has switched on, as control sequences.
    modes: bytes = b""
    # The run of the server that has the session; None if the server does not say.
    server_instance: str | None = None
    # True if the process outlives its server.
    durable: bool = False
    # What its user calls it.
    name: str | None = None
    # The exit status, or why it is unknown; one of them is there after all output was shown.
    exit_code: int | None = None
    lost: str | None = None

    def __repr__(self) -> str:
        return f"SavedSession({self.id!r}, {self.server!r})"

    @property
    def facts(self) -> dict[str, object]:
        """The facts that may be printed, without secrets."""
        facts: dict[str, object] = {
            "id": self.id,
            "server": shown(self.server),
            "argv": self.argv,
            "tty": self.tty,
            "startedAt": shown_time(self.started_at),
            "keptSeconds": self.kept_seconds,
        }
        if self.name is not None:
            facts["name"] = self.name
        return facts | {"durable": True} if self.durable else facts

    def is_in(self, session_id: str) -> bool:
        """True if the process belongs to the session of this id."""
        return SessionToken.parse(self.session_token).session_id == session_id


def shown_time(seconds: float) -> str:
    """A time, given in seconds since 1970, as JSON output writes it."""
    when = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return when.isoformat(timespec="seconds")


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory of the records."""
    return state_home(environ) / "sessions"


class SessionStore:
    """One private file for each session, in a private directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or state_directory()

    def save(self, session: SavedSession) -> None:
        """Write *session* atomically: a reader finds the old record or the new one.

        Raises ConfigurationError if the record cannot be written.
        """
        try:
            self._write(session)
        except OSError as exc:
            raise ConfigurationError(
                f"cannot save a record in `{self._directory}`: {exc.strerror}"
            ) from exc

    def _write(self, session: SavedSession) -> None:
        self._make_directory()
        # `mkstemp` makes a file of mode 0600.
        fd, name = tempfile.mkstemp(dir=self._directory, prefix=".new-")
        try:
            with open(fd, "wb") as file:
                file.write(msgspec.json.encode(session))
            os.replace(name, self._path(session.id))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def find(self, text: str) -> SavedSession:
        """The session whose name or id is *text*, or whose id is the only one to begin with it.

        Raises ConfigurationError.
        """
        found = [name for name in self._ids() if name.startswith(text)] if text else []
        named: list[str] = []
        if text in found:
            found = [text]
        elif named := [each.id for each in self.named(text)]:
            found = named
        if len(found) > 1:
            what = "processes have the name" if named else "ids begin with"
            raise ConfigurationError(f"several {what} `{text}`: {', '.join(found)}")
        session = self._load(found[0]) if found else None
        if session is None:
            raise ConfigurationError(
                f"there is no detached process `{text}` on this machine; see `exec-server ps`, or "
                "`exec-server ps SERVER` for the durable jobs of a server"
            )
        return session

    def named(self, text: str) -> list[SavedSession]:
        """The sessions with the name *text*, the oldest first; none if that is an id."""
        if not text or text in self._ids():
            return []
        return [each for each in self.all() if each.name == text]

    def begins(self, text: str) -> bool:
        """True if the id of a session begins with *text*, or that is the name of one."""
        return any(name.startswith(text) for name in self._ids()) or any(
            each.name == text for each in self.all()
        )

    def all(self) -> list[SavedSession]:
        """Every session, the oldest first; records that cannot be read are left out."""
        sessions = [session for name in self._ids() if (session := self._load(name)) is not None]
        return sorted(sessions, key=lambda session: session.started_at)

    def remove(self, session_id: str) -> None:
        """Remove the record of a session, if there is one."""
        with contextlib.suppress(FileNotFoundError):
            self._path(session_id).unlink()

    def free_id(self, process_id: str) -> str:
        """The shortest beginning of *process_id* that is not yet the id of a session.

        Programs may have given it any characters, of which a file name gets only ordinary ones.
        """
        process_id = re.sub(r"[^A-Za-z0-9_-]", "-", process_id)[:_LONGEST_ID].strip("-") or "job"
        taken = self._ids()
        lengths = range(SHORTEST_ID, len(process_id) + 1)
        for start in (process_id[:n] for n in lengths):
            if start not in taken:
                return start
        if process_id not in taken:
            return process_id
        return next(name for n in itertools.count(2) if (name := f"{process_id}-{n}") not in taken)

    # Files.

    def _path(self, session_id: str) -> Path:
        return self._directory / f"{session_id}.json"

    def _ids(self) -> list[str]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise ConfigurationError(f"cannot read `{self._directory}`: {exc.strerror}") from exc
        self._check_directory()
        stems = sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))
        return [stem for stem in stems if _ID.fullmatch(stem)]

    def _load(self, session_id: str) -> SavedSession | None:
        path = self._path(session_id)
        try:
            with path.open("rb") as file:
                return msgspec.json.decode(file.read(_RECORD_BYTES), type=SavedSession)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as exc:
            logger.warning("%s is ignored: %s", path, exc)
            return None

    def _make_directory(self) -> None:
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self._directory.mkdir(mode=0o700)
        self._check_directory()

    def _check_directory(self) -> None:
        """Refuse a directory in which other users could read or write a token."""
        status = self._directory.lstat()
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not is_ours or status.st_mode & 0o077:
            raise ConfigurationError(
                f"`{self._directory}` must be a directory that belongs to you and that only you "
                "can enter: run `chmod 700` on it"
            )
