"""The files of connections without a sandbox: calls that cannot block are answered at once, the
others in threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import NamedTuple, TypeVar

from exec_server.files.agents.agent_process import AgentOrder, AgentStarter, StartedAgent
from exec_server.files.confined.confined_discovery import ConfinedDiscovery
from exec_server.files.confined.confined_files import ConfinedFiles
from exec_server.files.confined.helper_pool import HelperPool, Starter
from exec_server.files.file_admission import FileAdmission
from exec_server.files.file_calls import FileCalls
from exec_server.files.nowait.mounts import Mounts
from exec_server.files.nowait.nonblocking import Quick
from exec_server.files.open_files import OpenFiles
from exec_server.files.operations import local
from exec_server.files.operations.content import Content, content_of
from exec_server.files.operations.fifo_writes import SpecialWrites
from exec_server.files.operations.local import SpecialFile
from exec_server.files.operations.oserrors import rpc_error
from exec_server.files.operations.table import OPERATIONS
from exec_server.files.operations.task import BulkOperation
from exec_server.files.runner import Rests, Runner, translated
from exec_server.files.watch.missing import MissingPathsWatch
from exec_server.files.workers import Workers
from exec_server.limits import MIB, Limits
from exec_server.memory import keep_freed_memory
from exec_server.protocol import fs
from exec_server.protocol.method import NOTHING, Encoded, Method, Nothing, Reply
from exec_server.protocol.sandbox import SandboxContext
from exec_server.sandbox.floor import PolicyFloor
from exec_server.sandbox.model import Policy

P = TypeVar("P")
R = TypeVar("R")


# For calls of another user, which a helper does without a sandbox.
_EVERYTHING = Policy(False, "enabled")


class FileTerms(NamedTuple):
    """What the operator decides about file calls, whatever a request says."""

    # What its sandbox must stay within; None leaves the sandbox to the request.
    floor: PolicyFloor | None = None
    # Whose calls these are; None for those of the server's own user. Each owner has helpers of its
    # own, so that one that keeps all of its helpers busy does not delay others.
    owner: Hashable | None = None


NO_TERMS = FileTerms()


class FileService:
    """The parts that all connections of a server share: threads, helpers and the list of mounts.

    *start_helper* starts the process that does the work of sandboxed requests, and *starter_of* is
    asked for one that starts such a process for another owner. *start_agent* starts the process
    of a search or a watch. *rests* says when large answers rest for a moment.
    """

    def __init__(
        self,
        limits: Limits,
        admission: FileAdmission,
        start_helper: Starter,
        starter_of: Callable[[Hashable], Starter] | None = None,
        start_agent: AgentStarter | None = None,
        *,
        rests: Rests | None = None,
    ) -> None:
        self.rests = rests
        self._start_agent = start_agent
        self.limits = limits
        self.admission = admission
        self.helpers = HelperPool(start_helper, limits)
        self._starter_of = starter_of
        # The helpers of other owners.
        self._others: dict[Hashable, HelperPool] = {}
        self.workers = Workers(limit=limits.file_threads, idle_seconds=limits.file_thread_idle)
        self.special = SpecialWrites(limit=limits.special_writes)
        self._mounts = Mounts()
        self._mounts.follow_changes()
        self.quick = Quick(self._mounts)
        # The content of a file is read into one block, which is freed once it is sent.
        keep_freed_memory(16 * MIB)

    def connect(
        self, notify: Callable[[fs.MissingChangedEvent], None], *, is_packed: bool = False
    ) -> Files:
        """The files of a new connection; *notify* sends the event of its watch.

        If *is_packed*, answers carry the blocks of files as they are, and not as base64.
        """
        return Files(self, notify, is_packed=is_packed)

    def pool(self, owner: Hashable | None) -> HelperPool:
        """The helpers of *owner*; None is the server's own user."""
        if owner is None:
            return self.helpers
        if owner not in self._others:
            assert self._starter_of is not None
            self._others[owner] = HelperPool(self._starter_of(owner), self.limits)
        return self._others[owner]

    def agent_order(
        self, work: str, request: bytes, sandbox: fs.Sandbox, terms: FileTerms
    ) -> AgentOrder:
        """The order for an agent that sees what *sandbox* allows. Raises RpcError."""
        policy = self.admission.policy(sandbox, is_read=True, floor=terms.floor)
        if policy is None and terms.owner is not None:
            policy = _EVERYTHING
        return AgentOrder(work, request, policy, terms.owner)

    async def start_agent(self, order: AgentOrder) -> StartedAgent:
        """Start an agent. Raises RpcError."""
        assert self._start_agent is not None
        return await self._start_agent(order)

    def discovery_within(
        self, sandbox: SandboxContext | None, terms: FileTerms = NO_TERMS
    ) -> ConfinedDiscovery | None:
        """The scans under *sandbox*; None if nothing is restricted. Raises RpcError."""
        policy = self.admission.policy(sandbox, is_read=True, floor=terms.floor)
        if policy is None and terms.owner is None:
            return None
        runner = Runner(self.workers, width=self.limits.file_threads_each)
        return ConfinedDiscovery(policy or _EVERYTHING, pool=self.pool(terms.owner), runner=runner)

    def stop(self) -> None:
        self.helpers.stop()
        for pool in self._others.values():
            pool.stop()
        self.workers.stop()
        self._mounts.close()


