"""The durable keeper: a keeper whose programs outlive the server that asked for them.

Run as ``python -I -S durable_keeper.py DIR DESCRIPTORS`` with a listening socket as
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
import json
import os
import select
import socket
import struct
import sys
import time
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from exec_server.process import journal, keeper
    from exec_server.process.durable import kept_input
else:

    def load(*path):
        """Load a file whose path begins in the folder above this one."""
        assert path in (("keeper.py",), ("journal.py",), ("durable", "kept_input.py"))
        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        name = path[-1].removesuffix(".py")
        spec = spec_from_file_location(name, os.path.join(folder, *path))
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    keeper, journal = load("keeper.py"), load("journal.py")
    kept_input = load("durable", "kept_input.py")

# The version of the messages above, and the oldest one that both ends of this release understand.
VERSION = 1
OLDEST = 1
SOCKET, LOCK, KEY = "keeper.sock", "keeper.lock", "keeper.key"
KEY_BYTES = 32
# Connections that have not sent the key yet; the oldest gives way to a new one.
MAX_STRANGERS = 8
STARTED, STATUS = "started", "status"
# So much is moved at once, and so often per wake-up, before other jobs have their turn.
TAKE_BYTES = 1 << 16
TAKES = 16
# After a write to the disk has failed, it is tried again this much later.
RETRY_SECONDS = 1.0
# A job with a window waits so long for its reader, unless its settings say how long.
HOLD_SECONDS = 30.0
# Jobs whose state directory was removed have so many seconds after SIGTERM.
REMOVED_GRACE = 2.0
# So many orders of clients are kept for the report of a job.
MAX_ORDERS = 8
# The first server connects at once.
FIRST_SERVER_SECONDS = 5.0


class KeptJob:
    """One job: what a server needs of it, and how far it is."""

    __slots__ = (
        "ended",
        "input",
        "is_stored",
        "is_unwanted",
        "journal",
        "mark",
        "name",
        "orders",
        "outputs",
        "pid",
        "settings",
        "status",
        "why",
    )

    def __init__(self, settings: dict[str, Any], pid: int, mark: int) -> None:
        self.name: str = settings["name"]
        self.settings = settings
        self.pid = pid
        self.mark = mark
        # The read ends of stdout and stderr; or a terminal and both ends of the pipe behind it.
        self.outputs: list[int] = []
        self.input: kept_input.KeptInput | None = None
        self.status: int | None = None
        # The reason and the facts of its end; and who has asked for it, of a job with a report.
        self.why: dict[str, Any] = {}
        self.orders: list[dict[str, Any]] = []
        # True once the status is on the disk.
        self.is_stored = False
        self.is_unwanted = False
        # While this process moves the output: the journal, and the streams that have ended.
        self.journal: journal.Journal | None = None
        self.ended: set[str] = set()

    @property
    def streams(self) -> tuple[str, ...]:
        return ("pty",) if len(self.outputs) == 3 else ("stdout", "stderr")

    def described(self) -> dict[str, Any]:
        if self.input is None:
            state = "none"
        else:
            state = "closing" if self.input.is_closing else "open"
        return {
            "name": self.name,
            "pid": self.pid,
            "mark": self.mark,
            "status": self.status,
            "input": state,
        }

    def hold(self, stdio: keeper.Stdio, forget: Callable[[int], object]) -> None:
        """Keep duplicates of our ends of *stdio*."""
        self.outputs = stdio.keep_outputs()
        if stdio.terminal is not None:
            pipe = os.pipe2(os.O_CLOEXEC)
            self.outputs += map(keeper.descriptors.kept, pipe)
            keeper.close_all(pipe)
        for fd in self.outputs:
            os.set_blocking(fd, False)
        if stdio.terminal is not None or len(stdio.ours) > 2:
            fd = keeper.descriptors.kept(stdio.ours[-1])
            self.input = kept_input.KeptInput(
                fd, is_terminal=stdio.terminal is not None, forget=forget
            )

    def share_input(self) -> kept_input.InputLog | None:
        """A log through which the server writes the input; None if that is impossible now."""
        assert self.input is not None
        try:
            fd = os.memfd_create("exec-server-input", os.MFD_CLOEXEC)
            try:
                kept = keeper.descriptors.kept(fd)
            finally:
                os.close(fd)
        except (AttributeError, OSError):
            return None
        try:
            log = self.input.share(kept)
        except OSError:
            log = None
        if log is None:
            os.close(kept)
        return log

    def take(self, stream: str, folder: str) -> None:
        """Move output into the journal. Sets `ended`; the journal says if it is stalled."""
        self._open_journal(folder)
        try:
            for _ in range(TAKES):
                if self._take_once(stream) is None:
                    return
        except journal.EndOfStream:
            self.ended.add(stream)

    @property
    def has_too_much_output(self) -> bool:
        most = (self.settings.get("limits") or {}).get("outputBytes")
        if most is None or self.journal is None:
            return False
        return sum(map(self.journal.size, self.streams)) > int(most)

    def say(self, text: str, folder: str) -> None:
        """Write *text* behind the output of the job, which a server would do if there was one."""
        try:
            line = text.encode() + (b"\r\n" if self.streams == ("pty",) else b"\n")
            self._open_journal(folder).append(self.streams[-1], line)
        except OSError:
            # The disk refuses it. The exit status tells that the job was killed.
            pass

    def _open_journal(self, folder: str) -> journal.Journal:
        if self.journal is None:
            bounds = {name: self.settings[name] for name in ("max_bytes", "max_records")}
            self.journal = journal.Journal.open(
                os.path.join(folder, self.name), streams=self.streams, **bounds
            )
        return self.journal

    def _take_once(self, stream: str) -> journal.Record | None:
        assert self.journal is not None
        if stream == "pty":
            terminal, reader, writer = self.outputs
            return journal.take_terminal(self.journal, terminal, (reader, writer), TAKE_BYTES)
        fd = self.outputs[self.streams.index(stream)]
        return self.journal.take(stream, fd, TAKE_BYTES)

    def stop_taking(self) -> None:
        self.ended.clear()
        if self.journal is not None:
            self.journal.close()
            self.journal = None

    def close(self) -> None:
        self.stop_taking()
        keeper.close_all(self.outputs)
        self.outputs = []
        if self.input is not None:
            self.input.close()


class DurableKeeper(keeper.Keeper):
    """Keeps the jobs of the state directory *folder*, and serves who connects to *listener*."""

    # The journal has what was read.
    output_grain = "up to 1 MiB more"

    def __init__(self, listener: socket.socket, folder: str, lock: int) -> None:
        # There is no server yet.
        super().__init__(listener)
        # The open lock file of the state directory.
        self._lock = lock
        with open(os.path.join(folder, KEY), "rb") as file:
            self._key = file.read()
        # What each connection has sent of the key.
        self._strangers: dict[socket.socket, bytes] = {}
        self._listener = listener
        self._server: socket.socket | None = None
        self._folder = os.path.join(folder, "jobs")
        self._jobs: dict[str, KeptJob] = {}
        self._pids: dict[int, KeptJob] = {}
        self._starting: dict[str, Any] = {}
        self._is_stopping = False
        # A keeper of many jobs waits for many descriptors.
        self._epoll = self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], object]] = {}
        # When to try again what the disk has refused, and a bound for the first wait.
        self._retry_at: float | None = None
        self._alone_until = time.monotonic() + FIRST_SERVER_SECONDS
        # When jobs with a window are drained, too, because no server has come back.
        self._holds_until: float | None = None
        self._watch(self._wake, self._reap)
        self._watch(listener.fileno(), self._accept)

    @property
    def has_server(self) -> bool:
        return self._server is not None

    def run(self) -> bool:
        """Serve until a server says stop, or until there is nothing to keep."""
        while not self._is_stopping and self._has_work():
            ready = [fd for fd, _ in self._epoll.poll(self._patience())]
            if self._walls is not None:
                self._end_unwalled(self._walls.lost(set(ready)))
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
        return bool(self._children())

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

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] != os.geteuid():
            sock.close()
            return
        sock.setblocking(False)
        if len(self._strangers) >= MAX_STRANGERS:
            self._turn_away(next(iter(self._strangers)))
        self._strangers[sock] = b""
        self._watch(sock.fileno(), functools.partial(self._identify, sock))
        self._identify(sock)

    def _identify(self, sock: socket.socket) -> None:
        """Read the key from a new connection, and nothing beyond it."""
        said = self._strangers[sock]
        try:
            more = sock.recv(KEY_BYTES - len(said))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        said += more
        if more and len(said) < KEY_BYTES:
            self._strangers[sock] = said
        elif is_same(said, self._key):
            self._unwatch(sock.fileno())
            del self._strangers[sock]
            self._begin_serving(sock)
        else:
            self._turn_away(sock)

    def _turn_away(self, sock: socket.socket) -> None:
        del self._strangers[sock]
        self._unwatch(sock.fileno())
        sock.close()

    def _begin_serving(self, sock: socket.socket) -> None:
        # From here on the server moves the output.
        self._unwatch(self._listener.fileno())
        for stranger in tuple(self._strangers):
            self._turn_away(stranger)
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
            keeper.close_all(self._fds.pop())
        self._watch(self._listener.fileno(), self._accept)
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

    def _start(self, token: int, *start: Any) -> None:
        self._starting = start[-1]
        started = os.path.join(self._folder, self._starting["name"], STARTED)
        try:
            super()._start(token, *start)
        except BaseException:
            if os.path.exists(started):
                os.unlink(started)
            raise

    def _about_to_start(self) -> None:
        # A folder without this file is of a job that has never run.
        path = os.path.join(self._folder, self._starting["name"], STARTED)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    def _tell_start(self, token: int, pid: int, stdio: keeper.Stdio, *granted: Any) -> None:
        job = KeptJob(self._starting, pid, self._marks[pid])
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
            self._jobs[name].orders.append(order)
            del self._jobs[name].orders[:-MAX_ORDERS]

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
        folder = os.path.join(self._folder, job.name)
        ended_at = time.time_ns() // 1_000_000
        known = {"status": job.status, "pid": job.pid, "endedAt": ended_at}
        # Only what was asked for, or has happened, is there.
        known |= {name: value for name, value in job.why.items() if value is not None}
        data = json.dumps(known, ensure_ascii=False, separators=(",", ":")) + "\n"
        new = os.path.join(folder, f"{STATUS}.new")
        try:
            fd = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, data.encode("utf-8", "replace"))
            finally:
                os.close(fd)
            os.rename(new, os.path.join(folder, STATUS))
            job.is_stored = True
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
        self._ending.add((job.mark, (1 << 63) - 1))
        self._kill_marked()


def is_same(said: bytes, key: bytes) -> bool:
    """True if both are the same key; takes as long for each wrong one."""
    differences = sum(a != b for a, b in zip(said, key, strict=False))
    return len(said) == len(key) == KEY_BYTES and not differences


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
    keeper.confine().load_everything()
    keeper.limiting()
    keeper.exit_facts().load_everything()


def main() -> None:
    # The parent waits for this first process only.
    if os.fork():
        os._exit(0)
    folder, of_children = sys.argv[1], int(sys.argv[2])
    keeper.leave_signals_to_server()
    lock = os.open(os.path.join(folder, LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    # A keeper before this one may be about to end. A fork does not inherit this kind of lock.
    fcntl.lockf(lock, fcntl.LOCK_EX)
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    keeper.descriptors.raise_own(of_children)
    keeper.become_subreaper()
    load_everything()
    # The keeper's own socket is one of C alone, which does not accept.
    listener = socket.socket(fileno=keeper.take_socket().detach())
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


if __name__ == "__main__":
    main()
