"""The file of principals: SQLite, for its owner alone.

The commands change it, and a running server reads it again when it has changed. The server writes
one thing: when and from where each principal has connected the last time.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from exec_server.access.principal_record import LastUse, PrincipalRecord
from exec_server.errors import ConfigurationError

_TABLES = """\
CREATE TABLE IF NOT EXISTS principals (
    name TEXT PRIMARY KEY,
    record TEXT NOT NULL,
    last_used_at REAL,
    last_used_from TEXT
);
"""
# Written into the head of the file, so that another database is recognized as such.
_APPLICATION_ID = 0x65787072
_VERSION = 1
# How long a command waits for another one.
_SECONDS = 10.0

Stamp = tuple[int, int, int, int]


def journal_of(path: str) -> str:
    """The file in which SQLite notes a change until it is made."""
    return f"{path}-journal"


class PrincipalsFile:
    """The principals in one file. Every method raises ConfigurationError."""

    def __init__(self, path: str | os.PathLike[str], *, seconds: float = _SECONDS) -> None:
        """*seconds* is how long to wait while another program changes the file."""
        self.path = Path(path).absolute()
        self._seconds = seconds

    def stamp(self) -> Stamp:
        """A value that changes when the file does; the file's owner and mode are checked."""
        try:
            found = os.stat(self.path)
            self._check(found, os.stat(self.path.parent))
            self._check_neighbour()
        except FileNotFoundError as exc:
            raise self._error(f"{exc.strerror}; `exec-server token create NAME` makes it") from exc
        except OSError as exc:
            raise self._error(exc.strerror or str(exc)) from exc
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def records(self) -> list[PrincipalRecord]:
        """All principals, by name."""
        with self._open() as database:
            rows = database.execute("SELECT record FROM principals ORDER BY name").fetchall()
            return [self._decode(text) for (text,) in rows]

    def find(self, name: str) -> PrincipalRecord:
        """The principal called *name*."""
        with self._open() as database:
            return self._find(database, name)

    def last_uses(self) -> dict[str, LastUse]:
        with self._open() as database:
            rows = database.execute(
                "SELECT name, last_used_at, last_used_from FROM principals "
                "WHERE last_used_at IS NOT NULL"
            )
            return {name: LastUse(at, source or "") for name, at, source in rows.fetchall()}

    def add(self, record: PrincipalRecord) -> None:
        """Add a principal; the file is made if it is missing."""
        self._make()
        with self._open(is_write=True) as database:
            known = [
                self._decode(text) for (text,) in database.execute("SELECT record FROM principals")
            ]
            self._refuse_doubles(record, known)
            database.execute(
                "INSERT INTO principals (name, record) VALUES (?, ?)",
                (record.name, _encode(record)),
            )

    def replace(self, record: PrincipalRecord, *, before: PrincipalRecord) -> None:
        """Replace a principal that is still as it was *before*."""
        with self._open(is_write=True) as database:
            if self._find(database, record.name) != before:
                raise ConfigurationError(f"`{record.name}` has changed meanwhile; try again")
            database.execute(
                "UPDATE principals SET record = ? WHERE name = ?", (_encode(record), record.name)
            )

    def remove(self, name: str) -> None:
        with self._open(is_write=True) as database:
            self._find(database, name)
            database.execute("DELETE FROM principals WHERE name = ?", (name,))

    def note_uses(self, uses: Mapping[str, LastUse]) -> None:
        """Remember when principals have connected; those that are gone are left out."""
        with self._open(is_write=True) as database:
            database.executemany(
                "UPDATE principals SET last_used_at = ?, last_used_from = ? WHERE name = ?",
                [(use.at, use.source, name) for name, use in uses.items()],
            )

    # The file.

    def _make(self) -> None:
        """Make an empty file for the owner alone, unless there is one."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.close(
                    os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                )
        except OSError as exc:
            raise self._error(exc.strerror or str(exc)) from exc

    def _check(self, found: os.stat_result, folder: os.stat_result) -> None:
        """Refuse a file that another user could have written, or can read."""
        if not stat.S_ISREG(found.st_mode):
            raise self._error("it is not a file")
        if found.st_uid not in (os.geteuid(), 0):
            raise self._error(
                f"it belongs to another user (uid {found.st_uid}); only that user can use it, for "
                "example with `runuser -u USER -- ...`"
            )
        if found.st_mode & 0o077:
            raise self._error(f"other users can use it: run `chmod 600 {self.path}`")
        if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
            raise self._error(f"every user can replace it: run `chmod o-w {self.path.parent}`")

    def _check_neighbour(self) -> None:
        """Refuse a write-ahead log beside the file: SQLite would take all that it says into it.

        We never make one, and another user, or a sandboxed command, may have.
        """
        log = f"{self.path}-wal"
        if os.path.lexists(log):
            raise self._error(f"another program has made {log}, which could change it: remove that")

    @contextlib.contextmanager
    def _open(self, *, is_write: bool = False) -> Iterator[sqlite3.Connection]:
        """The database; a change is committed at the end, or not made at all."""
        self.stamp()
        try:
            database = sqlite3.connect(
                f"{self.path.as_uri()}?mode=rw",
                uri=True,
                timeout=self._seconds,
                isolation_level=None,
            )
            with contextlib.closing(database):
                if is_write:
                    # The journal stays, so that it can be hidden from sandboxes like the file: who
                    # writes a journal decides about the file.
                    database.execute("PRAGMA journal_mode = PERSIST")
                database.execute("BEGIN IMMEDIATE" if is_write else "BEGIN")
                self._prepare(database, is_write=is_write)
                yield database
                database.execute("COMMIT")
        except sqlite3.Error as exc:
            raise self._error(self._obstacle() or str(exc)) from exc

    def _obstacle(self) -> str | None:
        """What the permissions do not allow to this user, which SQLite does not tell."""
        if not os.access(self.path, os.R_OK | os.W_OK):
            return "it has to belong to the user that the server runs as"
        if not os.access(self.path.parent, os.W_OK | os.X_OK):
            return (
                f"{self.path.parent} has to belong to the user that the server runs as, because a "
                "journal is written beside the file"
            )
        return None

    def _prepare(self, database: sqlite3.Connection, *, is_write: bool) -> None:
        """Check that the database is ours, and make the table in a new one."""
        (kind,) = database.execute("PRAGMA application_id").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if kind == _APPLICATION_ID:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                raise self._error("a newer release has made it")
        elif tables or kind:
            raise self._error("it is another database")
        elif is_write:
            database.execute(_TABLES)
            database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {_VERSION}")
        else:
            raise self._error("it is empty")

    # Records.

    def _find(self, database: sqlite3.Connection, name: str) -> PrincipalRecord:
        row = database.execute("SELECT record FROM principals WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise ConfigurationError(f"there is no principal `{name}` in {self.path}")
        return self._decode(row[0])

    def _refuse_doubles(self, record: PrincipalRecord, known: list[PrincipalRecord]) -> None:
        """One name, certificate or user means one principal."""
        for each in known:
            if each.name == record.name:
                raise ConfigurationError(
                    f"there is a principal `{record.name}` already: `rotate` gives it a new token, "
                    "and `remove` forgets it"
                )
            for what, mine, theirs in (
                ("certificate", record.certificates, each.certificates),
                ("user", record.unix_users, each.unix_users),
                ("subject", record.all_subjects, each.all_subjects),
            ):
                for double in set(mine) & set(theirs):
                    raise ConfigurationError(f"the {what} `{double}` is that of `{each.name}`")

    def _decode(self, text: str) -> PrincipalRecord:
        try:
            return msgspec.json.decode(text, type=PrincipalRecord)
        except msgspec.MsgspecError as exc:
            raise self._error(f"a record is broken: {exc}") from exc

    def _error(self, why: str) -> ConfigurationError:
        return ConfigurationError(f"cannot use the file of principals {self.path}: {why}")


def _encode(record: PrincipalRecord) -> str:
    return msgspec.json.encode(record).decode()
