"""What uploads and downloads have in common."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from exec_server.client.files.transfer.checksum import Digest, differing, remote_digest
from exec_server.client.files.transfer.local_tree import Changed, WithoutSize
from exec_server.client.files.transfer.progress import OnProgress, Tracker
from exec_server.client.files.transfer.remote_tree import RemoteTree
from exec_server.client.files.transfer.result import TransferResult, Verify, remark
from exec_server.client.files.transfer.transfer_options import DEFAULT_OPTIONS
from exec_server.client.files.transfer.transfer_plan import Copy, TransferPlan
from exec_server.client.files.transfer.tree import TreeEntry
from exec_server.errors import ConnectionClosed, NotFound, RpcError, SessionLost

if TYPE_CHECKING:
    from exec_server.client.files.remote_files import RemoteFiles

logger = logging.getLogger(__name__)

# From this number of files on it is faster to start tar for them.
PACK_FROM = 16
# How many small and large files are under way at once; a large file has a window of blocks.
SMALL_WIDTH = 32
LARGE_WIDTH = 3


# How often in a row a connection may be lost, without progress, before a transfer is given up.
_ATTEMPTS = 10
_UNKNOWN_HANDLE = "unknown file handle"


class HandleLost(ConnectionClosed):
    """A file that was open on the server was closed there together with a lost connection."""


def is_handle_lost(exc: BaseException) -> bool:
    """True if a server says that it does not have an open file any more."""
    return isinstance(exc, NotFound) and _UNKNOWN_HANDLE in str(exc)


def check_handle(exc: BaseException) -> None:
    """Raise HandleLost if *exc* means that: the transfer can be taken up again."""
    if is_handle_lost(exc):
        raise HandleLost("the connection was lost while a file was open") from exc


async def persist(prepare: Callable[[], Awaitable[Transfer]], *, verify: Verify) -> TransferResult:
    """Do a transfer, and finish it if a lost connection is replaced.

    Files that were copied before count as kept then. Raises what `run` does.
    """
    losses = best = 0
    while True:
        transfer: Transfer | None = None
        try:
            transfer = await prepare()
            return await transfer.run(verify=verify)
        except SessionLost:
            raise
        except ConnectionClosed as exc:
            # What this attempt has found at the destination is the progress of those before.
            found = 0 if transfer is None else transfer.found
            losses, best = (0, found) if found > best else (losses + 1, best)
            if losses >= _ATTEMPTS:
                raise
            logger.info("a transfer is taken up again: %s", exc)


class Transfer(ABC):
    """One transfer, from its plan to its result."""

    def __init__(
        self, there: RemoteTree, plan: TransferPlan, on_progress: OnProgress | None
    ) -> None:
        self.plan = plan
        self.result = TransferResult()
        self._there = there
        self._files: RemoteFiles = there.files
        self._follow = there.follow_symlinks
        self._tracker = Tracker(on_progress)
        self.options = DEFAULT_OPTIONS
        # What was found at the source, without what is excluded.
        self.listed: list[TreeEntry] = []
        # The paths that were given up; the result says why.
        self._failed: set[bytes] = set()

    @property
    def found(self) -> int:
        """A number that grows with what was at the destination already."""
        return self._tracker.progress.kept_bytes + len(self.plan.kept)

    async def run(self, *, verify: Verify = "size") -> TransferResult:
        """Do the transfer. Raises TransferFailed if some of it could not be done."""
        if self.options.checksum:
            await self._compare_kept()
        self._begin()
        await self._copy()
        if verify == "hash":
            await self._compare()
        if self.plan.extra and not self.result.problems:
            # After a problem nothing is removed: what could not be read looks as if it were gone.
            await self._remove(self.plan.extra)
        self.result.check(*map(os.fsdecode, self._roots))
        return self.result

    @property
    @abstractmethod
    def _roots(self) -> tuple[bytes, bytes]:
        """The paths of the source and of the destination, for errors."""

    @abstractmethod
    async def _copy(self) -> None:
        """Copy what the plan lists."""

    @abstractmethod
    async def _remove(self, entries: list[TreeEntry]) -> None:
        """Remove from the destination what is not in the source, the deepest first."""

    async def _compare_kept(self) -> None:
        """Copy the files with the same size and time whose content differs."""
        plan = self.plan
        theirs = await remote_digest(self._there, plan.kept)
        ours = await self._digest(plan.kept)
        found = {entry.path for entry, _ in await differing(ours, theirs, plan.kept)}
        plan.files += [Copy(entry, entry) for entry in plan.kept if entry.path in found]
        plan.kept = [entry for entry in plan.kept if entry.path not in found]
        plan.modes = [entry for entry in plan.modes if entry.path not in found]

    def _begin(self) -> None:
        plan, result = self.plan, self.result
        for entry in plan.skipped:
            self._skip(entry.path, "is neither a file, a directory nor a link")
        for path, text in plan.obstacles:
            self._fail(path, text)
        result.kept = len(plan.kept)
        kept_bytes = sum(entry.size for entry in plan.kept)
        self._tracker.expect(files=len(plan.files) + len(plan.kept), bytes=plan.bytes + kept_bytes)
        self._tracker.keep(files=len(plan.kept), bytes=kept_bytes)

    async def _compare(self) -> None:
        entries = [*self.plan.kept, *(copy.entry for copy in self.plan.files)]
        entries = [entry for entry in entries if entry.path not in self._failed]
        theirs = await remote_digest(self._there, entries)
        for entry, text in await differing(await self._digest(entries), theirs, entries):
            self._fail(entry.path, text)

    @abstractmethod
    async def _digest(self, entries: list[TreeEntry]) -> Digest:
        """The checksums of the side that is not the server."""

    def _skip(self, path: bytes, why: str) -> None:
        self.result.skipped.append(remark(path, why))

    def _fail(self, path: bytes, why: Exception | str) -> None:
        self._failed.add(path)
        if isinstance(why, RpcError):
            why = why.message
        elif isinstance(why, OSError):
            why = why.strerror or str(why)
        elif isinstance(why, WithoutSize):
            why = "its size is not known before it is read, as in /proc; copy it with `cat`"
        elif isinstance(why, Changed):
            why = "changed while it was copied"
        self.result.problems.append(remark(path, str(why)))
