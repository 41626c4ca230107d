"""The durable keeper: a keeper whose programs outlive the server that asked for them.

Run with DIR and DESCRIPTORS as its words (see keeper_command.py) and a listening socket as
descriptor 0, it leaves its parent at once and serves one server after another. It does what the
keeper does (see keeper.py), and it holds duplicates of everything that a server needs to go on with
a job: the read ends of its outputs, and its input. While no server is connected it moves the output
into the journals itself. It writes the wait status of a job to the job's folder before it tells
anyone. It ends by itself when it has no job, no process and no server.

A connection begins with the bytes of DIR/keeper.key, which its server has made. A sandboxed command
of the same user may reach the socket (Landlock does not restrict that), but no sandbox can read the
file.

The files of the package may be replaced while it runs. So it loads at its start whatever it may
ever need, and both ends say which version of these messages they speak. To this keeper, besides
those of keeper.py::

    ("hello", version, {})
    ("spawn", ..., mark, {"name", "drains", "holds", "max_bytes", "max_records",
                          "limits", "reports"})
                                   name: of the job's folder; drains: False for a job that waits
                                   for its reader; holds: for how many seconds without a server;
                                   max_*: bounds of its journal; the rest: as in keeper.py
    ("fds", token, name)           asks for the outputs of a job
    ("write", token, name, write_id, data)
    ("share", token, name)         asks to write the stdin of a job through a log; see kept_input.py
    ("unshare", name)              the server has closed its descriptors of that
    ("finish", name)               closes stdin after the queue; types Ctrl-D on a terminal
    ("drains", name, drains)       changes what the spawn has said
    ("order", name, order)         who is about to signal a job, for the report of its end
    ("release", name)              the server has recorded the exit and all output, or does not
                                   want the job any more

From this keeper::

    ("hello", version, {"pid", "oldest", "shares_input", "limits", "notes_orders", "echoes",
                        "jobs": [{"name", "pid", "mark", "status", "input"}, ...]})
                                   oldest: the oldest version that it still understands;
                                   shares_input: True if it knows "share";
                                   limits: there if it can hold them;
                                   notes_orders: True if it knows the message "order";
                                   echoes: True if it knows the message "echo";
                                   status: None while it runs; input: "none", "open" or "closing"
    ("spawned", token, pid, fds[, granted])
                                   stdout, stderr; or the terminal and both ends of a pipe behind it
    ("fds", token, fds)            the same for a job that runs already; -1 if there is no room
                                   for descriptors under way, 0 for an unknown job
    ("shared", token, count)       stdin and the log; 0 if the server cannot have them
    ("wrote", token)               the bytes are accepted, now or by an earlier write with this id
    ("exited", pid, status[, reason[, facts]])
    ("error", kind, text)          the message was not understood, or it could not be handled

Both say hello first, and that message has this form in every version. A change that the other end
has to know makes a new version; a new field of `facts` or a new kind of message does not. A newer
server knows what older keepers speak, from its own `OLDEST` on. A newer keeper speaks as the
server's hello asks, from its own `OLDEST` on; it leaves a server that is older still, and keeps its
jobs for another one.

A byte that was accepted for stdin is only in memory and in the pipe, never on disk.
The module is long because it is one program: one loop over one socket and the descriptors of jobs.
"""

from __future__ import annotations

import fcntl
import functools
import os
import select
import socket
import sys
import time
from importlib import import_module

from exec_server.process import keeper
from exec_server.process.durable.keeper_strangers import KeeperStrangers
from exec_server.process.durable.kept_job import STARTED, KeptJob
from exec_server.process.keeping.keeper_setup import (
    become_subreaper,
    leave_signals_to_server,
    take_socket,
)
from exec_server.process.keeping.kept_descriptors import close_all, descriptors
from exec_server.process.keeping.late_parts import confine, exit_facts, limiting
from exec_server.process.keeping.process_trees import own_children
from exec_server.process.keeping.tree_marks import WHOLE_MARK

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from exec_server.process.keeping.child_stdio import Stdio
    from exec_server.process.keeping.server_messages import StartRequest

