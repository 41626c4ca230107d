"""The keeper: a small process beside the server that starts and owns all children.

Run as ``python -I -S keeper.py GRACE DESCRIPTORS`` in a session of its own, with one end of a
socket pair as descriptor 0. It starts programs, hands their descriptors to the server, passes
signals on, reports exits, and ends every process tree it has ever started when the server asks
for it or vanishes. It is the subreaper of all of them, so that no double fork or new session
escapes; and it is small, so that starting a program costs the same however large the server has
grown. *GRACE* is the time in seconds between SIGTERM and SIGKILL once the server has vanished;
*DESCRIPTORS* is the soft limit of open files that children get, 0 for the server's own. Once the
server has vanished, the keeper reads the output of children, so that they can say their last words
and do not end by SIGPIPE.

It imports the standard library only: it starts in parallel with the server and must stay small.
It is long because it is one file: `python -I -S` has no package to import a second one from, and
whatever is loaded by its path instead makes every start of a server slower. Only the parts of the
sandbox, of limits and of facts about exits are loaded in that way, when they are first needed.

Messages are a length (4 bytes, big endian) and a marshalled tuple; both ends run the same
interpreter. To the keeper::

    ("spawn", token, program, argv, env, cwd, size, wants_stdin, fence, mark, settings)
                                   size: (rows, cols) or None; wants_stdin: True for a pipe,
                                   "socket" for one that keeps packets apart; fence, mark: see below
                                   settings: a dict or None; "reports" asks for facts at the exit;
                                   "limits": see below
    ("signal", pid, signum)        to the group that pid leads
    ("echo",)                      answered by the same, once all messages before it are done
    ("limit", pid, name)           the program that pid leads has reached this limit: kill its tree
    ("end", mark, mask)            kill every process whose mark equals this one where mask has bits
    ("stop", grace)                end everything: by SIGTERM, and SIGHUP on a terminal; after grace
                                   seconds, or when another message comes, by SIGKILL

A mark is a number that tells to which start a process belongs, however often it has forked and
whatever session it is in. It is a soft limit that children inherit and that limits nothing: so many
microseconds of real-time scheduling (RLIMIT_RTTIME) take longer than the machine lives. A program
could change its own limit on purpose; it then lives on until the keeper ends.

A fence confines the program (see sandbox/in_keeper.py, which is loaded when there is one). It says
first what it is and how many descriptors are attached to the message's first byte::

    None
    ("as", count, (uid, gid, groups), fence)           the program runs as this user, and behind
                                   the inner fence, if there is one; see sandbox/as_user.py
    ("confine", count, drops_capabilities, filter)     one descriptor at most: a Landlock ruleset
    ("bubblewrap", count, inherited, markers, expected, has_gate)
                                   program is bubblewrap; it inherits so many descriptors as 3 and
                                   up, then one to report on and one to read from before it runs
                                   the command; the next descriptor, if has_gate, is read from
                                   before that, too; the other descriptors are locks on these
                                   markers of placeholders; expected: see sandbox/guard.py

If a supervisor has to record what is refused, a last word has its orders, and a first descriptor is
its socket to the server (see sandbox/supervisor). If it dies, its program is killed.

A command in bubblewrap runs once a guard, which is a child of the keeper, has found the expected
mounts. If it does not find them, the exit status is NOT_RUN. A signal to a program in bubblewrap is
for the command inside. Its exit is reported once all processes inside are gone, and so is
everything that was made for them on the host. While it runs its mounts are watched, and it is
killed when a program outside has taken one away (see sandbox/wall_watch.py).

Limits are None or a dict of what the program and its descendants may use, by the names of
protocol/resources.py; `require` refuses the start if they cannot be held, and `ours` are processes
of the server, which may be moved to another control group. process/limiting/ has the rest.

From the keeper, with descriptors attached to the first byte::

    ("spawned", token, pid, fds, granted)
                                   fds: how many follow: stdout, stderr[, stdin]; or the
                                   terminal twice, to read from and to write to; granted: what
                                   became of each limit, if there are any
    ("failed", token, errno, text, part)   part: "cwd", "program" or "limits", or "" for none
    ("exited", pid, status, why, facts)    status as waitpid(2) gives it; why the keeper has killed
                                   the program, if it has; and what is known of its end (see
                                   exit_facts.py and process/limiting): both are left out if there
                                   is nothing to say
"""

