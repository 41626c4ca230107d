"""Upload: copy to a server, from this machine or from another server.

The module is long because a file may go by three ways (an archive, one write, blocks), and each of
them has to continue after a lost connection and to leave nothing behind after a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from exec_server.client.files.file_streams import BLOCK_BYTES, WINDOW
from exec_server.client.files.transfer.archives import Archives
from exec_server.client.files.transfer.checksum import Digest
from exec_server.client.files.transfer.delta_upload import DeltaUpload
from exec_server.client.files.transfer.leftovers import discard, discard_incomplete
from exec_server.client.files.transfer.local_tree import Changed, LocalTree, MostlyNew
from exec_server.client.files.transfer.own_parts import OwnParts
from exec_server.client.files.transfer.private_files import (
    is_private_directory,
    is_private_file,
    make_private,
)
from exec_server.client.files.transfer.progress import OnProgress
from exec_server.client.files.transfer.remote_links import make_links
from exec_server.client.files.transfer.remote_listing import Listing, look_at
from exec_server.client.files.transfer.remote_tree import RemoteTree
from exec_server.client.files.transfer.result import TransferResult, Verify
from exec_server.client.files.transfer.source import Content, LocalSource, RemoteSource, Source
from exec_server.client.files.transfer.task_pool import each
from exec_server.client.files.transfer.transfer import (
    LARGE_WIDTH,
    PACK_FROM,
    SMALL_WIDTH,
    Transfer,
    check_handle,
    is_handle_lost,
    persist,
)
from exec_server.client.files.transfer.transfer_options import (
    DEFAULT_OPTIONS,
    TransferOptions,
    check_delete,
    without_excluded,
)
from exec_server.client.files.transfer.transfer_plan import (
    Copy,
    TransferPlan,
    extraneous,
    is_changed_file,
    make_plan,
    stale_parts,
    stale_siblings,
)
from exec_server.client.files.transfer.tree import TreeEntry, delta_part_name, part_name
from exec_server.client.files.transfer.upload_checks import (
    difference,
    has_arrived,
    is_made,
    is_packable,
    leaves,
    levels,
)
from exec_server.errors import NotFound, RpcError

if TYPE_CHECKING:
    from exec_server.client.files.file_methods import AnyPath
    from exec_server.client.files.remote_files import RemoteFiles

_APPEND_BYTES = 4 * BLOCK_BYTES
# The last blocks of a part may be holes, because several were under way when the copy was cut.
_DOUBTFUL_BYTES = (WINDOW + 1) * BLOCK_BYTES
_OWNER = 0o700


async def upload(
    files: RemoteFiles,
    source: str | bytes | os.PathLike[str],
    destination: AnyPath,
    *,
    verify: Verify = "size",
    on_progress: OnProgress | None = None,
    options: TransferOptions = DEFAULT_OPTIONS,
) -> TransferResult:
    """See RemoteFiles.upload."""
    prepare = partial(
        Upload.prepare, files, source, destination, on_progress=on_progress, options=options
    )
    return await persist(prepare, verify=verify)


class Upload(Transfer):
    """One upload, from its plan to its result.

    Small new files are sent together, in archives that tar unpacks on the server. Files that do
    not arrive that way, or cannot, are sent one by one. At the end the server lists what it has.
    """

    def __init__(
        self,
        source: Source,
        there: RemoteTree,
        plan: TransferPlan,
        existing: Listing,
        on_progress: OnProgress | None,
    ) -> None:
        super().__init__(there, plan, on_progress)
        self._source = source
        self._existing = existing
        self._archives = Archives(there, origin=source.origin)
        self._has_rename = self._has_append = self._has_permissions = False
        self._own_parts = OwnParts(self._files, follow_symlinks=self._follow)
        self._delta: DeltaUpload | None = None

    @classmethod
    async def prepare(
        cls,
        files: RemoteFiles,
        source: str | bytes | os.PathLike[str],
        destination: AnyPath,
        *,
        on_progress: OnProgress | None = None,
        options: TransferOptions = DEFAULT_OPTIONS,
    ) -> Upload:
        """List both sides and make a plan. Raises OSError if there is no *source*."""
        here = await asyncio.to_thread(LocalTree, source)
        scan = await asyncio.to_thread(here.scan)
        there = await RemoteTree.find(files, destination)
        transfer = await cls._planned(LocalSource(here), scan.entries, there, on_progress, options)
        for path, error in scan.errors:
            transfer._fail(path, error)
        return transfer

    @classmethod
    async def prepare_between(
        cls,
        source_files: RemoteFiles,
        source: AnyPath,
        files: RemoteFiles,
        destination: AnyPath,
        *,
        on_progress: OnProgress | None = None,
        options: TransferOptions = DEFAULT_OPTIONS,
    ) -> Upload:
        """Like `prepare`, from another server; the content passes through here, a few blocks at a
        time. Raises NotFound if there is no *source*."""
        origin = await RemoteTree.find(source_files, source)
        listing = await origin.list()
        if not listing.entries:
            raise origin.missing()
        there = await RemoteTree.find(files, destination)
        transfer = await cls._planned(
            RemoteSource(origin), listing.entries, there, on_progress, options
        )
        for path, text in listing.errors:
            transfer._fail(path, text)
        if not listing.is_full:
            transfer.result.not_kept |= {"modes", "links"}
        return transfer

    @classmethod
    async def _planned(
        cls,
        source: Source,
        entries: list[TreeEntry],
        there: RemoteTree,
        on_progress: OnProgress | None,
        options: TransferOptions,
    ) -> Upload:
        is_tree = entries[0].kind == "directory"
        check_delete(there.root, options)
        existing = await there.list(is_full=is_tree) if there.exists else Listing()
        wanted = without_excluded(entries, options.exclude)
        plan = make_plan(wanted, existing.by_path())
        if options.delete and is_tree:
            plan.extra = extraneous(wanted, without_excluded(existing.entries, options.exclude))
        transfer = cls(source, there, plan, existing, on_progress)
        transfer.options, transfer.listed = options, wanted
        return transfer

    @property
    def _roots(self) -> tuple[bytes, bytes]:
        return self._source.root, self._there.root

    async def _digest(self, entries: list[TreeEntry]) -> Digest:
        return await self._source.digest(entries)

    async def _copy(self) -> None:
        self._has_rename = await self._files.offers("fsRename")
        self._has_append = await self._files.offers("fsAppend")
        self._has_permissions = await self._files.offers("fsSetPermissions")
        if not self.options.whole_files and await self._files.offers("fsDelta"):
            self._delta = DeltaUpload(self._files, self._tracker, follow_symlinks=self._follow)
        if self.plan.directories:
            await self._open_directories()
        elif self.plan.files:
            await self._remove_stale_siblings(self.plan.files[0])
        wanted = [*self.plan.directories, *self.plan.files, *self.plan.links]
        there = self._existing.by_path()
        todo = [copy for copy in wanted if not is_made(copy)]
        if await self._pack([copy for copy in todo if is_packable(copy)]):
            there = (await self._there.list()).by_path()
            todo = [copy for copy in todo if not has_arrived(copy, there)]
        # What is not right is copied once more, because a command that an earlier attempt has left
        # running on the server may have interfered.
        for _ in range(2):
            todo = [copy for copy in todo if copy.entry.path not in self._failed]
            await self._copy_singly(todo)
            if todo or not there:
                there = await self._list_again(todo)
            todo = [copy for copy in wanted if difference(copy, there)]
        for copy in wanted:
            self._check(copy, difference(copy, there))
        await self._set_attributes()

    async def _list_again(self, todo: list[Copy]) -> dict[bytes, TreeEntry]:
        listing = await self._there.list(is_full=bool(self.plan.directories))
        there = listing.by_path()

        async def look(copy: Copy) -> None:
            path = copy.entry.path
            with contextlib.suppress(RpcError):
                there[path] = await look_at(self._files, self._there.root, path)

        # The methods of the protocol cannot list names that are not UTF-8.
        missing = [copy for copy in todo if copy.entry.path not in there]
        await each(missing if not listing.is_full else [], look, width=SMALL_WIDTH)
        return there

    async def _copy_singly(self, todo: list[Copy]) -> None:
        kinds: dict[str, list[Copy]] = {"directory": [], "file": [], "symlink": []}
        for copy in todo:
            kinds[copy.entry.kind].append(copy)
        await each(leaves(kinds["directory"]), self._make_directory, width=SMALL_WIDTH)
        await self._close_directories([copy.entry for copy in kinds["directory"]])
        small = [copy for copy in kinds["file"] if copy.is_small]
        await each(small, self._copy_small, width=SMALL_WIDTH)
        large = [copy for copy in kinds["file"] if not copy.is_small]
        await each(large, self._copy_large, width=LARGE_WIDTH)
        await self._make_links([copy.entry for copy in kinds["symlink"]])

    async def _pack(self, copies: list[Copy]) -> bool:
        """Send *copies* in archives, if there are many and the server can unpack them."""
        # tar can set modes and times where the server has no method for that.
        here = self._source.local
        if here is None or len(copies) < (PACK_FROM if self._has_permissions else 1):
            return False
        entries = [copy.entry for copy in copies]
        is_sent = await self._archives.send(here, entries, self._tracker.advance)
        for entry, error in self._archives.failed:
            self._fail(entry.path, error)
        return is_sent

    # One at a time.

    async def _open_directories(self) -> None:
        """Make the root, and make existing directories writable."""
        root, *others = self.plan.directories
        if root.replaces is None:
            await self._files.create_directory(
                self._there.root, recursive=True, follow_symlinks=self._follow
            )
            await self._close_directories([root.entry])
        closed = [
            copy.replaces
            for copy in (root, *others)
            if copy.replaces is not None
            and copy.replaces.mode is not None
            and copy.replaces.mode & _OWNER != _OWNER
        ]
        if self._has_permissions:
            await each(closed, self._open_directory, width=SMALL_WIDTH)
        await self._archives.remove_stale(self._existing.entries)
        for path in stale_parts(self.plan, (entry.path for entry in self._existing.entries)):
            await discard(self._files, self._there.at(path))

    async def _remove_stale_siblings(self, copy: Copy) -> None:
        """Remove the parts of other versions of a single file, unless it is new and small."""
        if copy.is_small and copy.replaces is None:
            return
        folder, name = os.path.split(self._there.root)
        with contextlib.suppress(RpcError):
            siblings = [os.fsencode(each.name) for each in await self._files.read_directory(folder)]
            for part in stale_siblings(copy.entry, name, siblings):
                await discard(self._files, os.path.join(folder, part))

    async def _close_directories(self, made: list[TreeEntry]) -> None:
        """Keep others out of directories that are private, before something is written there."""
        if self._has_permissions:
            private = [entry for entry in made if is_private_directory(entry.mode)]
            await each(private, self._open_directory, width=SMALL_WIDTH)

    async def _open_directory(self, entry: TreeEntry) -> None:
        await self._try(entry, self._set(entry.path, mode=(entry.mode or 0) | _OWNER))

    async def _make_directory(self, entry: TreeEntry) -> None:
        path = self._there.at(entry.path)
        await self._try(
            entry,
            self._files.create_directory(path, recursive=True, follow_symlinks=self._follow),
        )

    async def _copy_small(self, copy: Copy) -> None:
        async def send(path: bytes) -> None:
            data = await self._source.read(copy.entry)
            await self._files.write_file(path, data, follow_symlinks=self._follow)
            self._tracker.advance(files=1, bytes=len(data))

        await self._try(copy.entry, self._put(copy, send))

    async def _copy_large(self, copy: Copy) -> None:
        if self._delta is not None and is_changed_file(copy):
            if await self._copy_changes(self._delta, copy):
                return

        async def send(path: bytes) -> None:
            async with self._source.open(copy.entry) as content:
                await self._send_large(content, copy.entry, path)
            self._tracker.advance(files=1)

        await self._try(copy.entry, self._put(copy, send))

    async def _copy_changes(self, delta: DeltaUpload, copy: Copy) -> bool:
        """Send only what has changed in a file; False if it has to be sent whole."""
        entry, replaced = copy.entry, copy.replaces
        assert replaced is not None

        async def send(path: bytes) -> None:
            old = self._there.at(entry.path)
            async with self._source.open(entry) as content:
                matched = await delta.send(
                    content, entry.size, old=old, old_size=replaced.size, part=path
                )
            if matched is None:
                raise MostlyNew
            self.result.matched_bytes += matched
            self._tracker.advance(files=1)

        try:
            await self._put(copy, send, is_delta=True)
        except (MostlyNew, OSError, RpcError) as exc:
            check_handle(exc)
            return False
        except Changed as exc:
            self._fail(entry.path, exc)
        return True

    async def _put(
        self, copy: Copy, send: Callable[[bytes], Awaitable[None]], *, is_delta: bool = False
    ) -> None:
        """Write a file with *send*, perhaps under another name; then set attributes and name."""
        entry = copy.entry
        path, part = entry.path, None
        is_risky = copy.replaces is not None or not copy.is_small
        if is_risky and self._has_rename:
            names = os.path.split(self._there.at(path))
            named = delta_part_name if is_delta else part_name
            part = os.path.join(names[0], named(entry, names[1]))
        elif copy.replaces is not None and copy.replaces.kind == "symlink":
            await self._files.remove(self._there.at(path))
        target = self._there.at(path)
        try:
            if part is not None:
                await self._own_parts.ensure(part)
            if self._has_permissions and is_private_file(entry.mode):
                await make_private(self._files, part or target, follow_symlinks=self._follow)
            await send(part or target)
        except (Changed, asyncio.CancelledError) as exc:
            if part is None or is_delta or isinstance(exc, Changed):
                # It cannot be continued later, and must not be taken for a complete file.
                await discard(self._files, part or target)
            raise
        except (OSError, RpcError) as exc:
            if not is_handle_lost(exc) and (part is not None or copy.replaces is None):
                await discard_incomplete(
                    self._files, part or target, entry.size, follow_symlinks=self._follow
                )
            raise
        if self._has_permissions:
            await self._files.set_permissions(
                part or target,
                mode=entry.mode,
                modified=entry.mtime_ms / 1000,
                follow_symlinks=self._follow,
            )
        else:
            self.result.not_kept |= {"modes", "times"}
        if part is not None:
            await self._files.rename(part, target, follow_symlinks=self._follow)

    # Large files.

    async def _send_large(self, content: Content, entry: TreeEntry, path: bytes) -> None:
        done = await self._reusable(content, entry, path)
        if done:
            self._tracker.keep(files=0, bytes=done)
            self.result.resumed_bytes += done
            async for data in content.blocks(done, _APPEND_BYTES):
                await self._files.append(path, data, follow_symlinks=self._follow)
                self._tracker.advance(bytes=len(data))
            return
        async with self._files.write_stream(path) as stream:
            async for data in content.blocks(0, BLOCK_BYTES):
                await stream.write(data)
                self._tracker.advance(bytes=len(data))

    async def _reusable(self, content: Content, entry: TreeEntry, path: bytes) -> int:
        """The number of bytes at *path* that an earlier attempt at this version has copied."""
        if not (self._has_append and self._has_rename):
            return 0
        try:
            found = await self._files.get_metadata(path, follow_symlinks=self._follow)
        except NotFound:
            return 0
        if not found.is_file or not 0 < found.size <= entry.size:
            return 0
        offset = max(0, found.size - _DOUBTFUL_BYTES)
        stream = self._files.read_stream(path, offset=offset, length=found.size - offset)
        async with stream:
            async for theirs in stream:
                if await content.read(offset, len(theirs)) != theirs:
                    return 0
                offset += len(theirs)
        return found.size if offset == found.size else 0

    # Links.

    async def _make_links(self, entries: list[TreeEntry]) -> None:
        if await make_links(self._there, entries):
            return
        self.result.not_kept.add("links")
        for entry in entries:
            self._failed.add(entry.path)
            self._skip(entry.path, "the server has no way to make a link")

    # At the end.

    async def _remove(self, entries: list[TreeEntry]) -> None:
        for level in levels(entries):
            await each(level, self._remove_entry, width=SMALL_WIDTH)

    async def _remove_entry(self, entry: TreeEntry) -> None:
        try:
            await self._files.remove(self._there.at(entry.path), force=True)
        except RpcError as exc:
            # A directory stays if it contains excluded names.
            if entry.kind != "directory" or exc.errno != errno.ENOTEMPTY:
                self._fail(entry.path, exc)
            return
        self.result.removed += 1

    def _check(self, copy: Copy, problem: str | None) -> None:
        """Count what was copied, and record what is wrong."""
        entry, result = copy.entry, self.result
        if entry.path in self._failed:
            return
        if problem is not None:
            self._fail(entry.path, problem)
        elif entry.kind == "directory":
            result.directories += copy.replaces is None
        elif entry.kind == "symlink":
            result.links += 1
        else:
            result.files += 1
            result.bytes += entry.size

    async def _set_attributes(self) -> None:
        """Set the modes that differ, and the attributes of directories, which copying changes."""
        directories = [
            copy.entry for copy in self.plan.directories if copy.entry.path not in self._failed
        ]
        if not self._has_permissions:
            if self.plan.modes:
                self.result.not_kept.add("modes")
            if directories and not await self._archives.set_directories(directories):
                self.result.not_kept |= {"modes", "times"}
            return
        await each(self.plan.modes, self._set_mode, width=SMALL_WIDTH)
        for level in levels(directories):
            await each(level, self._set_directory, width=SMALL_WIDTH)

    async def _set_mode(self, entry: TreeEntry) -> None:
        await self._try(entry, self._set(entry.path, mode=entry.mode))

    async def _set_directory(self, entry: TreeEntry) -> None:
        await self._try(
            entry, self._set(entry.path, mode=entry.mode, modified=entry.mtime_ms / 1000)
        )

    def _set(
        self, path: bytes, *, mode: int | None, modified: float | None = None
    ) -> Awaitable[None]:
        return self._files.set_permissions(
            self._there.at(path), mode=mode, modified=modified, follow_symlinks=self._follow
        )

    async def _try(self, entry: TreeEntry, work: Awaitable[None]) -> None:
        """Await *work*; an error of the server or of this machine concerns *entry* alone."""
        try:
            await work
        except (OSError, RpcError, Changed) as exc:
            check_handle(exc)
            self._fail(entry.path, exc)