# The version of the messages above, and the oldest one that both ends of this release understand.
VERSION = 1
OLDEST = 1
SOCKET, LOCK, KEY = "keeper.sock", "keeper.lock", "keeper.key"
# After a write to the disk has failed, it is tried again this much later.
RETRY_SECONDS = 1.0
# A job with a window waits so long for its reader, unless its settings say how long.
HOLD_SECONDS = 30.0
# Jobs whose state directory was removed have so many seconds after SIGTERM.
REMOVED_GRACE = 2.0
# The first server connects at once.
FIRST_SERVER_SECONDS = 5.0


class DurableKeeper(keeper.Keeper):
    """Keeps the jobs of the state directory *folder*, and serves who connects to *listener*."""

    # The journal has what was read.
    output_grain = "up to 1 MiB more"

    def __init__(self, listener: socket.socket, folder: str, lock: int) -> None:
        # There is no server yet.
        super().__init__(listener, epoll := select.epoll())
        # The open lock file of the state directory.
        self._lock = lock
        self._listener = listener
        self._server: socket.socket | None = None
        self._folder = os.path.join(folder, "jobs")
        self._jobs: dict[str, KeptJob] = {}
        self._pids: dict[int, KeptJob] = {}
        self._starting: dict[str, Any] = {}
        self._is_stopping = False
        # A keeper of many jobs waits for many descriptors.
        self._epoll = epoll
        self._handlers: dict[int, Callable[[], object]] = {}
        # When to try again what the disk has refused, and a bound for the first wait.
        self._retry_at: float | None = None
        self._alone_until = time.monotonic() + FIRST_SERVER_SECONDS
        # When jobs with a window are drained, too, because no server has come back.
        self._holds_until: float | None = None
        self._watch(self._wake, self._reap)
        with open(os.path.join(folder, KEY), "rb") as file:
            key = file.read()
        self._strangers = KeeperStrangers(
            listener, key, watch=self._watch, unwatch=self._unwatch, admit=self._begin_serving
        )
        self._watch(listener.fileno(), self._strangers.accept)

    @property
    def has_server(self) -> bool:
        return self._server is not None

    def run(self) -> bool:
        """Serve until a server says stop, or until there is nothing to keep."""
        while not self._is_stopping and self._has_work():
            ready = [fd for fd, _ in self._epoll.poll(self._patience())]
            if self._sandboxes.walls is not None:
                self._sandboxes.look(set(ready))
            if self._limiter is not None:
                self._limiter.look()
            for fd in ready:
                self._call_handler(fd)
            if self._retry_at is not None and time.monotonic() >= self._retry_at:
                self._retry()
            if self._holds_until is not None and time.monotonic() >= self._holds_until:
                self._hold_no_longer()
        return True

    def _call_handler(self, fd: int) -> None:
        handler = self._handlers.get(fd)
        try:
            if handler is not None:
                handler()
        except Exception:
            # A fault in one job must not end all others; what it concerns is left alone.
            sys.excepthook(*sys.exc_info())
            if self._server is not None and fd == self._server.fileno():
                self._lose_server()
            elif fd not in (self._wake, self._listener.fileno()):
                self._unwatch(fd)

    def _has_work(self) -> bool:
        if self._server is not None or self._jobs or time.monotonic() < self._alone_until:
            return True
        return bool(own_children(self._live))

    def _patience(self) -> float | None:
        now = time.monotonic()
        ends = [end for end in (self._retry_at, self._holds_until) if end is not None]
        if self._server is None and not self._jobs and now < self._alone_until:
            ends.append(self._alone_until)
        if (wait := self._wait_milliseconds()) is not None:
            ends.append(now + wait / 1000)
        return max(0.0, min(ends) - now) if ends else None

    def _watch(self, fd: int, handler: Callable[[], object], events: int = select.EPOLLIN) -> None:
        if fd not in self._handlers:
            self._epoll.register(fd, events)
            self._handlers[fd] = handler

    def _unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    # The server.

    def _begin_serving(self, sock: socket.socket) -> None:
        # From here on the server moves the output.
        self._unwatch(self._listener.fileno())
        self._strangers.turn_all_away()
        for job in self._jobs.values():
            self._stop_taking(job)
        sock.setblocking(True)
        self._sock = self._server = sock
        self._holds_until = None
        self._alone_until = 0.0
        self._watch(sock.fileno(), self._serve)
        jobs = [job.described() for job in self._jobs.values() if not job.is_unwanted]
        facts: dict[str, Any] = {"pid": os.getpid(), "oldest": OLDEST, "jobs": jobs}
        facts |= {"shares_input": True, "limits": True, "notes_orders": True, "echoes": True}
        self._send(("hello", VERSION, facts))

    def _hear_hello(self, version: object, *_: object) -> None:
        if not isinstance(version, int) or version < OLDEST:
            # It would misunderstand; our hello tells it why.
            self._lose_server()

    def _serve(self) -> None:
        if not self._receive():
            self._lose_server()
        elif not self._handle_input():
            self._is_stopping = True

    def _lose_server(self) -> None:
        assert self._server is not None
        self._unwatch(self._server.fileno())
        self._server.close()
        self._server = None
        self._sock = self._listener
        self._input.clear()
        while self._fds:
            close_all(self._fds.pop())
        self._watch(self._listener.fileno(), self._strangers.accept)
        held = [job.settings.get("holds", HOLD_SECONDS) for job in self._jobs.values()]
        self._holds_until = time.monotonic() + max(held) if held else None
        for job in tuple(self._jobs.values()):
            if job.is_unwanted:
                # The server may have been killed before it could end it.
                self._end(job)
                continue
            if job.input is not None:
                # These were never accepted: their clients repeat them.
                job.input.waiting.clear()
                job.input.take_back()
                self._flush(job)
            self._begin_taking(job)
            self._release_if_over(job)
        self._stop_if_removed()

    def _send(self, message: tuple[Any, ...], fds: list[int] | None = None) -> None:
        if self._server is not None:
            super()._send(message, fds)

    def _handle(self, message: tuple[Any, ...]) -> bool:
        kind, *rest = message
        handlers: dict[str, Callable[..., object]] = {
            "hello": self._hear_hello,
            "fds": self._send_outputs,
            "write": self._write,
            "share": self._share,
            "unshare": self._unshare,
            "finish": self._finish,
            "drains": self._set_drains,
            "order": self._note_order,
            "release": self._release,
        }
        try:
            if kind in handlers:
                handlers[kind](*rest)
            elif kind in ("spawn", "signal", "limit", "end", "echo", "stop"):
                return super()._handle(message)
            else:
                self._send(("error", kind, "unknown kind of message"))
        except Exception as exc:
            text = f"{type(exc).__name__}: {exc}"
            if kind == "spawn" and rest:
                # The server waits for an answer.
                self._send(("failed", rest[0], 0, text))
            else:
                self._send(("error", kind, text))
        return True

    # Starting.

    def _start(self, token: int, asked: StartRequest) -> None:
        assert asked.settings is not None
        self._starting = asked.settings
        started = os.path.join(self._folder, self._starting["name"], STARTED)
        try:
            super()._start(token, asked)
        except BaseException:
            if os.path.exists(started):
                os.unlink(started)
            raise

    def _about_to_start(self) -> None:
        # A folder without this file is of a job that has never run.
        path = os.path.join(self._folder, self._starting["name"], STARTED)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    def _tell_start(self, token: int, pid: int, stdio: Stdio, *granted: Any) -> None:
        job = KeptJob(self._starting, pid, self._trees.marks[pid])
        try:
            job.hold(stdio, self._unwatch)
            self._send(("spawned", token, pid, len(job.outputs), *granted), job.outputs)
        except OSError:
            job.close()
            raise
        self._jobs[job.name] = self._pids[pid] = job
        if self._server is None:
            self._begin_taking(job)

    def _send_outputs(self, token: int, name: str) -> None:
        job = self._jobs.get(name)
        fds = job.outputs if job is not None else []
        try:
            self._send(("fds", token, len(fds)), fds)
        except OSError:
            # The kernel bounds how many descriptors may be in flight.
            self._send(("fds", token, -1))

    # Input.

    def _write(self, token: int, name: str, write_id: str | None, data: bytes) -> None:
        job = self._jobs.get(name)
        is_accepted = job is None or job.input is None or job.input.write(token, write_id, data)
        # The program first: someone waits for its echo.
        if job is not None and job.input is not None:
            self._flush(job)
        if is_accepted:
            self._send(("wrote", token))

    def _finish(self, name: str) -> None:
        job = self._jobs.get(name)
        if job is not None and job.input is not None:
            job.input.finish()
            self._flush(job)

    def _share(self, token: int, name: str) -> None:
        job = self._jobs.get(name)
        log = None
        if job is not None and job.input is not None:
            self._unwatch(job.input.fd)
            log = job.share_input()
        if log is None:
            self._send(("shared", token, 0))
            self._unshare(name)
            return
        assert job is not None and job.input is not None
        try:
            self._send(("shared", token, 2), [job.input.fd, log.fd])
        except OSError:
            # The kernel bounds how many descriptors may be in flight.
            self._send(("shared", token, 0))
            self._unshare(name)

    def _unshare(self, name: str) -> None:
        job = self._jobs.get(name)
        if job is not None and job.input is not None:
            job.input.take_back()
            self._flush(job)

    def _flush(self, job: KeptJob) -> None:
        assert job.input is not None
        for token in job.input.flush():
            self._send(("wrote", token))
        if job.input.is_blocked:
            self._watch(job.input.fd, functools.partial(self._flush, job), select.EPOLLOUT)
        elif job.input.fd >= 0:
            self._unwatch(job.input.fd)

    # Orders.

    def _note_order(self, name: str, order: dict[str, Any]) -> None:
        """A client is about to signal a job: a report says so, also if the server is killed now."""
        if name in self._jobs:
            self._jobs[name].note_order(order)

    # Output, while no server is there.

    def _set_drains(self, name: str, drains: bool) -> None:
        if name in self._jobs:
            self._jobs[name].settings["drains"] = drains

    def _hold_no_longer(self) -> None:
        """No server has come back: jobs with a window run on as well."""
        self._holds_until = None
        for job in tuple(self._jobs.values()):
            job.settings["drains"] = True
            self._begin_taking(job)

    def _begin_taking(self, job: KeptJob) -> None:
        # Of a job that has exited, no more than its pipes hold is left.
        if not job.settings.get("drains", True) and job.status is None:
            return
        for stream, fd in zip(job.streams, job.outputs, strict=False):
            if stream not in job.ended:
                self._watch(fd, functools.partial(self._take, job, stream))

    def _stop_taking(self, job: KeptJob) -> None:
        for fd in job.outputs:
            self._unwatch(fd)
        job.stop_taking()

    def _take(self, job: KeptJob, stream: str) -> None:
        fd = job.outputs[job.streams.index(stream)]
        try:
            job.take(stream, self._folder)
            is_stalled = job.journal is None or job.journal.is_stalled
        except OSError:
            is_stalled = True
        if job.has_too_much_output and self._limiter is not None:
            self._limiter.reach(job.pid, "outputBytes")
        if is_stalled or stream in job.ended:
            self._unwatch(fd)
        if is_stalled:
            self._retry_soon()
        self._release_if_over(job)

    # The end of jobs.

    def _wait_for_server(self, seconds: float) -> bool:
        """Wait for an exit; what the server says meanwhile ends the grace only if it says stop."""
        assert self._server is not None
        # `select` cannot wait for descriptors above 1023.
        poll = select.poll()
        for fd in (self._wake, self._server.fileno()):
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(seconds * 1000)}
        if self._server.fileno() not in ready:
            return True
        return self._receive() and self._handle_input()

    def _report_exit(
        self, pid: int, status: int, reason: str | None, facts: dict[str, Any] | None
    ) -> None:
        job = self._pids.pop(pid)
        job.status = status
        if facts is not None and job.orders:
            facts["orders"] = job.orders
        job.why = {"reason": reason, "facts": facts}
        if job.is_unwanted:
            self._release(job.name)
        else:
            if reason is not None and self._server is None:
                job.say(reason, self._folder)
            self._store(job)
        super()._report_exit(pid, status, reason, facts)
        if self._server is None:
            self._begin_taking(job)
        self._release_if_over(job)

    def _store(self, job: KeptJob) -> None:
        """Write the status to the job's folder, now or as soon as the disk allows it."""
        try:
            job.store(self._folder)
        except OSError:
            self._retry_soon()

    def _release_if_over(self, job: KeptJob) -> None:
        """Forget a job of which everything is on the disk, if no server will ask for it first."""
        is_drained = job.ended.issuperset(job.streams)
        if self._server is None and job.is_stored and is_drained:
            self._release(job.name)

    def _release(self, name: str) -> None:
        job = self._jobs.get(name)
        if job is None:
            return
        if job.status is None:
            # The server does not want it: it is about to be killed, and its folder is gone.
            job.is_unwanted = True
            return
        del self._jobs[name]
        self._stop_taking(job)
        job.close()

    def _retry_soon(self) -> None:
        if self._retry_at is None:
            self._retry_at = time.monotonic() + RETRY_SECONDS

    def _retry(self) -> None:
        self._retry_at = None
        self._stop_if_removed()
        for job in tuple(self._jobs.values()):
            if self._server is None and not os.path.isdir(os.path.join(self._folder, job.name)):
                self._give_up(job)
                continue
            if job.status is not None and not job.is_stored:
                self._store(job)
            if self._server is None:
                self._begin_taking(job)
                self._release_if_over(job)

    # What no server can find any more.

    def _stop_if_removed(self) -> None:
        """End all jobs if the state directory was removed while no server is there."""
        if self._server is None and self._jobs and not os.fstat(self._lock).st_nlink:
            print("the state directory was removed: its jobs are ended", file=sys.stderr)
            self.stop_grace = REMOVED_GRACE
            self._is_stopping = True

    def _give_up(self, job: KeptJob) -> None:
        """End a job whose folder was removed."""
        print(f"the folder of job {job.name} was removed: it is ended", file=sys.stderr)
        self._stop_taking(job)
        self._release(job.name)
        if job.status is None:
            self._end(job)

    def _end(self, job: KeptJob) -> None:
        self._trees.ending.add((job.mark, WHOLE_MARK))
        self._trees.kill()