from __future__ import annotations

import errno
import fcntl
import marshal
import os
import resource
import select
import struct
import sys
import termios
import time

# A stand-in for `typing.TYPE_CHECKING`: importing `typing` would cost more than all other imports.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Iterable
    from typing import Any
else:
    # The parts in C of `signal` and `socket`. The rest of these modules turns numbers into
    # enumerations, which takes longer than all other imports together.
    try:
        import _signal as signal
        import _socket as socket
    except ImportError:
        import signal
        import socket

DEFAULT_PATH = b"/bin:/usr/bin"
ALL_SIGNALS = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})
PR_SET_CHILD_SUBREAPER = 36
# The time limit of the last, forced round; only a child that is stuck in the kernel needs longer.
KILL_SECONDS = 10.0
# The exit status of a command that was not allowed to run; sandbox/model.py has the same.
NOT_RUN = 101
# The exit status of a guard that found something else than expected; see sandbox/guard.py.
GUARD_REFUSED = 2
# Why a program ends whose supervisor has died; every call that it makes fails from then on.
UNSUPERVISED = "exec-server: the supervisor of the sandbox died, so the command was ended"
# All bits of a mark.
WHOLE_MARK = (1 << 63) - 1
# The most descriptors that one message can bring, by the kernel's own limit.
MAX_FDS = 253
# Descriptors are kept from here on, or from the limit of children on if that is lower. The kernel's
# table of descriptors is as long as the highest one, and it is copied with every start: from 16,384
# on, that takes 45 microseconds.
KEPT_FROM = 1024
# So many descriptors are left for starts; none is kept at their cost.
LEFT_FOR_STARTS = 64
# More than this is allocated by mmap(2), which takes longer than to receive a usual message.
RECV_BYTES = 1 << 16
FD = struct.Struct("i")
# The flag is absent on some systems. (`socket.recv_fds` of 3.11 does not pass it on.)
CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Keeper:
    """Starts and ends programs for the server at the other end of *sock*."""

    # How exactly the bytes of output are counted, see process/limiting/.
    output_grain = "exact"

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
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
        # The guards that run, each with the pid of its bubblewrap; and the bubblewraps whose guard
        # did not let the command run.
        self._guards: dict[int, int] = {}
        self._refused: set[int] = set()
        # The supervisors that run, each with the pid and the mark of its program.
        self._supervisors: dict[int, tuple[int, int]] = {}
        # True once everything is being ended.
        self._is_ending = False
        # The read ends of the outputs of live programs, by pid.
        self._outputs: dict[int, list[int]] = {}
        # The watch over the mounts of sandboxes that run, once there was one; and why programs were
        # killed because of it.
        self._walls: Any = None
        self._reasons: dict[int, str] = {}
        # The limits of programs, once there were some.
        self._limiter: Any = None
        # What is found out about the ends of programs, once a start has asked for that.
        self._facts: Any = None
        # The marks of live programs, by pid.
        self._marks: dict[int, int] = {}
        # The marks that are being ended, each with its mask; and descendants of what was killed for
        # that, which end as well, although they may have another mark.
        self._ending: set[tuple[int, int]] = set()
        self._doomed: set[int] = set()
        # The part of a start that is being tried: "cwd", "program", or "" for neither.
        self._failing = ""
        self._input = bytearray()
        # The descriptors of each "spawn" that was begun and not yet handled.
        self._fds: list[list[int]] = []
        self._poll: select.poll | select.epoll = select.poll()
        self._wake, wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)

    def run(self) -> bool:
        """Serve until the server says stop (True) or is gone (False)."""
        self._poll.register(self._sock, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        while True:
            ready = {fd for fd, _ in self._poll.poll(self._wait_milliseconds())}
            if self._walls is not None:
                self._end_unwalled(self._walls.lost(ready))
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
        if self._walls is None and self._limiter is None:
            return None
        parts = (each for each in (self._walls, self._limiter) if each is not None)
        waits = [wait for each in parts if (wait := each.wait_milliseconds) is not None]
        return min(waits, default=None)

    def _receive(self) -> bool:
        """Receive what has arrived; False when the server is gone."""
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(
                RECV_BYTES, socket.CMSG_SPACE(MAX_FDS * FD.size), CLOEXEC
            )
        except ConnectionError:
            return False
        # The kernel never joins messages that carry descriptors.
        if ancillary or flags & socket.MSG_CTRUNC:
            self._fds.append([fd for *_, raw in ancillary for (fd,) in FD.iter_unpack(raw)])
        self._input += data
        return bool(data)

    def _handle_input(self) -> bool:
        """Act on every whole message; False when one of them says stop."""
        while len(self._input) >= 4:
            end = 4 + int.from_bytes(self._input[:4], "big")
            if len(self._input) < end:
                break
            message = marshal.loads(self._input[4:end])
            del self._input[:end]
            if not self._handle(message):
                return False
        return True

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
            self._ending.add(message[1:])
            self._kill_marked()
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

    def _send(self, message: tuple[Any, ...], fds: list[int] | None = None) -> None:
        data = marshal.dumps(message)
        data = len(data).to_bytes(4, "big") + data
        try:
            # This is `socket.send_fds`, which the part in C does not have.
            rights = b"".join(map(FD.pack, fds or ()))
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if rights else []
            sent = self._sock.sendmsg([data], ancillary)
            if sent < len(data):
                self._sock.sendall(data[sent:])
        except ConnectionError:
            # The server is gone; the next receive says so.
            pass

    # Starting.

    def _spawn(self, token: int, *start: Any) -> None:
        try:
            self._start(token, *start)
        except OSError as exc:
            number = exc.errno or 0
            part = getattr(exc, "part", self._failing)
            self._send(("failed", token, number, os.strerror(number), part))
        except ValueError as exc:
            self._send(("failed", token, 0, str(exc), getattr(exc, "part", "")))

    def _start(
        self,
        token: int,
        program: bytes,
        argv: list[bytes],
        env: dict[bytes, bytes],
        cwd: bytes,
        size: tuple[int, int] | None,
        wants_stdin: bool | str,
        fence: tuple[Any, ...] | None = None,
        mark: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        stdio = Stdio()
        fds = self._fds.pop(0) if fence is not None and fence[1] else []
        fenced = limited = None
        descriptors.lower()
        self._failing = ""
        try:
            if settings is not None and settings.get("reports"):
                facts = self._facts = self._facts or self._new_facts()
            else:
                facts = None
            if fence is not None:
                fenced = confine().StartFence(fence, fds, finds_command=facts is not None)
            limits = None if settings is None else settings.get("limits")
            if limits is not None:
                is_wrapped = fenced is not None and bool(fenced.inherited)
                limited = self._limited(limits, is_wrapped=is_wrapped)
            if fenced is None or fenced.user is None:
                self._failing = "cwd"
                os.chdir(cwd)
                self._failing = ""
            if size is not None:
                stdio.open_terminal(size)
            else:
                stdio.open_pipes(wants_stdin)
            _set_mark(mark)
            self._about_to_start()
            self._failing = "program"
            started = time.monotonic_ns()
            pid = _launch(program, argv, env, cwd, stdio, fenced, limited)
            self._failing = ""
            descriptors.restore()
            self._marks[pid] = mark
            self._live[pid] = None if fenced is None else fenced.taken_namespace()
            granted = () if limited is None else (limited.granted,)
            if limited is not None:
                self._limiter.started(limited, pid, mark, self._live[pid])
            if fenced is not None and fenced.supervisor is not None:
                self._supervisors[fenced.supervisor] = (pid, mark)
            if facts is not None:
                facts.begin(pid, mark, self._live[pid], started)
            try:
                if fenced is not None and self._live[pid] is not None:
                    guard = fenced.guarded(self._live[pid], stdio.theirs[2], limited)
                    self._guards[guard] = pid
                self._tell_start(token, pid, stdio, *granted)
            except OSError:
                # No guard could be forked, or the kernel bounds how many descriptors may be in
                # flight.
                self._signal(pid, signal.SIGKILL)
                self._unwanted.add(pid)
                raise
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

    def _limited(self, limits: dict[str, Any], *, is_wrapped: bool) -> Any:
        if self._limiter is None:
            self._limiter = limiting().Limiter(
                self,
                entries=Entries,
                fork_exec=_fork_exec,
                posix_spawn=_posix_spawn,
                mark_of=mark_of,
            )
        return self._limiter.prepare(limits, is_wrapped=is_wrapped)

    def _new_facts(self) -> Any:
        return exit_facts().ExitFacts(mark_of, descriptors.kept)

    def _about_to_start(self) -> None:
        """Everything is ready for a start."""

    def _tell_start(self, token: int, pid: int, stdio: Stdio, *granted: Any) -> None:
        self._send(("spawned", token, pid, len(stdio.ours), *granted), stdio.ours)
        try:
            self._outputs[pid] = stdio.keep_outputs()
        except OSError:
            # So many programs run that this one has to do without.
            pass

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
                self._ending.clear()
                self._doomed.clear()
                return False
            if pid == 0:
                if self._ending:
                    self._kill_marked()
                return True
            mark = self._marks.pop(pid, 0)
            self._doomed.discard(pid)
            close_all(self._outputs.pop(pid, ()))
            if self._facts is not None:
                self._facts.reaped(pid, status, used)
            if pid in self._live:
                namespace = self._live.pop(pid)
                if self._walls is not None:
                    self._walls.remove(pid)
                # A guard that still waits would hold the output open.
                guards = [guard for guard, guarded in self._guards.items() if guarded == pid]
                signal_each(guards, signal.SIGKILL)
                if namespace is None:
                    self._tell_exit(pid, status)
                else:
                    self._end_namespace(pid, status, namespace, mark)
            elif pid in self._dying:
                self._tell_exit(*self._dying.pop(pid))
            elif pid in self._guards:
                self._end_guard(self._guards.pop(pid), status)
            elif pid in self._supervisors:
                self._end_unsupervised(*self._supervisors.pop(pid), status)

    def _end_guard(self, pid: int, status: int) -> None:
        """The guard of *pid* has ended; if the command was not allowed to run, end its sandbox."""
        if pid not in self._live:
            return
        if not status:
            self._watch_walls(pid)
            return
        if os.waitstatus_to_exitcode(status) == GUARD_REFUSED:
            self._refused.add(pid)
        self._signal(pid, signal.SIGKILL)

    def _watch_walls(self, pid: int) -> None:
        """Watch the mounts of the sandbox of *pid*, whose command runs now."""
        if self._walls is None:
            self._walls = confine().wall_watch(self._poll)
        try:
            reason = self._live[pid].watched_by(self._walls, pid)
        except OSError as exc:
            reason = self._walls.unwatched(exc)
        if reason is not None:
            self._end_unwalled([(pid, reason)])

    def _end_unwalled(self, lost: list[tuple[int, str]]) -> None:
        """Kill the programs whose sandboxes have lost a mount, each with its reason."""
        for pid, reason in lost:
            if pid in self._live and pid not in self._reasons:
                self._reasons[pid] = reason
                self._signal(pid, signal.SIGKILL)

    def _end_unsupervised(self, pid: int, mark: int, status: int) -> None:
        """The supervisor of *pid* has ended: by itself, with its program, or it has died."""
        if status:
            self._end_unwalled([(pid, UNSUPERVISED)])
            if mark:
                self._ending.add((mark, -1))

    def _tell_exit(self, pid: int, status: int, namespace: Any = None) -> None:
        if namespace is not None:
            namespace.close()
        if pid in self._refused:
            self._refused.discard(pid)
            status = NOT_RUN << 8
            if self._facts is not None:
                self._facts.not_run(pid)
        # It may have ended by itself a moment before.
        reason = self._reasons.pop(pid, None) if os.WIFSIGNALED(status) else None
        self._reasons.pop(pid, None)
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
                self._ending.add((mark, WHOLE_MARK))
            self._tell_exit(pid, status, namespace)
            return
        has_facts = self._facts is not None and self._facts.waits_for(pid, first)
        signal_each((first,), signal.SIGKILL)
        if namespace.is_empty() and not has_facts:
            # The first process only removes its mounts now; no one has to wait for that.
            self._tell_exit(pid, status, namespace)
        else:
            self._dying[first] = (pid, status, namespace)

    def _kill_marked(self) -> None:
        """Kill every child of ours with a mark that is being ended.

        When a process dies its children become ours, with the same mark, and `_reap` comes back
        here. A mark is done once no child of ours has it.
        """
        found: set[tuple[int, int]] = set()
        ended: list[int] = []
        for pid in self._children():
            mark = self._marks[pid] if pid in self._marks else mark_of(pid)
            matching = {end for end in self._ending if mark & end[1] == end[0]}
            found |= matching
            if matching or (pid in self._doomed and pid not in self._live):
                ended.append(pid)
        # The table takes long to read where there are many processes.
        if orphans := set(ended) - self._live.keys():
            self._doomed |= below(orphans, processes())
        for pid in ended:
            _kill_group_of(pid)
        self._ending &= found
        if not self._ending:
            self._doomed.clear()

    # What the limits need.

    def kill_program(self, pid: int) -> None:
        """Kill the program that *pid* leads, with its group."""
        self._signal(pid, signal.SIGKILL)

    def end_mark(self, mark: int) -> None:
        """Kill all processes with *mark*, also those that come later."""
        if mark:
            self._ending.add((mark, -1))
            self._kill_marked()

    def orphans(self) -> set[int]:
        """Our children besides the programs that we have started."""
        return self._children() - self._live.keys() - self._guards.keys()

    def end_trees(self, *, grace: float, has_server: bool) -> None:
        """End every descendant: politely for *grace* seconds, then by force.

        A server that is still there can end the time of grace with a message.
        """
        # Nothing is ended by its mark any more.
        self._ending.clear()
        self._is_ending = True
        # That message may have come together with the first one.
        if grace > 0 and not (has_server and self._input) and self._reap():
            self._ask_to_end()
            deadline = time.monotonic() + grace
            while self._reap() and (left := deadline - time.monotonic()) > 0:
                if not (self._wait_for_server(left) if has_server else self._drain(left)):
                    break
        self._kill_trees()

    def _wait_for_server(self, seconds: float) -> bool:
        """Wait for an exit; False if the server has sent another message."""
        watched: list[Any] = [self._wake, self._sock]
        return self._sock not in select.select(watched, [], [], seconds)[0]

    def _drain(self, seconds: float) -> bool:
        """Wait for an exit, and discard output meanwhile, so that no child waits for a reader."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for fd in (fd for fds in self._outputs.values() for fd in fds):
            poll.register(fd, select.POLLIN)
        for fd, events in poll.poll(seconds * 1000):
            if fd == self._wake:
                continue
            if not events & select.POLLIN or not _discard(fd):
                # This output has ended; the program may go on without it.
                self._forget_output(fd)
        return True

    def _forget_output(self, fd: int) -> None:
        for fds in self._outputs.values():
            if fd in fds:
                fds.remove(fd)
                os.close(fd)

    def _ask_to_end(self) -> None:
        # bubblewrap is left alone: it would take its command with it, which should have its time,
        # too.
        wrapping = {pid for pid, namespace in self._live.items() if namespace is not None}
        tree = below({os.getpid()}, processes()) - wrapping - self._guards.keys()
        signal_each(tree, signal.SIGTERM)
        # A shell on a terminal ignores SIGTERM.
        signal_each(filter(_has_terminal, tree), signal.SIGHUP)
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
            children = self._children()
            for pid in children - killed:
                _kill_group_of(pid)
            killed = children
            select.select([self._wake], [], [], 0.05)
        if self._limiter is not None:
            self._limiter.close()

    def _children(self) -> set[int]:
        try:
            with open("/proc/thread-self/children", "rb") as file:
                return {int(pid) for pid in file.read().split()}
        except FileNotFoundError:
            return below({os.getpid()}, processes()) or set(self._live)


class Stdio:
    """The descriptors of one program: its own three, and our ends of them."""

    def __init__(self) -> None:
        self.ours: list[int] = []
        # The program's stdin (None for /dev/null), stdout and stderr.
        self.theirs: tuple[int | None, int, int] = (None, 1, 2)
        self.terminal: str | None = None
        self._opened: list[int] = []

    def open_pipes(self, wants_stdin: bool | str) -> None:
        out_reader, out_writer = self._pipe()
        err_reader, err_writer = self._pipe()
        self.ours = [out_reader, err_reader]
        self.theirs = (None, out_writer, err_writer)
        if wants_stdin:
            in_reader, in_writer = self._packets() if wants_stdin == "socket" else self._pipe()
            self.ours.append(in_writer)
            self.theirs = (in_reader, out_writer, err_writer)

    def open_terminal(self, size: tuple[int, int]) -> None:
        master, slave = os.openpty()
        self._opened += (master, slave)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.terminal = os.ttyname(slave)
        self.ours = [master, master]
        self.theirs = (slave, slave, slave)

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._opened += ends
        return ends

    def _packets(self) -> tuple[int, int]:
        theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ends = theirs.detach(), ours.detach()
        self._opened += ends
        return ends

    def keep_outputs(self) -> list[int]:
        """Our ends of the outputs once more, for the caller, who has to close them."""
        kept: list[int] = []
        try:
            kept.extend(map(descriptors.kept, self.ours[: 2 if self.terminal is None else 1]))
        except OSError:
            close_all(kept)
            raise
        return kept

    def close(self) -> None:
        close_all(self._opened)


def _launch(
    program: bytes,
    argv: list[bytes],
    env: dict[bytes, bytes],
    cwd: bytes,
    stdio: Stdio,
    fenced: Any,
    limited: Any,
) -> int:
    """Start the program, behind its fence if it has one, and within its limits."""
    pid: int
    if fenced is None:
        return _launch_first(program, argv, env, stdio, _launcher(argv, env, limited))
    if fenced.user is not None:
        pid = fenced.start_as_user(
            cwd,
            stdio,
            lambda: _launch_first(program, argv, env, stdio, _exec),
            ALL_SIGNALS,
            limited,
        )
        return pid
    if fenced.inherited:
        spawn = lambda: _posix_spawn(program, argv, env, stdio, fenced.inherited)  # noqa: E731
        pid = fenced.start_bubblewrap(spawn, program, argv, env, stdio.theirs)
        return pid
    terminal = stdio.theirs[0] if stdio.terminal is not None else None
    launch = _launcher(argv, env, limited)
    pid = fenced.start(lambda: _launch_first(program, argv, env, stdio, launch), terminal)
    return pid


def _launcher(argv: list[bytes], env: dict[bytes, bytes], limited: Any) -> Any:
    """The function that starts a program: within its limits, or the fastest one that can."""
    if limited is not None:
        return limited.spawn
    # Python's posix_spawn refuses some arguments that execve(2) takes.
    return _posix_spawn if argv[0] and b"" not in env else _fork_exec


def _launch_first(
    program: bytes, argv: list[bytes], env: dict[bytes, bytes], stdio: Stdio, launch: Any
) -> int:
    """Start the first candidate that runs, with *launch*; the errors are those of execvp(3)."""
    denied = False
    for candidate in _candidates(program, env.get(b"PATH", DEFAULT_PATH)):
        try:
            pid: int = launch(candidate, argv, env, stdio)
            return pid
        except PermissionError:
            denied = True
        except (FileNotFoundError, NotADirectoryError):
            if b"/" in program:
                raise
    raise OSError(errno.EACCES if denied else errno.ENOENT, "")


def _candidates(program: bytes, path: bytes) -> list[bytes]:
    if b"/" in program:
        return [program]
    found = (os.path.join(folder or b".", program) for folder in path.split(b":"))
    return [file for file in found if program and os.path.isfile(file)]


def _posix_spawn(
    program: bytes,
    argv: list[bytes],
    env: dict[bytes, bytes],
    stdio: Stdio,
    inherited: tuple[int, ...] = (),
) -> int:
    """Start *program* with *inherited* as its descriptors from 3 on."""
    stdin, stdout, stderr = stdio.theirs
    actions: list[tuple[Any, ...]]
    if stdio.terminal is not None:
        # The first terminal that a session leader opens becomes its controlling terminal; in
        # bubblewrap the command opens it itself.
        flags = os.O_RDWR | (os.O_NOCTTY if inherited else 0)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, stdio.terminal, flags, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]
    else:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
            if stdin is None
            else (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ]
    actions += [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(inherited, 3)]
    return os.posix_spawn(
        program,
        argv,
        _environ(env),
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=ALL_SIGNALS,
    )


def _environ(env: dict[bytes, bytes]) -> Any:
    # Only names with a '=' in them need the slower mapping, and they are rare.
    has_odd_names = any(b"=" in name for name in env)
    return Entries(env, search_from=1) if has_odd_names else env


def _exec(program: bytes, argv: list[bytes], env: dict[bytes, bytes], stdio: Stdio) -> int:
    """Become *program*."""
    os.execve(program, argv, _environ(env))


def _fork_exec(
    program: bytes, argv: list[bytes], env: dict[bytes, bytes], stdio: Stdio, limit: Any = None
) -> int:
    """Start a program the slow way, for an empty argv[0] or a variable without a name.

    The new process calls *limit*, if there is one, before it becomes the program.
    """
    import subprocess

    def prepare() -> None:
        for signum in ALL_SIGNALS:
            signal.signal(signum, signal.SIG_DFL)
        if stdio.terminal is not None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if limit is not None:
            limit()

    stdin, stdout, stderr = stdio.theirs
    environ: Any = Entries(env, search_from=0)
    process = subprocess.Popen(
        argv,
        executable=program,
        env=environ,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=prepare,
    )
    # We reap the process ourselves; without this the object would do it when it is collected.
    process.returncode = 0
    return process.pid


class Descriptors:
    """The limits of open files: children get their own; this process has as many as it may.

    The kernel gives a new process the limits of its parent, so the limit of children holds while
    one is started. Descriptors that are kept for longer are above it, and take no room there.
    """

    def __init__(self) -> None:
        self._own = self._of_children = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._lowest = 3

    def raise_own(self, of_children: int) -> None:
        """Children get *of_children* as their soft limit, or what this process has for 0."""
        soft, hard = self._own
        self._of_children = (of_children or soft, hard)
        self._own = (hard, hard)
        if self._of_children != self._own:
            self._lowest = min(self._of_children[0], KEPT_FROM)
        resource.setrlimit(resource.RLIMIT_NOFILE, self._own)

    def lower(self) -> None:
        if self._of_children != self._own:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._of_children)

    def restore(self) -> None:
        if self._of_children != self._own:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._own)

    def kept(self, fd: int) -> int:
        """A duplicate of *fd* that is kept for longer than a start."""
        kept = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, self._lowest)
        if kept < self._own[0] - LEFT_FOR_STARTS:
            return kept
        os.close(kept)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


descriptors = Descriptors()


class Entries:
    """An environment whose names may contain a '=', as the same NAME=VALUE entries.

    Each entry is split at its first '=' from *search_from* on. It only looks like a mapping: one
    name may come twice, as in ``{"A": "1", "A=B": "2"}``.
    """

    def __init__(self, env: dict[bytes, bytes], *, search_from: int) -> None:
        self._pairs: list[tuple[bytes, bytes]] = []
        for name, value in env.items():
            entry = b"%b=%b" % (name, value)
            at = entry.index(b"=", search_from)
            self._pairs.append((entry[:at], entry[at + 1 :]))

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, name: bytes) -> bytes:
        return dict(self._pairs)[name]

    def keys(self) -> list[bytes]:
        return [name for name, _ in self._pairs]

    def values(self) -> list[bytes]:
        return [value for _, value in self._pairs]

    def items(self) -> list[tuple[bytes, bytes]]:
        return self._pairs


def _discard(fd: int) -> bool:
    """Read once; False at the end of the output."""
    try:
        return bool(os.read(fd, 1 << 16))
    except OSError:
        # Linux reports EIO once the last holder of a terminal has closed it.
        return False


def _kill_group_of(pid: int) -> None:
    """Kill a child of ours and its group, whose members are all descendants of ours."""
    try:
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    signal_each((pid,), signal.SIGKILL)


def _set_mark(mark: int) -> None:
    """Give *mark* to the programs that are started from now on."""
    if mark and hasattr(resource, "RLIMIT_RTTIME"):
        _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
        if hard == resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_RTTIME, (mark, hard))


def mark_of(pid: int) -> int:
    """The mark of a process; 0 if it has none or is gone."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            text = file.read()
    except OSError:
        return 0
    words = text.partition(b"Max realtime timeout")[2].split(maxsplit=1)
    return int(words[0]) if words and words[0].isdigit() else 0


def close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


_loaded: dict[str, Any] = {}


def confine() -> Any:
    """sandbox/in_keeper.py, which confines programs."""
    return load_part("sandbox", "in_keeper.py")


def limiting() -> Any:
    """process/limiting/limiter.py, which holds limits."""
    return load_part("process/limiting", "limiter.py")


def exit_facts() -> Any:
    """process/exit_facts.py, which finds out how programs end."""
    return load_part("process", "exit_facts.py")


def load_part(folder: str, file: str) -> Any:
    """Load *file*, once, by its path: there is no package to import it from."""
    assert file in ("exit_facts.py", "in_keeper.py", "limiter.py")
    if file not in _loaded:
        from importlib.util import module_from_spec, spec_from_file_location

        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        spec = spec_from_file_location(file.removesuffix(".py"), os.path.join(here, folder, file))
        assert spec is not None and spec.loader is not None
        _loaded[file] = module_from_spec(spec)
        spec.loader.exec_module(_loaded[file])
    return _loaded[file]


def signal_each(pids: Iterable[int], signum: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue


def processes() -> dict[int, tuple[int, int]]:
    """The parent and the session of every process, from /proc; empty where there is none."""
    found: dict[int, tuple[int, int]] = {}
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        return found
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    stat = file.read()
            except OSError:
                continue
            # The fields after the name (which may contain anything) are state, parent, group,
            # session.
            fields = stat[stat.rindex(b")") + 2 :].split(maxsplit=4)
            found[int(name)] = (int(fields[1]), int(fields[3]))
    return found


def _has_terminal(pid: int) -> bool:
    """True if *pid* has a controlling terminal."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 :].split(maxsplit=5)[4] != b"0"


def below(roots: set[int], table: dict[int, tuple[int, int]]) -> set[int]:
    """Every descendant of *roots*."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return found


def parents_first(pids: Iterable[int], table: dict[int, tuple[int, int]]) -> list[int]:
    """*pids*, none of them before its ancestors.

    A shell that is killed after its child writes "Killed" first.
    """
    depths: dict[int, int] = {}

    def depth(pid: int) -> int:
        first = pid
        line: list[int] = []
        # A table that was read while processes came and went may contain a circle.
        while pid in table and pid not in depths and len(line) < len(table):
            line.append(pid)
            pid, _ = table[pid]
        steps = depths.get(pid, 0)
        for pid in reversed(line):
            steps += 1
            depths[pid] = steps
        return depths.get(first, 0)

    return sorted(pids, key=depth)


def become_subreaper() -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def take_socket() -> socket.socket:
    """The socket that came as descriptor 0, which becomes /dev/null like 1 and 2.

    So none of our descriptors is taken for a child's.
    """
    sock = socket.socket(fileno=fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3))
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    if null > 2:
        os.close(null)
    return sock


def leave_signals_to_server() -> None:
    """A signal that asks to end is for the server, which then says stop or vanishes."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


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


if __name__ == "__main__":
    main()
