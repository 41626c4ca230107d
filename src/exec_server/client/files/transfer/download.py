"""Download: copy from a server to this machine.

The module is long because a file may come by three ways (an archive, one read, blocks), and each of
them has to continue after a lost connection and to leave nothing behind after a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVarTuple

from exec_server.client.files.file_streams import BLOCK_BYTES
from exec_server.client.files.transfer import local_tree, pack
from exec_server.client.files.transfer.checksum import Digest, local_digest
from exec_server.client.files.transfer.delta_download import DeltaDownload, receive_changes
from exec_server.client.files.transfer.local_tree import (
    Changed,
    LocalPlace,
    LocalPlaces,
    LocalTree,
    WithoutSize,
)
from exec_server.client.files.transfer.progress import OnProgress
from exec_server.client.files.transfer.remote_listing import ERROR_BYTES, Listing
from exec_server.client.files.transfer.remote_tree import RemoteTree, batches, is_text
from exec_server.client.files.transfer.result import TransferResult, Verify
from exec_server.client.files.transfer.task_pool import each, to_its_end
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
    SMALL_BYTES,
    Copy,
    TransferPlan,
    extraneous,
    is_changed_file,
    make_plan,
    stale_parts,
    stale_siblings,
)
from exec_server.client.files.transfer.tree import TreeEntry, part_name
from exec_server.errors import ProcessFailed, ProtocolError, RpcError, StdinClosed

if TYPE_CHECKING:
    from exec_server.client.files.file_methods import AnyPath
    from exec_server.client.files.remote_files import RemoteFiles
    from exec_server.client.process.remote_process import RemoteProcess

logger = logging.getLogger(__name__)

Args = TypeVarTuple("Args")

# How much of an archive is unpacked at a time.
_UNPACK_BYTES = 1024 * 1024
# Pack exactly the files that are named, with their content and not as hard links.
_PACK = (
    *(b"tar", b"-c", b"-f", b"-", b"-b", b"128", b"--format=gnu"),
    *(b"--no-recursion", b"--hard-dereference"),
)
_NAMES_FROM_STDIN = (b"--null", b"--verbatim-files-from", b"-T", b"-")
# tar prints one of these, and has this status, if a file changes while tar reads it.
_SOME_DIFFER = 1
_UNSTEADY = (b"file changed as we read it", b"shrank by")


async def download(
    files: RemoteFiles,
    source: AnyPath,
    destination: str | bytes | os.PathLike[str],
    *,
    verify: Verify = "size",
    on_progress: OnProgress | None = None,
    options: TransferOptions = DEFAULT_OPTIONS,
) -> TransferResult:
    """See RemoteFiles.download."""
    prepare = partial(
        Download.prepare, files, source, destination, on_progress=on_progress, options=options
    )
    return await persist(prepare, verify=verify)


class Download(Transfer):
    """One download, from its plan to its result.

    Small files are received together, in streams that tar packs on the server. Files that do not
    arrive that way are requested one by one. A file has another name here until it is complete.
    """

    def __init__(
        self,
        here: LocalTree,
        there: RemoteTree,
        plan: TransferPlan,
        listing: Listing,
        existing: Iterable[bytes],
        on_progress: OnProgress | None,
    ) -> None:
        super().__init__(there, plan, on_progress)
        self._here = here
        self._existing = existing
        self._delta: DeltaDownload | None = None
        for path, text in listing.errors:
            self._fail(path, text)
        if not listing.is_full:
            self.result.not_kept |= {"modes", "links"}

    @classmethod
    async def prepare(
        cls,
        files: RemoteFiles,
        source: AnyPath,
        destination: str | bytes | os.PathLike[str],
        *,
        on_progress: OnProgress | None = None,
        options: TransferOptions = DEFAULT_OPTIONS,
    ) -> Download:
        """List both sides and make a plan. Raises NotFound if there is no *source*."""
        here = await asyncio.to_thread(LocalTree, destination)
        check_delete(await asyncio.to_thread(os.path.realpath, here.root), options)
        there = await RemoteTree.find(files, source)
        listing = await there.list()
        if not listing.entries:
            raise there.missing()
        with here.named():
            existing = await asyncio.to_thread(_existing, here)
        wanted = without_excluded(listing.entries, options.exclude)
        plan = make_plan(wanted, existing)
        if options.delete and listing.entries[0].kind == "directory":
            plan.extra = extraneous(wanted, without_excluded(existing.values(), options.exclude))
        transfer = cls(here, there, plan, listing, existing, on_progress)
        transfer.options, transfer.listed = options, wanted
        return transfer

    @property
    def _roots(self) -> tuple[bytes, bytes]:
        return self._there.root, self._here.root

    async def _copy(self) -> None:
        with self._here.named():
            await asyncio.to_thread(self._make_directories)
        await asyncio.to_thread(self._remove_stale_parts)
        todo = await self._unpack([copy for copy in self.plan.files if copy.is_small])
        await each(todo, self._copy_small, width=SMALL_WIDTH)
        if not self.options.whole_files and await self._files.offers("fsDelta"):
            self._delta = DeltaDownload(self._files, self._tracker, follow_symlinks=self._follow)
        large = [copy for copy in self.plan.files if not copy.is_small]
        await each(large, self._copy_large, width=LARGE_WIDTH)
        await asyncio.to_thread(self._finish)

    async def _digest(self, entries: list[TreeEntry]) -> Digest:
        return local_digest(self._here)

    def _make_directories(self) -> None:
        if self.plan.directories:
            self._here.make_base()
        with self._here.places() as places:
            for copy in self.plan.directories:
                self._try(copy.entry, self._make_directory, places, copy)

    def _make_directory(self, places: LocalPlaces, copy: Copy) -> None:
        place = places.of(copy.entry.path)
        if copy.replaces is not None:
            local_tree.open_directory(place, copy.replaces)
        else:
            local_tree.make_directory(place, copy.entry)
            self.result.directories += 1

    def _remove_stale_parts(self) -> None:
        """Remove the parts that earlier attempts at other versions have left."""
        with self._here.places() as places:
            for path in stale_parts(self.plan, self._existing):
                place = places.of(path)
                with contextlib.suppress(OSError):
                    os.unlink(place.name, dir_fd=place.directory)
            if self.plan.files and not self.plan.directories:
                _remove_stale_siblings(places.of(b""), self.plan.files[0])

    # Many at once.

    async def _unpack(self, copies: list[Copy]) -> list[Copy]:
        """Have the server pack *copies*; returns those that have not arrived that way."""
        wanted = {copy.entry.path: copy for copy in copies if copy.entry.path}
        if len(wanted) < PACK_FROM:
            return copies
        if await self._files.offers("processCloseStdin"):
            await self._unpack_named(wanted, _NAMES_FROM_STDIN, b"".join(_names(wanted)))
            return list(wanted.values())
        for batch in batches((b"./" + path,) for path in tuple(wanted) if is_text(path)):
            if not await self._unpack_named(wanted, (b"--", *batch), None):
                break
        return list(wanted.values())

    async def _unpack_named(
        self, wanted: dict[bytes, Copy], options: tuple[bytes, ...], names: bytes | None
    ) -> bool:
        """Remove from *wanted* what one tar process delivers; True if that was anything."""
        process = await self._there.start(*_PACK, *options, stdin=names is not None)
        if process is None:
            return False
        feeding = asyncio.create_task(_feed(process, names)) if names is not None else None
        came: list[bytes] = []
        try:
            came = await self._receive(process, wanted)
        except (ProcessFailed, ProtocolError):
            # Output was discarded because other tasks needed the connection, or it is another
            # program. The missing files are requested one by one.
            logger.debug("tar on the server was of no use", exc_info=True)
        finally:
            process.abandon()
            if feeding is not None:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
        for path in came:
            wanted.pop(path, None)
        return bool(came)

    async def _receive(self, process: RemoteProcess, wanted: dict[bytes, Copy]) -> list[bytes]:
        """Unpack what *process* writes; returns the paths that are done."""
        unpacker = pack.Unpacker(limit=SMALL_BYTES)
        came: list[bytes] = []
        errors, data, size = bytearray(), list[bytes](), 0
        async for chunk in process:
            if chunk.stream == "stderr":
                errors += chunk.data
                if len(errors) > ERROR_BYTES:
                    raise ProtocolError("tar complains without an end")
                continue
            data.append(chunk.data)
            size += len(chunk.data)
            if size >= _UNPACK_BYTES:
                came += await self._write_packed(unpacker, b"".join(data), wanted)
                data, size = [], 0
        came += await self._write_packed(unpacker, b"".join(data), wanted)
        # If a file has changed, all files are requested again, because tar does not name that file
        # in a reliable way. After any other end, those that have not arrived are requested.
        has_changed = any(text in errors for text in _UNSTEADY)
        return [] if has_changed or await process.wait() == _SOME_DIFFER else came

    async def _write_packed(
        self, unpacker: pack.Unpacker, data: bytes, wanted: dict[bytes, Copy]
    ) -> list[bytes]:
        done = await asyncio.to_thread(self._write_all, unpacker, data, wanted)
        self._tracker.advance(files=len(done), bytes=sum(wanted[p].entry.size for p in done))
        return done

    def _write_all(
        self, unpacker: pack.Unpacker, data: bytes, wanted: dict[bytes, Copy]
    ) -> list[bytes]:
        done = []
        with self._here.places() as places:
            for path, content in unpacker.feed(data):
                copy = wanted.get(path)
                # A file with another size is requested again, which reports the change.
                if copy is not None and len(content) == copy.entry.size:
                    self._try(copy.entry, self._write, places, copy.entry, content)
                    done.append(path)
        return done

    def _write(self, places: LocalPlaces, entry: TreeEntry, data: bytes) -> None:
        local_tree.write_file(places.of(entry.path), entry, data)
        self._count(entry)

    def _count(self, entry: TreeEntry) -> None:
        self.result.files += 1
        self.result.bytes += entry.size

    # One at a time.

    async def _copy_small(self, copy: Copy) -> None:
        entry = copy.entry
        try:
            data = await self._files.read_file(
                self._there.at(entry.path), follow_symlinks=self._follow
            )
            if len(data) != entry.size:
                raise Changed if entry.size else WithoutSize
            await asyncio.to_thread(self._write_one, entry, data)
        except (OSError, RpcError, Changed) as exc:
            self._fail(entry.path, exc)
        self._tracker.advance(files=1, bytes=entry.size)

    def _write_one(self, entry: TreeEntry, data: bytes) -> None:
        with self._here.places() as places:
            self._write(places, entry, data)

    async def _copy_large(self, copy: Copy) -> None:
        entry = copy.entry
        try:
            with await to_its_end(self._here.places, undo=LocalPlaces.close) as places:
                place = await to_its_end(places.of, entry.path)
                if not await self._receive_changes(place, copy):
                    await self._receive_large(place, entry)
            self._count(entry)
        except (OSError, RpcError, Changed) as exc:
            check_handle(exc)
            self._fail(entry.path, exc)
        self._tracker.advance(files=1)

    async def _receive_changes(self, place: LocalPlace, copy: Copy) -> bool:
        """Receive only what has changed in a file; False if it has to be sent whole."""
        if self._delta is None or not is_changed_file(copy):
            return False
        path = self._there.at(copy.entry.path)
        check = partial(self._check_unchanged, copy.entry)
        matched = await receive_changes(self._delta, path, place, copy.entry, check=check)
        if matched is None:
            return False
        self.result.matched_bytes += matched
        return True

    async def _receive_large(self, place: LocalPlace, entry: TreeEntry) -> None:
        part = LocalPlace(place.directory, part_name(entry, place.name))
        fd = await to_its_end(local_tree.open_part, part, 0, entry, undo=os.close)
        try:
            done = await to_its_end(_reusable, fd, entry)
            self._tracker.keep(files=0, bytes=done)
            self.result.resumed_bytes += done
            stream = self._files.read_stream(
                self._there.at(entry.path), offset=done, length=entry.size - done
            )
            async with stream:
                async for data in stream:
                    await to_its_end(local_tree.write_all, fd, data)
                    self._tracker.advance(bytes=len(data))
            await self._check_unchanged(entry)
            await to_its_end(local_tree.finish_part, fd, part, place, entry)
        except (Changed, OSError, RpcError) as exc:
            if not is_handle_lost(exc):
                # The part cannot be continued later, or fills a disk that has no room for it.
                os.unlink(part.name, dir_fd=part.directory)
            raise
        finally:
            os.close(fd)

    async def _check_unchanged(self, entry: TreeEntry) -> None:
        found = await self._files.get_metadata(
            self._there.at(entry.path), follow_symlinks=self._follow
        )
        if found.size != entry.size or found.modified_at_ms != entry.mtime_ms:
            raise Changed

    # At the end.

    async def _remove(self, entries: list[TreeEntry]) -> None:
        await asyncio.to_thread(self._remove_all, entries)

    def _remove_all(self, entries: list[TreeEntry]) -> None:
        with self._here.places() as places:
            for entry in entries:
                # A directory stays if it contains excluded names.
                if self._try(entry, local_tree.remove_entry, places.of(entry.path), entry):
                    self.result.removed += 1

    def _finish(self) -> None:
        """Make links, and set the attributes of directories, which copying changes."""
        with self._here.places() as places:
            for copy in self.plan.links:
                self._make_link(places, copy.entry)
            for entry in self.plan.modes:
                assert entry.mode is not None
                self._try(entry, _set_mode, places, entry)
            for copy in reversed(self.plan.directories):
                if copy.entry.path not in self._failed:
                    self._try(copy.entry, _set_attributes, places, copy.entry)

    def _make_link(self, places: LocalPlaces, entry: TreeEntry) -> None:
        if not entry.target:
            self._skip(entry.path, "the server has no way to tell where a link leads")
        elif self._try(entry, _link, places, entry):
            self.result.links += 1

    # What goes wrong.

    def _try(self, entry: TreeEntry, work: Callable[[*Args], None], *args: *Args) -> bool:
        """Call *work*; an error of this machine concerns *entry* alone. True if it worked."""
        try:
            work(*args)
        except (OSError, Changed) as exc:
            self._fail(entry.path, exc)
            return False
        return True


def _remove_stale_siblings(place: LocalPlace, copy: Copy) -> None:
    """Remove the parts of other versions of a single file, unless it is new and small."""
    if copy.is_small and copy.replaces is None:
        return
    with contextlib.suppress(OSError):
        siblings = [os.fsencode(name) for name in os.listdir(place.directory)]
        for part in stale_siblings(copy.entry, place.name, siblings):
            os.unlink(part, dir_fd=place.directory)


def _names(paths: Iterable[bytes]) -> Iterator[bytes]:
    for path in paths:
        yield b"./%b\0" % path


async def _feed(process: RemoteProcess, data: bytes) -> None:
    with contextlib.suppress(StdinClosed):
        await process.write(data)
        await process.close_stdin()


def _existing(tree: LocalTree) -> dict[bytes, TreeEntry]:
    try:
        return {entry.path: entry for entry in tree.scan().entries}
    except FileNotFoundError:
        return {}


def _link(places: LocalPlaces, entry: TreeEntry) -> None:
    local_tree.make_link(places.of(entry.path), entry)


def _set_mode(places: LocalPlaces, entry: TreeEntry) -> None:
    assert entry.mode is not None
    local_tree.set_mode(places.of(entry.path), entry.mode)


def _set_attributes(places: LocalPlaces, entry: TreeEntry) -> None:
    local_tree.set_attributes(places.of(entry.path), entry)


def _reusable(fd: int, entry: TreeEntry) -> int:
    """The number of bytes to keep of an earlier attempt; *fd* is positioned after them."""
    size = os.fstat(fd).st_size
    # If the machine was stopped, the last block may not be what was written.
    done = max(size // BLOCK_BYTES - 1, 0) * BLOCK_BYTES if size <= entry.size else 0
    os.ftruncate(fd, done)
    os.lseek(fd, done, os.SEEK_SET)
    return done
