"""The server's side of the durable keeper: connect or start it, and ask it for jobs.

The module is long because it is one end of one socket: every message, and how each can fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, TypeVar

from exec_server.errors import ConfigurationError, InternalError, InvalidRequest, RpcError
from exec_server.process.durable import durable_keeper
from exec_server.process.durable.keeper_hello import HeldJob, UnknownKeeper, silent, understood
from exec_server.process.durable.state_directory import StateDirectory
from exec_server.process.keeper_command import keeper_command
from exec_server.process.keeper_socket import KeeperSocket, connect, listen
from exec_server.process.keeping.kept_descriptors import close_all
from exec_server.process.keeping.process_trees import (
    below,
    parents_first,
    processes,
    signal_each,
)
from exec_server.process.keeping.tree_marks import mark_of
from exec_server.process.spawn import (
    Granted,
    Launch,
    OnExit,
    Spawned,
    SpawnFailed,
    start_error,
)

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

# A keeper that listens answers at once, unless it is about to end.
_HELLO_SECONDS = 10.0
# A tree that keeps forking is killed so many times.
_ROUNDS = 20
# So often a keeper is asked for descriptors that did not fit, at this interval.
_FD_ROUNDS = 100
_FD_PAUSE = 0.02


class DurableSpawner:
    """Starts programs through the durable keeper of *state*, and gets those of earlier servers."""

    def __init__(self, state: StateDirectory, *, child_descriptors: int | None) -> None:
        self._state = state
        self._descriptors = str(child_descriptors or 0)
        self._link: KeeperSocket | None = None
        self._starter: subprocess.Popen[bytes] | None = None
        self._hello: asyncio.Future[list[HeldJob]] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._tokens = 0
        self._pending: dict[int, tuple[asyncio.Future[Spawned], OnExit, int]] = {}
        self._fds: dict[int, asyncio.Future[list[int] | None]] = {}
        # Of jobs that were found and not yet adopted: their outputs (None if they cannot be sent),
        # and exits that came meanwhile.
        self._fetched: dict[str, list[int] | None] = {}
        self._early: dict[str, tuple[Any, ...]] = {}
        self._writes: dict[int, Callable[[], None]] = {}
        # By token: the job, and what to call with the descriptors of its input.
        self._shares: dict[int, tuple[str, Callable[[list[int]], None]]] = {}
        self._shares_input = False
        # By pid: what to call when the program exits, and its mark.
        self._live: dict[int, tuple[OnExit, int]] = {}
        self._gone: asyncio.Future[None] | None = None
        # True once a program was confined, also by an earlier server.
        self.has_confined = False
        self.keeper_pid: int | None = None
        # False for a keeper of an older release.
        self._holds_limits = True
        self._notes_orders = False
        self._can_echo = False
        self._echoes: deque[Callable[[], None]] = deque()

    # The keeper.

    async def connect(self) -> list[HeldJob]:
        """Go on with the keeper of an earlier server; its jobs, none if it has ended.

        Raises ConfigurationError if it does not answer, or not as this server understands; then
        nothing of it was touched.
        """
        try:
            sock = connect(self._state.socket_path, self._state.key())
        except TimeoutError as exc:
            raise ConfigurationError(silent(self._state.path)) from exc
        if sock is None:
            return []
        self._begin(self._linked(sock))
        assert self._hello is not None
        try:
            jobs = await self._answered(self._hello)
        except UnknownKeeper as exc:
            raise ConfigurationError(str(exc)) from exc
        except InternalError:
            # It was about to end.
            self.close()
            return []
        # If it dies now, what it has written counts.
        with contextlib.suppress(InternalError):
            await self._fetch(jobs)
        return jobs

    async def _answered(self, answer: asyncio.Future[Answer]) -> Answer:
        """An answer of the keeper. Raises ConfigurationError if none comes for some seconds."""
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                return await asyncio.shield(answer)
        except TimeoutError as exc:
            self.close()
            raise ConfigurationError(silent(self._state.path)) from exc

    def start(self) -> None:
        """Start a keeper unless one is connected. Raises InternalError if that is impossible."""
        if self._link is not None:
            return
        try:
            self._starter, link = self._start_keeper()
        except OSError as exc:
            raise SpawnFailed(exc.errno or 0, os.strerror(exc.errno or 0)) from exc
        self._begin(link)
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(_HELLO_SECONDS, self._give_up)

    def _give_up(self) -> None:
        """A keeper that was started does not answer: fail what waits for it."""
        logger.error("the durable keeper does not answer")
        if self._link is not None:
            self._link.close()
            self._on_lost()

    def _start_keeper(self) -> tuple[subprocess.Popen[bytes], KeeperSocket]:
        folder = str(self._state.path)
        key = self._state.new_key()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._state.socket_path)
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        log = os.open(os.path.join(folder, "keeper.log"), flags, 0o600)
        try:
            with listen(self._state.socket_path) as listener:
                os.chmod(self._state.socket_path, 0o600)
                starter = subprocess.Popen(
                    keeper_command("process.durable.durable_keeper", folder, self._descriptors),
                    stdin=listener.fileno(),
                    stdout=subprocess.DEVNULL,
                    # It must not hold a pipe that the server's parent reads to its end.
                    stderr=log,
                    cwd="/",
                    env={},
                    start_new_session=True,
                )
            sock = connect(self._state.socket_path, key)
            if sock is None:
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        finally:
            os.close(log)
        return starter, self._linked(sock)

    def _linked(self, sock: socket.socket) -> KeeperSocket:
        return KeeperSocket(
            sock, on_message=self._handle, on_lost=self._on_lost, on_refused=self._on_refused
        )

    def _on_refused(self, message: tuple[Any, ...], number: int) -> None:
        # Only starts bring descriptors along.
        self._on_failed(message[1], number, os.strerror(number))

    def _begin(self, link: KeeperSocket) -> None:
        self._link = link
        self._hello = asyncio.get_running_loop().create_future()
        link.send(("hello", durable_keeper.VERSION, {}))

    def close(self) -> None:
        """Leave the keeper alone with its jobs."""
        if self._link is not None:
            self._link.close()
            self._link = None
        self._reap_starter()
        self._live.clear()
        while self._fetched:
            close_all(self._fetched.popitem()[1] or ())
        # Their clients are not told that these were accepted; they repeat them.
        self._writes.clear()
        self._shares.clear()
        self._settle()

    async def stop(self, *, grace: float, within: float) -> None:
        """End all jobs: by SIGTERM, after *grace* seconds by SIGKILL; then the keeper ends."""
        if self._link is None:
            return
        self._gone = asyncio.get_running_loop().create_future()
        self._link.send(("stop", grace))
        try:
            async with asyncio.timeout(grace + within):
                await self._gone
        except TimeoutError:
            logger.error("the durable keeper still waits for processes that do not end")

    # Requests.

    def spawn(
        self, launch: Launch, on_exit: OnExit, *, mark: int, settings: dict[str, Any]
    ) -> asyncio.Future[Spawned]:
        """As `Spawner.spawn`, for the job that *settings* names."""
        try:
            self._check_limits(launch)
            self.start()
        except RpcError:
            close_all(launch.fds)
            raise
        self.has_confined = self.has_confined or launch.fence is not None
        future: asyncio.Future[Spawned] = asyncio.get_running_loop().create_future()
        token = self._next_token()
        self._pending[token] = (future, on_exit, mark)
        asked = settings | (launch.settings or {})
        self._send(("spawn", token, *launch.words, mark, asked), launch.fds)
        return future

    def _check_limits(self, launch: Launch) -> None:
        if launch.limits is not None and launch.limits["require"] and not self._holds_limits:
            raise InvalidRequest(
                "limits cannot be held: the keeper of durable jobs is of an older release; it is "
                "replaced when its jobs have ended"
            )

    async def _fetch(self, jobs: list[HeldJob]) -> None:
        """Ask for the outputs of all jobs at once; waiting for each answer would take long."""
        answers = []
        for job in jobs:
            answers.append(self._ask_outputs(job))
            if job.status is None:
                self._live[job.pid] = (partial(self._note_early, job.name), job.mark)
        for job, answer in zip(jobs, answers, strict=True):
            fds = await self._answered(answer)
            for _ in range(_FD_ROUNDS):
                if fds is not None:
                    break
                await asyncio.sleep(_FD_PAUSE)
                fds = await self._answered(self._ask_outputs(job))
            self._fetched[job.name] = fds

    def _note_early(self, name: str, status: int | None, *why: Any) -> None:
        self._early[name] = (status, *why)

    def _ask_outputs(self, job: HeldJob) -> asyncio.Future[list[int] | None]:
        future: asyncio.Future[list[int] | None] = asyncio.get_running_loop().create_future()
        token = self._next_token()
        self._fds[token] = future
        self._send(("fds", token, job.name))
        return future

    def adopt(self, job: HeldJob, on_exit: OnExit) -> list[int] | None:
        """The outputs of a job of an earlier server, whose exit is reported from now on.

        None if the keeper has died meanwhile, or cannot send them.
        """
        fds = self._fetched.pop(job.name, None)
        if fds is None:
            return None
        if job.name in self._early:
            on_exit(*self._early.pop(job.name))
        elif job.pid in self._live:
            self._live[job.pid] = (on_exit, job.mark)
        return fds

    def write(
        self, name: str, write_id: str | None, data: bytes, accepted: Callable[[], None]
    ) -> None:
        """Write to the stdin of a job; *accepted* is called when the keeper has the bytes."""
        token = self._next_token()
        self._writes[token] = accepted
        self._send(("write", token, name, write_id, data))

    def finish(self, name: str) -> None:
        """Close the stdin of a job after what was written; on a terminal, type Ctrl-D."""
        self._send(("finish", name))

    def share_input(self, name: str, shared: Callable[[list[int]], None]) -> None:
        """Ask whether this server may write the stdin of a job; until *shared* is called, it waits.

        *shared* gets stdin and the log of accepted writes, or an empty list.
        """
        if self._link is None or not self._shares_input:
            asyncio.get_running_loop().call_soon(shared, [])
            return
        token = self._next_token()
        self._shares[token] = (name, shared)
        self._send(("share", token, name))

    def give_back_input(self, name: str) -> None:
        """This server does not write the stdin of a job any more; both descriptors are closed."""
        self._send(("unshare", name))

    def set_drains(self, name: str, drains: bool) -> None:
        """Say whether the keeper moves the output of a job while no server is there."""
        self._send(("drains", name, drains))

    def release(self, name: str) -> None:
        """Everything of a job that has ended is recorded: the keeper need not keep it."""
        self._send(("release", name))

    def note_order(self, name: str, order: dict[str, Any]) -> None:
        """Have the keeper note who is about to signal a job; keepers of earlier releases cannot."""
        if self._notes_orders:
            self._send(("order", name, order))

    def signal_group(self, pid: int, signum: int) -> None:
        if pid in self._live:
            self._send(("signal", pid, int(signum)))

    def after_signals(self, then: Callable[[], None]) -> bool:
        """As `Spawner.after_signals`; older keepers do not tell it."""
        if self._can_echo:
            self._echoes.append(then)
            self._send(("echo",))
        return self._can_echo

    def end_tree(self, mark: int, mask: int = (1 << 63) - 1) -> None:
        self._send(("end", mark & mask, mask))

    def reach_limit(self, pid: int, name: str) -> None:
        """As `Spawner.reach_limit`."""
        self._send(("limit", pid, name))

    def _next_token(self) -> int:
        self._tokens += 1
        return self._tokens

    def _send(self, message: tuple[Any, ...], fds: tuple[int, ...] = ()) -> None:
        if self._link is not None:
            self._link.send(message, fds)
        else:
            close_all(fds)

    # Messages of the keeper.

    def _handle(self, message: tuple[Any, ...]) -> None:
        if self._hello is not None and not self._hello.done():
            self._on_hello(message)
            return
        kind, *rest = message or ("",)
        handlers: dict[str, Callable[..., object]] = {
            "spawned": self._on_spawned,
            "failed": self._on_failed,
            "fds": self._on_fds,
            "shared": self._on_shared,
            "wrote": self._on_wrote,
            "exited": self._on_exited,
            "echo": lambda: self._echoes.popleft()(),
        }
        if kind in handlers:
            handlers[kind](*rest)
        else:
            logger.error("the durable keeper says %.500r", message)

    def _on_hello(self, message: tuple[Any, ...]) -> None:
        assert self._hello is not None
        is_new = self._starter is not None
        self._reap_starter()
        try:
            hello = understood(message, self._state.path, is_new=is_new)
        except UnknownKeeper as exc:
            # It is left alone, and nothing of it is touched.
            if self._link is not None:
                self._link.close()
                self._link = None
            self._settle(exc)
        else:
            self.keeper_pid, self._shares_input = hello.pid, hello.shares_input
            assert isinstance(message, tuple)
            self._holds_limits = "limits" in message[2]
            self._notes_orders = bool(message[2].get("notes_orders"))
            self._can_echo = bool(message[2].get("echoes"))
            self._echoes.clear()
            self._hello.set_result(hello.jobs)

    def _on_spawned(self, token: int, pid: int, count: int, granted: Granted | None = None) -> None:
        assert self._link is not None
        future, on_exit, mark = self._pending.pop(token)
        fds = self._link.take_fds()
        if len(fds) == count and not future.cancelled():
            self._live[pid] = (on_exit, mark)
            future.set_result(Spawned(pid, fds, mark, granted))
            return
        # The program is not wanted any more, or its descriptors did not fit.
        close_all(fds)
        self._live[pid] = (lambda *_: None, mark)
        self.end_tree(mark)
        if not future.cancelled():
            future.set_exception(SpawnFailed(errno.EMFILE, os.strerror(errno.EMFILE)))

    def _on_failed(self, token: int, number: int, text: str, part: str = "") -> None:
        future, *_ = self._pending.pop(token)
        if not future.cancelled():
            future.set_exception(start_error(number, text, part))

    def _on_fds(self, token: int, count: int) -> None:
        assert self._link is not None
        future = self._fds.pop(token)
        fds = self._link.take_fds() if count > 0 else []
        if future.done() or len(fds) != max(0, count):
            close_all(fds)
            fds, count = [], -1
        if not future.done():
            future.set_result(None if count < 0 else fds)

    def _on_shared(self, token: int, count: int) -> None:
        assert self._link is not None
        fds = self._link.take_fds() if count else []
        name, shared = self._shares.pop(token)
        if len(fds) != count:
            # This process has no room for more descriptors.
            close_all(fds)
            self.give_back_input(name)
            fds = []
        shared(fds)

    def _on_wrote(self, token: int) -> None:
        accepted = self._writes.pop(token, None)
        if accepted is not None:
            accepted()

    def _on_exited(self, pid: int, status: int, *why: Any) -> None:
        on_exit, _ = self._live.pop(pid, (None, 0))
        if on_exit is not None:
            on_exit(status, *why)

    def _on_lost(self) -> None:
        """The keeper is gone: kill what it has left, and report the loss of each job."""
        self._link = None
        self._reap_starter()
        live, self._live = self._live, {}
        if live:
            logger.error("the durable keeper died; ending its %d jobs", len(live))
            kill_marked({mark for _, mark in live.values()}, leaders=set(live))
        for on_exit, _ in live.values():
            try:
                on_exit(None)
            except Exception:
                # The other jobs, and all that waits for the keeper, have to be told as well.
                logger.exception("the loss of a durable job could not be recorded")
        self._settle()

    def _settle(self, error: InternalError | None = None) -> None:
        """There will be no more answers."""
        error = error or InternalError("the durable keeper died")
        pending, self._pending = self._pending, {}
        waiting: list[asyncio.Future[Any]] = [future for future, *_ in pending.values()]
        waiting += self._fds.values()
        self._fds = {}
        if self._hello is not None:
            waiting.append(self._hello)
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                # It is no fault if no one waits for it.
                future.exception()
        writes, self._writes = self._writes, {}
        for accepted in writes.values():
            accepted()
        shares, self._shares = self._shares, {}
        for _, shared in shares.values():
            shared([])
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def _reap_starter(self) -> None:
        """The process that has started the keeper ends at once, or its keeper has never begun."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._starter is not None:
            # Without this, the server would stand still if it hangs.
            self._starter.kill()
            self._starter.wait()
            self._starter = None


def kill_marked(marks: Collection[int], *, leaders: set[int] | None = None) -> None:
    """Kill all processes with one of *marks*, and all of *leaders*; their keeper is gone."""
    known = leaders or set()
    for _ in range(_ROUNDS):
        table = processes()
        members = {pid for pid, (_, session) in table.items() if session in known}
        marked = {pid for pid in table if mark_of(pid) in marks}
        found = (known | members | marked | below(known | marked, table)) & table.keys()
        signal_each(parents_first(found - {os.getpid()}, table), signal.SIGKILL)
        if not marked:
            return
        known = set()
