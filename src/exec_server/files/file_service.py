"""What a connection can do with files: at once where that is possible, else in a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from exec_server.files.confined.confined_discovery import ConfinedDiscovery
from exec_server.files.confined.confined_files import ConfinedFiles
from exec_server.files.confined.helper_pool import HelperPool, Starter
from exec_server.files.file_admission import FileAdmission
from exec_server.files.nowait.mounts import Mounts
from exec_server.files.nowait.nonblocking import Quick
from exec_server.files.open_files import OpenFiles
from exec_server.files.operations import atomic_write, attributes, local, nofollow
from exec_server.files.operations.content import Content, content_of
from exec_server.files.operations.copy import copy
from exec_server.files.operations.directory_listing import read_directory
from exec_server.files.operations.fifo_writes import SpecialWrites
from exec_server.files.operations.local import SpecialFile
from exec_server.files.operations.oserrors import rpc_error
from exec_server.files.operations.walk import check_limits, walk
from exec_server.files.runner import Runner, translated
from exec_server.files.watch.missing import MissingPathsWatch
from exec_server.files.workers import Workers
from exec_server.limits import MIB, Limits
from exec_server.protocol import fs
from exec_server.protocol.method import Encoded, Nothing
from exec_server.protocol.paths import PathUri
from exec_server.protocol.sandbox import SandboxContext


class FileService:
    """What the connections of a server share: threads, helpers, and what is known of the mounts.

    *start_helper* starts the process that does the work of sandboxed requests.
    """

    def __init__(self, limits: Limits, admission: FileAdmission, start_helper: Starter) -> None:
        self.limits = limits
        self.admission = admission
        self.helpers = HelperPool(start_helper, limits)
        self.workers = Workers(limit=limits.file_threads, idle_seconds=limits.file_thread_idle)
        self.special = SpecialWrites(limit=limits.special_writes)
        self._mounts = Mounts()
        self._mounts.follow_changes()
        self.quick = Quick(self._mounts)
        # Freeing a large block tells glibc to keep, from now on, blocks up to this size for the
        # next one, where it would give each back to the kernel. It is never touched.
        bytes(16 * MIB)

    def connect(self, notify: Callable[[fs.MissingChangedEvent], None]) -> Files:
        """What a new connection can do; *notify* tells its client of what it watches."""
        return Files(self, notify)

    def discovery_within(self, sandbox: SandboxContext) -> ConfinedDiscovery | None:
        """What scans capabilities under *sandbox*; None when it hides nothing. Raises RpcError."""
        policy = self.admission.policy(sandbox, is_read=True)
        if policy is None:
            return None
        runner = Runner(self.workers, width=self.limits.file_threads_each)
        return ConfinedDiscovery(policy, pool=self.helpers, runner=runner)

    def stop(self) -> None:
        self.helpers.stop()
        self.workers.stop()
        self._mounts.close()


class Files:
    """The files of one connection. What carries content waits while the client does not read
    what it was sent already, so that no number of requests fills the memory."""

    def __init__(
        self, service: FileService, notify: Callable[[fs.MissingChangedEvent], None]
    ) -> None:
        self._service = service
        self._limits = service.limits
        self._quick = service.quick
        self._special = service.special
        self._runner = Runner(service.workers, width=service.limits.file_threads_each)
        self.open_files = OpenFiles(self._runner, service.quick, service.limits)
        self.missing = MissingPathsWatch(self._runner, service.limits, notify)

    def within(self, sandbox: fs.Sandbox, *, is_read: bool) -> Files | ConfinedFiles:
        """What a request may do that asks for *sandbox*. Raises RpcError."""
        policy = self._service.admission.policy(sandbox, is_read=is_read)
        if policy is None:
            return self
        return ConfinedFiles(
            policy,
            pool=self._service.helpers,
            runner=self._runner,
            open_files=self.open_files,
            limits=self._limits,
        )

    def writing_paused(self) -> None:
        self._runner.fall_behind()

    def writing_resumed(self) -> None:
        self._runner.catch_up()

    def close(self) -> None:
        """The connection is lost: nothing is kept open, and nobody waits for an answer."""
        self._runner.lose()
        self.open_files.close_all()
        self.missing.drop()

    # Content.

    def read_file(self, params: fs.ReadFileParams) -> Encoded | Awaitable[Encoded]:
        path = params.path.native
        if self._runner.is_behind:
            return self._runner.later(partial(self.read_file, params))
        read = nofollow.read_file
        if params.follow_symlinks is not False:
            found = translated(self._quick.read_file, path)
            if found is not None:
                self._runner.answer_now(len(found.parts[1]))
                return found
            read = local.read_file
        return self._runner.run(read, path, self._limits.read_file_bytes, self._runner.is_lost)

    def write_file(self, params: fs.WriteFileParams) -> Nothing | Awaitable[Nothing]:
        content = content_of(params.data_base64)
        path = params.path.native
        follow = params.follow_symlinks is not False
        if params.atomic:
            return self._runner.do(atomic_write.write_file, path, content, follow)
        if not follow:
            return self._runner.do(nofollow.write_file, path, content)
        try:
            done = translated(self._quick.write_file, path, content)
        except SpecialFile as exc:
            return self._special.start(path, content, exc.fd)
        return done or self._write_slowly(path, content)

    async def _write_slowly(self, path: bytes, content: Content) -> Nothing:
        try:
            return await self._runner.do(local.write_file, path, content)
        except SpecialFile:
            pass
        return await self._special.start(path, content)

    def append(self, params: fs.AppendParams) -> Awaitable[fs.AppendResult]:
        path = params.path.native
        append = nofollow.append if params.follow_symlinks is False else local.append
        return self._runner.run(append, path, params.data_base64.data, params.create)

    def open(self, params: fs.OpenParams) -> fs.OpenResult | Awaitable[fs.OpenResult]:
        return self.open_files.open(params)

    # Names.

    def get_metadata(self, params: fs.GetMetadataParams) -> fs.Metadata | Awaitable[fs.Metadata]:
        path = params.path.native
        quick, slow = self._quick.get_metadata, local.get_metadata
        if params.follow_symlinks is False:
            quick, slow = self._quick.get_metadata_nofollow, nofollow.get_metadata
        try:
            return quick(path) or self._runner.run(slow, path)
        except OSError as exc:
            raise rpc_error(exc) from exc

    def canonicalize(self, params: fs.CanonicalizeParams) -> Awaitable[fs.CanonicalizeResult]:
        return self._runner.run(_canonicalize, params.path.native)

    def create_directory(self, params: fs.CreateDirectoryParams) -> Awaitable[Nothing]:
        path = params.path.native
        is_plain = params.follow_symlinks is not False
        create = local.create_directory if is_plain else nofollow.create_directory
        return self._runner.do(create, path, params.recursive is not False)

    def remove(self, params: fs.RemoveParams) -> Awaitable[Nothing]:
        path = params.path.native
        remove = nofollow.remove if params.follow_symlinks is False else local.remove
        return self._runner.do(
            remove, path, params.recursive is not False, params.force is not False
        )

    def rename(self, params: fs.RenameParams) -> Awaitable[Nothing]:
        source = params.source_path.native
        destination = params.destination_path.native
        follow = params.follow_symlinks is not False
        return self._runner.do(attributes.rename, source, destination, params.overwrite, follow)

    def set_permissions(self, params: fs.SetPermissionsParams) -> Awaitable[Nothing]:
        return self._runner.do(
            attributes.set_permissions,
            params.path.native,
            params.mode,
            params.modified_at_ms,
            params.accessed_at_ms,
            params.follow_symlinks is not False,
        )

    # Trees.

    def read_directory(self, params: fs.ReadDirectoryParams) -> Awaitable[Encoded]:
        path = params.path.native
        if self._runner.is_behind:
            return self._runner.later(partial(self.read_directory, params))
        limit = self._limits.directory_entries
        return self._runner.run(read_directory, path, limit, self._runner.is_lost)

    def walk(self, params: fs.WalkParams) -> Awaitable[Encoded]:
        check_limits(params.options, self._limits)
        path = params.path.native
        if self._runner.is_behind:
            return self._runner.later(partial(self.walk, params))
        limit = self._limits.walk_answer_bytes
        return self._runner.run(walk, path, params.options, limit, self._runner.is_lost)

    def copy(self, params: fs.CopyParams) -> Awaitable[Nothing]:
        source = params.source_path.native
        destination = params.destination_path.native
        return self._runner.do(copy, source, destination, params.recursive)


def _canonicalize(path: bytes) -> fs.CanonicalizeResult:
    return fs.CanonicalizeResult(PathUri.of(local.canonicalize(path)))