def identity(path: str) -> tuple[int, int] | None:
    """What tells a file from any other; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def load_everything() -> None:
    """Import what is otherwise imported late: the files may be those of another release then."""
    for name in ("ctypes", "subprocess", "traceback"):
        import_module(name)
    confine().load_everything()
    limiting()
    exit_facts().load_everything()


def main() -> None:
    # The parent waits for this first process only.
    if os.fork():
        os._exit(0)
    folder, of_children = sys.argv[1], int(sys.argv[2])
    leave_signals_to_server()
    lock = os.open(os.path.join(folder, LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    # A keeper before this one may be about to end. A fork does not inherit this kind of lock.
    fcntl.lockf(lock, fcntl.LOCK_EX)
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    descriptors.raise_own(of_children)
    become_subreaper()
    load_everything()
    # The keeper's own socket is one of C alone, which does not accept.
    listener = socket.socket(fileno=take_socket().detach())
    durable = DurableKeeper(listener, folder, lock)
    path = os.path.join(folder, SOCKET)
    mine = identity(path)
    try:
        durable.run()
    finally:
        # A server that connected to a keeper without work sees the end, and starts another one,
        # which may have its socket there already.
        if mine is not None and identity(path) == mine:
            os.unlink(path)
        durable.end_trees(grace=durable.stop_grace, has_server=durable.has_server)
