"""Whether a policy refuses an attempt, and the bounded list of what it has refused. This is pure.

The kernel decides what a command may do; this says in advance what it will decide, and which rule
is the reason. The keeper loads this file by its path, so it imports the standard library only.
"""

from __future__ import annotations

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

WRITE, READ, CLOSED, SOCKET = "write", "read", "closed", "socket"

OUTSIDE_WRITABLE = "outside the writable directories"
OUTSIDE_READABLE = "outside the readable directories"
READ_ONLY_PATH = "read-only path of the policy"
DENIED_PATH = "denied path of the policy"
PROTECTED_NAME = "protected name"
OWN_PLACE = "file of the server"
HOST_FIFO = "FIFO outside the writable directories"
NO_NETWORK = "no network"
UNIX_SOCKETS = "no unix sockets of the host"
SYSTEM_CALL = "refused system call"

# Rules of the policy itself about paths: the client chose them and may widen them. Besides, the
# sockets of the host that have a path can be granted, one by one. All others stay.
GRANTABLE = frozenset((OUTSIDE_WRITABLE, OUTSIDE_READABLE, READ_ONLY_PATH, DENIED_PATH))

# A command that is refused very often at very many places fills no memory.
MAX_RECORDS = 256
# These file systems are the sandbox's own, or describe the machine: no grant opens them.
_NEVER_GRANTED = (b"/proc", b"/sys", b"/dev")


class Places:
    """What may be done where: the deepest place at or above a path decides.

    Each of *places* is a path, the access there, and the rule that limits it. *free* are paths that
    each program may open; *fresh* are trees that the sandbox makes anew, so that nothing is judged
    there. *protected* are names of directories that no grant opens, *own* paths that none does.
    """

    def __init__(
        self,
        places: Iterable[tuple[bytes, str, str]],
        *,
        free: Iterable[bytes] = (),
        fresh: Iterable[bytes] = (),
        protected: Iterable[bytes] = (),
        own: Iterable[bytes] = (),
    ) -> None:
        self._places = {path: (access, rule) for path, access, rule in places}
        self._free = frozenset(free)
        self._fresh = tuple(fresh)
        self._protected = frozenset(protected)
        self._own = tuple(own)
        # Paths that were granted since, each with the access.
        self._granted: dict[bytes, str] = {}

    def refusal(self, path: bytes, *, writes: bool, renames: bool = False) -> str | None:
        """The rule that refuses *path*, which is free of symbolic links; None if none does.

        With *renames* the name itself is made, changed or removed, and not the file's content.
        """
        if path in self._free or any(is_within(path, tree) for tree in self._fresh):
            return None
        access, rule = self._nearest(path)
        if not writes:
            return rule if access == CLOSED else None
        if access != WRITE:
            return rule
        # A mount point keeps its name.
        return READ_ONLY_PATH if renames and path in self._places else None

    def access_in(self, folder: bytes) -> str | None:
        """What may be done with the names in *folder* that `is_named` does not tell of.

        None if nothing is judged there.
        """
        if any(is_within(folder, tree) for tree in self._fresh):
            return None
        return self._nearest(folder)[0]

    def is_named(self, path: bytes) -> bool:
        """True if something else than in its directory may hold for *path* itself."""
        return path in self._places or path in self._free or path in self._fresh

    def grant(self, path: bytes, access: str) -> None:
        """From now on *path*, and everything below it, was allowed; or a unix socket was."""
        self._granted[path] = access

    def is_granted(self, path: bytes, *, writes: bool) -> bool:
        """True if *path* was granted, although the sandbox itself is as narrow as before."""
        above = path
        while True:
            if above in self._granted:
                return not writes or self._granted[above] == WRITE
            if above == b"/":
                return False
            above = _parent(above)

    def is_connectable(self, target: bytes) -> bool:
        """True if programs may connect to the unix socket *target*, as a record names it."""
        return self._granted.get(target) == SOCKET

    def can_be_granted(self, target: bytes, rule: str) -> bool:
        """True if a client may allow *target*, a path or a unix socket, which *rule* refuses."""
        path = target
        if rule == UNIX_SOCKETS:
            scheme, _, path = target.partition(b":")
            if scheme != b"unix" or not path.startswith(b"/"):
                return False
        elif rule not in GRANTABLE:
            return False
        if self._protected.intersection(path.split(b"/")):
            return False
        if any(is_within(path, tree) for tree in _NEVER_GRANTED):
            return False
        return not any(is_within(path, own) or is_within(own, path) for own in self._own)

    def _nearest(self, path: bytes) -> tuple[str, str]:
        while path not in self._places:
            if path == b"/":
                return CLOSED, OUTSIDE_READABLE
            path = _parent(path)
        return self._places[path]


class DenialRecord:
    """One thing that was refused, however often."""

    __slots__ = ("count", "denial_id", "exe", "is_grantable", "key", "pid", "rule")

    def __init__(self, denial_id: str, key: tuple[str, str, bytes], rule: str) -> None:
        self.denial_id = denial_id
        # The kind, the operation and the target.
        self.key = key
        self.rule = rule
        self.count = 0
        self.is_grantable = False
        self.pid = 0
        self.exe = b""

    @property
    def facts(self) -> tuple[str, str, bytes, str, str, bool, int, int, bytes]:
        """The record as it is told, see supervisor.py."""
        kind, operation, target = self.key
        known = (self.is_grantable, self.count, self.pid, self.exe)
        return (self.denial_id, kind, target, operation, self.rule, *known)


class Ledger:
    """The refusals of one process: the first *limit* distinct ones, and true counts of all."""

    def __init__(self, prefix: str, limit: int = MAX_RECORDS) -> None:
        self._prefix = prefix
        self._limit = limit
        self.records: dict[tuple[str, str, bytes], DenialRecord] = {}
        # How many refusals belong to no record, because there were too many different ones.
        self.unlisted = 0

    def add(self, kind: str, operation: str, target: bytes, rule: str) -> DenialRecord | None:
        """Count one refusal; its record has the count 1 if it is new. None if it is not listed."""
        key = (kind, operation, target)
        record = self.records.get(key)
        if record is None:
            if len(self.records) >= self._limit:
                self.unlisted += 1
                return None
            record = DenialRecord(f"{self._prefix}{len(self.records) + 1}", key, rule)
            self.records[key] = record
        record.count += 1
        return record


def to_be_opened(path: bytes, protected: frozenset[bytes]) -> bytes:
    """The directory that has to be writable for a change at *path*, or the protected name."""
    names = path.split(b"/")
    for index, name in enumerate(names):
        if name in protected:
            return b"/".join(names[: index + 1])
    return _parent(path)


def is_within(path: bytes, tree: bytes) -> bool:
    """True if *path* is *tree* or below it; both are absolute and normal."""
    return path == tree or tree == b"/" or path.startswith(tree + b"/")


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0] or b"/"
