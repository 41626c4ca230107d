"""The keeper: a small process beside the server that starts and owns all children.

It runs with GRACE and DESCRIPTORS as its words (see keeper_command.py), in a session of its own,
with one end of a socket pair as descriptor 0. It starts programs, hands their descriptors to the
server, passes signals on, reports exits, and ends every process tree it has ever started when the
server asks for it or vanishes. It is the subreaper of all of them, so that no double fork or new
session escapes; and it is small, so that starting a program costs the same however large the server
has grown. *GRACE* is the time in seconds between SIGTERM and SIGKILL once the server has vanished;
*DESCRIPTORS* is the soft limit of open files that children get, 0 for the server's own. Once the
server has vanished, the keeper reads the output of children, so that they can say their last words
and do not end by SIGPIPE.

It imports the standard library and its own parts only (see keeping/, which also has its messages):
it starts in parallel with the server and must stay small. The parts of the sandbox, of limits and
of facts about exits are loaded when they are first needed. The module is long because one object
knows all programs.
"""

from __future__ import annotations

import os
import select
import sys
import time

from exec_server.process.keeping.c_parts import signal, socket
from exec_server.process.keeping.child_stdio import Stdio
from exec_server.process.keeping.held_outputs import HeldOutputs
from exec_server.process.keeping.keeper_setup import (
    become_subreaper,
    leave_signals_to_server,
    take_socket,
)
from exec_server.process.keeping.kept_descriptors import close_all, descriptors
from exec_server.process.keeping.late_parts import confine, exit_facts, limiting
from exec_server.process.keeping.process_trees import (
    below,
    has_terminal,
    kill_group_of,
    own_children,
    parents_first,
    processes,
    signal_each,
)
from exec_server.process.keeping.program_launch import Entries, fork_exec, launch, posix_spawn
from exec_server.process.keeping.sandbox_watch import SandboxWatch
from exec_server.process.keeping.server_messages import ServerMessages, StartRequest
from exec_server.process.keeping.tree_marks import WHOLE_MARK, MarkedTrees, mark_of, set_mark

# A stand-in for `typing.TYPE_CHECKING`: importing `typing` would cost more than all other imports.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The time limit of the last, forced round; only a child that is stuck in the kernel needs longer.
KILL_SECONDS = 10.0
# The exit status of a command that was not allowed to run; sandbox/model.py has the same.
NOT_RUN = 101


