"""Start a program in a sandbox: prepared in a thread, then handed to the keeper."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from exec_server.errors import InvalidRequest
from exec_server.process.limiting.asked_limits import control_groups
from exec_server.process.spawn import Launch, OnExit, ProgramStarter, Spawned, SpawnFailed
from exec_server.process.start_terms import NO_TERMS, StartTerms
from exec_server.protocol.sandbox import SandboxContext
from exec_server.sandbox.backends import HERE
from exec_server.sandbox.launch import (
    ConfinedCommand,
    RequestedCommand,
    confine,
    not_built,
    not_run,
    observed,
)
from exec_server.sandbox.model import Access, Backend, Policy, Rule, Unenforceable
from exec_server.sandbox.placeholders import Folder
from exec_server.sandbox.plan import plan
from exec_server.sandbox.policy import resolve, widened
from exec_server.sandbox.user_reach import for_user

if TYPE_CHECKING:
    from exec_server.process.denial_watch import DenialWatch

# The errors by which execve(2) says that a file is no runnable program; others mean that the
# machine is in trouble.
_NOT_A_PROGRAM = frozenset(
    (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
)
_READ_ALL = (Rule(b"/", Access.READ),)


class ConfinedStart:
    """One start of *launch* as *context* and *terms* allow it; *on_exit* is the spawner's.

    *context* may be None if the terms have a floor.

    If the command cannot run inside the sandbox, a process takes its place that says why and ends,
    as clients expect. The start fails if the system refuses to start anything at all, and if the
    program cannot run and the client has asked for reports.
    """

    def __init__(
        self,
        launch: Launch,
        context: SandboxContext | None,
        *,
        is_proxied: bool,
        terms: StartTerms = NO_TERMS,
        is_wanted: Callable[[], bool],
        gate: tuple[int, int] | None = None,
        spawner: ProgramStarter,
        on_exit: OnExit,
        denials: DenialWatch | None = None,
        granted: tuple[tuple[bytes, str], ...] = (),
        learns: bool = False,
    ) -> None:
        """Raises InvalidParams when *context* makes no sense here, and FloorRefused.

        *denials* hears what is refused; *granted* may be used besides what *context* allows. If it
        *learns*, nothing is refused, and *denials* hears what would be.
        """
        policy = _policy(context, terms, launch, is_proxied=is_proxied)
        self._policy = widened(policy, granted) if granted else policy
        self._granted = granted
        self._denials = denials
        self._learns = learns
        self._watching = None if denials is None else denials.watching(granted)
        self._context = context
        self._terms = terms
        self._prefers_landlock = context is not None and context.intent.use_legacy_landlock
        self._launch = launch
        self._gate = gate
        self._script: str | None = None
        self._is_wanted = is_wanted
        self._spawner = spawner
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._spawned: asyncio.Future[Spawned] = self._loop.create_future()
        self.backend: Backend = "none"
        self.refusal: str | None = None

    @property
    def confinement(self) -> Hashable:
        """A key that is equal for starts that are allowed the same."""
        return self._policy, self._prefers_landlock

    def capture(
        self, launch: Launch, on_exit: OnExit, is_wanted: Callable[[], bool]
    ) -> ConfinedStart:
        """A start of *launch* with the same rights, but offline if only a proxy may be reached."""
        # bubblewrap reads the end of file from /dev/null at once, so the command is not held.
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC) if self._policy.is_proxied else None
        start = ConfinedStart(
            launch,
            self._context,
            is_proxied=self._policy.is_proxied,
            terms=self._terms,
            is_wanted=is_wanted,
            gate=(null, null) if null is not None else None,
            spawner=self._spawner,
            on_exit=on_exit,
            granted=self._granted,
        )
        if null is not None:
            start._spawned.add_done_callback(lambda _: os.close(null))
        return start

    def restored(self, launch: Launch, script: str | None) -> ConfinedStart:
        """This start with *launch* in place of its own command, and the same rights.

        *script* is a file that the command reads at `SCRIPT_PATH`.
        """
        self._launch = launch
        self._script = script
        return self

    def begin(self) -> asyncio.Future[Spawned]:
        if self._is_quickly_prepared():
            try:
                self._start(self._prepared(), self._on_spawned)
            except SpawnFailed as exc:
                self._fail(exc)
        else:
            # Looking at the file system may take long, so it is not done in the event loop.
            prepared = self._loop.run_in_executor(None, self._prepared)
            prepared.add_done_callback(self._on_prepared)
        return self._spawned

    def _is_quickly_prepared(self) -> bool:
        """True if no backend has to be tried out and no possibly slow file system be asked."""
        if not self._policy.is_managed:
            return HERE.is_known("seccomp")
        is_landlock = self._prefers_landlock and HERE.is_known("landlock")
        return is_landlock and not self._policy.globs and self._policy.rules == _READ_ALL

    def _prepared(self) -> ConfinedCommand:
        try:
            account = self._terms.account
            kept = control_groups() if self._launch.limits else ()
            planned = plan(self._policy, read_only=kept)
            if account is not None:
                planned = for_user(planned, account.uid, account.groups)
            if self._learns:
                return observed(self._command(), planned, self._watching)
            return confine(
                self._command(),
                planned,
                prefers_landlock=self._prefers_landlock,
                folder=Folder(is_shared=account is not None),
                watching=self._watching,
            )
        except Unenforceable as exc:
            return not_built(exc)
        except OSError as exc:
            raise SpawnFailed(exc.errno or 0, os.strerror(exc.errno or 0)) from exc

    def _command(self) -> RequestedCommand:
        launch = self._launch
        is_tty = launch.size is not None
        return RequestedCommand(
            launch.program,
            launch.argv,
            launch.env,
            launch.cwd,
            is_tty,
            script=self._script,
            is_looked_at=self._terms.account is None,
            gate=self._gate,
            memory_files=_memory_files(launch.limits),
        )

    @property
    def _is_reported(self) -> bool:
        return bool(self._launch.settings and self._launch.settings.get("reports"))

    def _on_prepared(self, prepared: asyncio.Future[ConfinedCommand]) -> None:
        if prepared.cancelled():
            self._spawned.cancel()
        elif (error := prepared.exception()) is not None:
            self._fail(error)
        elif self._spawned.cancelled() or not self._is_wanted():
            # A keeper must not be started for this if the server has stopped meanwhile.
            prepared.result().discard()
            self._fail(InvalidRequest("the start was cancelled"))
        else:
            self._start(prepared.result(), self._on_spawned)

    def _start(
        self, confined: ConfinedCommand, then: Callable[[asyncio.Future[Spawned]], None]
    ) -> None:
        if confined.obstacle is not None and self._is_reported:
            # It may be the program or its directory; the client finds that out.
            text = f"{os.strerror(confined.obstacle)} in the sandbox"
            self._fail(SpawnFailed(confined.obstacle, text))
            return
        self.backend, self.refusal = confined.backend, confined.refusal
        if self._denials is not None:
            self._denials.started(confined.why_unwatched)
        account = self._terms.account
        launch = self._launch._replace(
            program=confined.program,
            argv=confined.argv,
            env=confined.env,
            fence=confined.fence if account is None else account.around(confined.fence),
            fds=confined.fds,
        )
        try:
            spawned = self._spawner.spawn(launch, self._on_exit)
        except SpawnFailed as exc:
            self._fail(exc)
            return
        spawned.add_done_callback(then)
        # If the caller has given up, the process is not wanted either; the spawner ends it.
        self._spawned.add_done_callback(lambda mine: spawned.cancel() if mine.cancelled() else None)

    def _on_spawned(self, spawned: asyncio.Future[Spawned]) -> None:
        error = None if spawned.cancelled() else spawned.exception()
        is_program = isinstance(error, SpawnFailed) and error.number in _NOT_A_PROGRAM
        if isinstance(error, SpawnFailed) and is_program and not self._is_reported:
            self._start(not_run(self._command(), error.number), self._settle)
        else:
            self._settle(spawned)

    def _settle(self, spawned: asyncio.Future[Spawned]) -> None:
        if spawned.cancelled():
            self._spawned.cancel()
        elif (error := spawned.exception()) is not None:
            self._fail(error)
        else:
            self._spawned.set_result(spawned.result())

    def _fail(self, error: BaseException) -> None:
        if self._denials is not None:
            self._denials.started(str(error))
        if not self._spawned.done():
            self._spawned.set_exception(error)


def _memory_files(limits: dict[str, Any] | None) -> int | None:
    """How much the files in memory of a command may take: both of these limits are for them."""
    found = [int(limits[name]) for name in ("memory", "disk") if limits and name in limits]
    return min(found, default=None)


def _policy(
    context: SandboxContext | None, terms: StartTerms, launch: Launch, *, is_proxied: bool
) -> Policy:
    cwd, tmpdir = launch.cwd, launch.env.get(b"TMPDIR")
    if terms.floor is not None:
        return terms.floor.for_process(context, cwd=cwd, tmpdir=tmpdir, is_proxied=is_proxied)
    assert context is not None
    return resolve(context, for_process=True, cwd=cwd, tmpdir=tmpdir, is_proxied=is_proxied)