class Files:
    """The files of one connection.

    Calls with large answers wait while the client does not read the answers before them, so that
    requests cannot fill the memory.
    """

    def __init__(
        self,
        service: FileService,
        notify: Callable[[fs.MissingChangedEvent], None],
        *,
        is_packed: bool,
    ) -> None:
        self._service = service
        self._limits = service.limits
        self._quick = service.quick
        self._special = service.special
        self._runner = Runner(
            service.workers, width=service.limits.file_threads_each, rests=service.rests
        )
        self.open_files = OpenFiles(
            self._runner, service.quick, service.limits, is_packed=is_packed
        )
        self.missing = MissingPathsWatch(self._runner, service.limits, notify)

    def within(
        self, sandbox: fs.Sandbox, *, is_read: bool, terms: FileTerms = NO_TERMS
    ) -> FileCalls:
        """The file calls of a request with *sandbox*. Raises RpcError."""
        policy = self._service.admission.policy(sandbox, is_read=is_read, floor=terms.floor)
        if policy is None and terms.owner is None:
            return self
        return ConfinedFiles(
            policy or _EVERYTHING,
            pool=self._service.pool(terms.owner),
            runner=self._runner,
            open_files=self.open_files,
            limits=self._limits,
        )

    def writing_paused(self) -> None:
        self._runner.fall_behind()

    def writing_resumed(self) -> None:
        self._runner.catch_up()

    def close(self) -> None:
        """Close all files and end all waiting; the connection is lost."""
        self._runner.lose()
        self.open_files.close_all()
        self.missing.drop()

    # The file calls.

    def call(self, method: Method[P, R], params: P) -> Awaitable[R | Encoded]:
        operation = OPERATIONS[method.name]
        args = operation.arguments(params, self._limits)
        if self._runner.is_behind and isinstance(operation, BulkOperation):
            return self._runner.later(partial(self.call, method, params))
        follows = operation.follows(params)
        return self._runner.run(operation.perform, args, follows, self._runner.is_lost)

    def read_file(self, params: fs.ReadFileParams) -> Reply[fs.ReadFileResult]:
        path = params.path.native
        if self._runner.is_behind:
            return self._runner.later(partial(self.read_file, params))
        if params.follow_symlinks is not False:
            found = translated(self._quick.read_file, path)
            if found is not None:
                self._runner.answer_now(len(found.parts[1]))
                return found
        return self.call(fs.READ_FILE, params)

    def write_file(self, params: fs.WriteFileParams) -> Reply[Nothing]:
        if params.atomic or params.follow_symlinks is False:
            return self.call(fs.WRITE_FILE, params)
        content = content_of(params.data_base64)
        path = params.path.native
        try:
            done = translated(self._quick.write_file, path, content)
        except SpecialFile as exc:
            return self._special.start(path, content, exc.fd)
        return done or self._write_slowly(path, content)

    async def _write_slowly(self, path: bytes, content: Content) -> Nothing:
        try:
            await self._runner.run(local.write_file, path, content)
        except SpecialFile:
            pass
        else:
            return NOTHING
        return await self._special.start(path, content)

    def get_metadata(self, params: fs.GetMetadataParams) -> Reply[fs.Metadata]:
        if params.attributes:
            return self.call(fs.GET_METADATA, params)
        follows = params.follow_symlinks is not False
        quick = self._quick.get_metadata if follows else self._quick.get_metadata_nofollow
        try:
            found = quick(params.path.native)
        except OSError as exc:
            raise rpc_error(exc) from exc
        return found or self.call(fs.GET_METADATA, params)

    def open(self, params: fs.OpenParams) -> Reply[fs.OpenResult]:
        return self.open_files.open(params)