class Keeper(ServerMessages):
    """Starts and ends programs for the server at the other end of *sock*."""

    # How exactly the bytes of output are counted, see process/limiting/.
    output_grain = "exact"

    def __init__(self, sock: socket.socket, poll: select.poll | select.epoll | None = None) -> None:
        super().__init__(sock)
        # The time between SIGTERM and SIGKILL if the server says stop.
        self.stop_grace = 0.0
        # Programs that were started and not reaped, by pid, each with its namespace if it is
        # bubblewrap.
        self._live: dict[int, Any] = {}
        # First processes of namespaces whose bubblewrap has ended, each with the pid of that
        # bubblewrap, its wait status and its namespace.
        self._dying: dict[int, tuple[int, int, Any]] = {}
        # Programs whose start was not reported, so that their exit must not be reported either.
        self._unwanted: set[int] = set()
        # True once everything is being ended.
        self._is_ending = False
        self._outputs = HeldOutputs()
        self._trees = MarkedTrees(self._live.keys())
        # The limits of programs, once there were some.
        self._limiter: Any = None
        # What is found out about the ends of programs, once a start has asked for that.
        self._facts: Any = None
        # The part of a start that is being tried: "cwd", "program", or "" for neither.
        self._failing = ""
        self._poll = poll or select.poll()
        self._sandboxes = SandboxWatch(self._live, self._poll, self.kill_program)
        self._wake, wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)

    def run(self) -> bool:
        """Serve until the server says stop (True) or is gone (False)."""
        self._poll.register(self._sock, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        while True:
            ready = {fd for fd, _ in self._poll.poll(self._wait_milliseconds())}
            if self._sandboxes.walls is not None:
                self._sandboxes.look(ready)
            if self._limiter is not None:
                self._limiter.look()
            if self._wake in ready:
                self._reap()
            if self._sock.fileno() in ready:
                if not self._receive():
                    return False
                if not self._handle_input():
                    return True

    def _wait_milliseconds(self) -> int | None:
        """When the sandboxes and the limits have to be looked at again."""
        walls = self._sandboxes.walls
        if walls is None and self._limiter is None:
            return None
        parts = (each for each in (walls, self._limiter) if each is not None)
        waits = [wait for each in parts if (wait := each.wait_milliseconds) is not None]
        return min(waits, default=None)

    def _handle(self, message: tuple[Any, ...]) -> bool:
        """Act on *message*; False when it says stop."""
        if message[0] == "spawn":
            self._spawn(*message[1:])
            # Many starts may come at once, and an exit should not wait for all of them.
            # `waitpid` is called only when a signal came, because the kernel looks through all
            # children for it.
            if select.select([self._wake], [], [], 0)[0]:
                self._reap()
        elif message[0] == "signal":
            self._signal(*message[1:])
        elif message[0] == "echo":
            self._send(message)
        elif message[0] == "limit":
            if self._limiter is not None:
                self._limiter.reach(*message[1:])
        elif message[0] == "end":
            self._trees.ending.add(message[1:])
            self._trees.kill()
        else:
            self.stop_grace = message[1] if len(message) > 1 else 0.0
            return False
        return True

    def _signal(self, pid: int, signum: int) -> None:
        # This is safe only while the leader is not reaped: afterwards its pid may belong to another
        # process.
        if pid in self._live:
            namespace = self._live[pid]
            if namespace is not None and signum != signal.SIGKILL:
                pid = namespace.group(pid) or pid
            try:
                os.killpg(pid, signum)
            except (ProcessLookupError, PermissionError):
                pass

    # Starting.

    def _spawn(self, token: int, *start: Any) -> None:
        try:
            self._start(token, StartRequest(*start))
        except OSError as exc:
            number = exc.errno or 0
            part = getattr(exc, "part", self._failing)
            self._send(("failed", token, number, os.strerror(number), part))
        except ValueError as exc:
            self._send(("failed", token, 0, str(exc), getattr(exc, "part", "")))

    def _start(self, token: int, asked: StartRequest) -> None:
        stdio = Stdio()
        fds = self._fds.pop(0) if asked.fence is not None and asked.fence[1] else []
        fenced = limited = None
        descriptors.lower()
        self._failing = ""
        try:
            facts = self._wanted_facts() if asked.wants_report else None
            if asked.fence is not None:
                fenced = confine().StartFence(asked.fence, fds, finds_command=facts is not None)
            if asked.limits is not None:
                is_wrapped = fenced is not None and bool(fenced.inherited)
                limited = self._limited(asked.limits, is_wrapped=is_wrapped)
            if fenced is None or fenced.user is None:
                self._failing = "cwd"
                os.chdir(asked.cwd)
                self._failing = ""
            if asked.size is not None:
                stdio.open_terminal(asked.size)
            else:
                stdio.open_pipes(asked.wants_stdin)
            set_mark(asked.mark)
            self._about_to_start()
            self._failing = "program"
            started = time.monotonic_ns()
            pid = launch(asked, stdio, fenced, limited)
            self._failing = ""
            descriptors.restore()
            self._trees.marks[pid] = asked.mark
            self._live[pid] = None if fenced is None else fenced.taken_namespace()
            if limited is not None:
                self._limiter.started(limited, pid, asked.mark, self._live[pid])
            if fenced is not None and fenced.supervisor is not None:
                self._sandboxes.supervisors[fenced.supervisor] = (pid, asked.mark)
            if facts is not None:
                facts.begin(pid, asked.mark, self._live[pid], started)
            self._begin(token, pid, stdio, fenced, limited)
        finally:
            descriptors.restore()
            # Staying in a directory would keep its file system busy.
            os.chdir(b"/")
            stdio.close()
            if limited is not None:
                self._limiter.settled(limited)
            if fenced is not None:
                fenced.close()
            else:
                close_all(fds)

    def _begin(self, token: int, pid: int, stdio: Stdio, fenced: Any, limited: Any) -> None:
        """The program runs: let a guard look at its sandbox, and tell the server."""
        granted = () if limited is None else (limited.granted,)
        try:
            if fenced is not None and self._live[pid] is not None:
                guard = fenced.guarded(self._live[pid], stdio.theirs[2], limited)
                self._sandboxes.guards[guard] = pid
            self._tell_start(token, pid, stdio, *granted)
        except OSError:
            # No guard could be forked, or the kernel bounds how many descriptors may be in flight.
            self._signal(pid, signal.SIGKILL)
            self._unwanted.add(pid)
            raise

    def _limited(self, limits: dict[str, Any], *, is_wrapped: bool) -> Any:
        if self._limiter is None:
            self._limiter = limiting().Limiter(
                self,
                entries=Entries,
                fork_exec=fork_exec,
                posix_spawn=posix_spawn,
                mark_of=mark_of,
            )
        return self._limiter.prepare(limits, is_wrapped=is_wrapped)

    def _wanted_facts(self) -> Any:
        if self._facts is None:
            self._facts = exit_facts().ExitFacts(mark_of, descriptors.kept)
        return self._facts

    def _about_to_start(self) -> None:
        """Everything is ready for a start."""

    def _tell_start(self, token: int, pid: int, stdio: Stdio, *granted: Any) -> None:
        self._send(("spawned", token, pid, len(stdio.ours), *granted), stdio.ours)
        self._outputs.hold(pid, stdio)

    # Ending.

    def _reap(self) -> bool:
        """Collect every child that has ended; False when none is left."""
        try:
            os.read(self._wake, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self._trees.stop_ending()
                return False
            if pid == 0:
                if self._trees.ending:
                    self._trees.kill()
                return True
            mark = self._trees.reaped(pid)
            self._outputs.drop(pid)
            if self._facts is not None:
                self._facts.reaped(pid, status, used)
            if pid in self._live:
                namespace = self._live.pop(pid)
                self._sandboxes.reaped(pid)
                if namespace is None:
                    self._tell_exit(pid, status)
                else:
                    self._end_namespace(pid, status, namespace, mark)
            elif pid in self._dying:
                self._tell_exit(*self._dying.pop(pid))
            elif pid in self._sandboxes.guards:
                self._sandboxes.end_guard(self._sandboxes.guards.pop(pid), status)
            elif pid in self._sandboxes.supervisors:
                self._end_unsupervised(*self._sandboxes.supervisors.pop(pid), status)

    def _end_unsupervised(self, pid: int, mark: int, status: int) -> None:
        """The supervisor of *pid* has ended: by itself, with its program, or it has died."""
        if status:
            self._sandboxes.end_unsupervised(pid)
            if mark:
                self._trees.ending.add((mark, -1))

    def _tell_exit(self, pid: int, status: int, namespace: Any = None) -> None:
        if namespace is not None:
            namespace.close()
        if self._sandboxes.taken_refusal(pid):
            status = NOT_RUN << 8
            if self._facts is not None:
                self._facts.not_run(pid)
        reason = self._sandboxes.taken_reason(pid, status)
        facts = None if self._facts is None else self._facts.taken(pid, is_stopping=self._is_ending)
        held = None if self._limiter is None else self._limiter.exited(pid, status, facts)
        if held is not None:
            facts = held if facts is None else facts | held
        if pid in self._unwanted:
            self._unwanted.discard(pid)
        else:
            self._report_exit(pid, status, reason, facts)

    def _report_exit(
        self, pid: int, status: int, reason: str | None, facts: dict[str, Any] | None
    ) -> None:
        told = (reason, facts) if facts is not None else (reason,) if reason is not None else ()
        self._send(("exited", pid, status, *told))

    def _end_namespace(self, pid: int, status: int, namespace: Any, mark: int) -> None:
        """bubblewrap has ended: make sure that all other processes of its namespace end, too."""
        first = namespace.first()
        # With bubblewrap gone the process is our child, so its pid cannot belong to another
        # process.
        if first is None or not confine().is_child(first):
            if mark:
                # It may have ended before it could say which process is the first one.
                self._trees.ending.add((mark, WHOLE_MARK))
            self._tell_exit(pid, status, namespace)
            return
        has_facts = self._facts is not None and self._facts.waits_for(pid, first)
        signal_each((first,), signal.SIGKILL)
        if namespace.is_empty() and not has_facts:
            # The first process only removes its mounts now; no one has to wait for that.
            self._tell_exit(pid, status, namespace)
        else:
            self._dying[first] = (pid, status, namespace)

    # What the limits need.

    def kill_program(self, pid: int) -> None:
        """Kill the program that *pid* leads, with its group."""
        self._signal(pid, signal.SIGKILL)

    def end_mark(self, mark: int) -> None:
        """Kill all processes with *mark*, also those that come later."""
        if mark:
            self._trees.ending.add((mark, -1))
            self._trees.kill()

    def orphans(self) -> set[int]:
        """Our children besides the programs that we have started."""
        return own_children(self._live) - self._live.keys() - self._sandboxes.guards.keys()

    def end_trees(self, *, grace: float, has_server: bool) -> None:
        """End every descendant: politely for *grace* seconds, then by force.

        A server that is still there can end the time of grace with a message.
        """
        # Nothing is ended by its mark any more.
        self._trees.ending.clear()
        self._is_ending = True
        # That message may have come together with the first one.
        if grace > 0 and not (has_server and self._input) and self._reap():
            self._ask_to_end()
            deadline = time.monotonic() + grace
            while self._reap() and (left := deadline - time.monotonic()) > 0:
                if not has_server:
                    self._outputs.drain(self._wake, left)
                elif not self._wait_for_server(left):
                    break
        self._kill_trees()

    def _wait_for_server(self, seconds: float) -> bool:
        """Wait for an exit; False if the server has sent another message."""
        watched: list[Any] = [self._wake, self._sock]
        return self._sock not in select.select(watched, [], [], seconds)[0]

    def _ask_to_end(self) -> None:
        # bubblewrap is left alone: it would take its command with it, which should have its time,
        # too.
        wrapping = {pid for pid, namespace in self._live.items() if namespace is not None}
        table = processes()
        found = below({os.getpid()}, table) - wrapping - self._sandboxes.guards.keys()
        # A shell whose child ends first may have left before it hears of the end itself.
        tree = parents_first(found, table)
        signal_each(tree, signal.SIGTERM)
        # A shell on a terminal ignores SIGTERM.
        signal_each(filter(has_terminal, tree), signal.SIGHUP)
        # A stopped process runs its signal handler only when it continues.
        signal_each(tree, signal.SIGCONT)

    def _kill_trees(self) -> None:
        """Kill our own children until none is left.

        Every process that loses its parent becomes our child, whatever its session, and only we
        reap it. So no pid here can belong to an unrelated process, and no tree grows faster than
        this loop kills.
        """
        killed: set[int] = set()
        deadline = time.monotonic() + KILL_SECONDS
        while self._reap() and time.monotonic() < deadline:
            children = own_children(self._live)
            for pid in children - killed:
                kill_group_of(pid)
            killed = children
            select.select([self._wake], [], [], 0.05)
        if self._limiter is not None:
            self._limiter.close()


def main() -> None:
    grace, of_children = float(sys.argv[1]), int(sys.argv[2])
    leave_signals_to_server()
    descriptors.raise_own(of_children)
    become_subreaper()
    keeper = Keeper(take_socket())
    # Whatever happens here, no process tree is left running.
    has_vanished = False
    try:
        has_vanished = not keeper.run()
    finally:
        keeper.end_trees(
            grace=grace if has_vanished else keeper.stop_grace, has_server=not has_vanished
        )
