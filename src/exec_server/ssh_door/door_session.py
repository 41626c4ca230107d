"""One session channel: a command, a shell, a terminal, or sftp."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from asyncssh import SSHReader, SSHWriter
from asyncssh.channel import SSHServerChannel
from asyncssh.constants import EXTENDED_DATA_STDERR
from asyncssh.sftp import run_sftp_server
from asyncssh.stream import SSHServerStreamSession

from exec_server.client.arguments import as_signal
from exec_server.client.client import ExecServerClient
from exec_server.client.process.framed_input import (
    NO_HELPER_WORDS,
    EndlessInputProcess,
    can_end_input,
    start_with_input,
)
from exec_server.client.process.input_ahead import InputAhead, can_write_ahead
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.errors import (
    ExecServerError,
    InvalidParams,
    MethodNotFound,
    RpcError,
    StdinClosed,
)
from exec_server.ssh_door.old_scp import ScpFiles, is_old_scp, run_old_scp
from exec_server.ssh_door.remote_commands import home_directory, safe_variables, shell_words
from exec_server.ssh_door.sftp_server import RemoteSftp
from exec_server.ssh_door.stty_modes import with_modes
from exec_server.ssh_door.target import INPUT_BYTES, DoorProcess, DoorTarget

logger = logging.getLogger(__name__)

# The status of `ssh` itself, which git, rsync and others tell from those of a command.
_DOOR_FAILED = 255
# How many seconds a process has to end after the ssh client has left, and how long the rest of a
# terminal's output is waited for when its process has ended.
_FAREWELL = 1.0
# The version that OpenSSH speaks, and everything else knows.
_SFTP_VERSION = 3

_Files = TypeVar("_Files", bound=RemoteSftp)


class DoorSession(SSHServerStreamSession[bytes]):
    """What one session channel does; asyncssh calls its methods."""

    def __init__(
        self, target: DoorTarget, begin: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        super().__init__(self._no_handler)
        self._target = target
        self._begin = begin
        self._process: DoorProcess | None = None
        self._gone = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._size: tuple[int, int] | None = None
        self._is_refused = False

    # What asyncssh asks.

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == "sftp"

    def session_started(self) -> None:
        channel = self._channel
        stdin: SSHReader[bytes] = SSHReader(self, channel)
        stdout: SSHWriter[bytes] = SSHWriter(self, channel)
        stderr: SSHWriter[bytes] = SSHWriter(self, channel, EXTENDED_DATA_STDERR)
        self._begin(self._run(stdin, stdout, stderr))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._gone.set()

    def output_refused(self) -> None:
        """What the process writes from now on meets a closed pipe."""
        self._is_refused = True

    def signal_received(self, name: str) -> None:
        """A signal overtakes input that the process has not read."""
        if self._process is not None:
            self._call(self._process.send_signal(name))

    def break_received(self, msec: int) -> bool:
        return False

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        """The newest size counts; asking again while a call is under way is enough."""
        is_idle = self._size is None
        self._size = height, width
        if is_idle and self._process is not None:
            self._call(self._resize(self._process))

    # The session.

    @property
    def _channel(self) -> SSHServerChannel[bytes]:
        channel = self._chan
        assert isinstance(channel, SSHServerChannel)
        return channel

    async def _run(
        self, stdin: SSHReader[bytes], stdout: SSHWriter[bytes], stderr: SSHWriter[bytes]
    ) -> None:
        try:
            await self._work(stdin, stdout, stderr)
        except ExecServerError as exc:
            self._fail(stderr, str(exc))
        except Exception as exc:
            # The client must not wait for a channel that does nothing.
            logger.exception("a session of the ssh door failed")
            self._fail(stderr, f"internal error: {exc}")
        finally:
            for task in self._calls:
                task.cancel()

    async def _work(
        self, stdin: SSHReader[bytes], stdout: SSHWriter[bytes], stderr: SSHWriter[bytes]
    ) -> None:
        command = self._channel.get_command()
        if self._channel.get_subsystem() is not None:
            # We say that we are like OpenSSH, so all clients send the two paths of a link in its
            # order. asyncssh expects that order of clients of these names alone.
            version = self._channel.get_extra_info("client_version", "")
            self._channel.set_extra_info(client_version=f"{version} (OpenSSH)")
            files = await self._files(RemoteSftp)
            try:
                await run_sftp_server(files, stdin, stdout, _SFTP_VERSION)
            except asyncio.IncompleteReadError:
                # The client has left without a greeting.
                files.exit()
            return
        if command is not None and is_old_scp(command):
            await run_old_scp(await self._files(ScpFiles), command, stdin, stdout)
            return
        client = await self._target.client()
        process = self._process = await self._start(client, command)
        if not process.is_terminal and not await can_end_input(client, process):
            stderr.write(f"exec-server: {NO_HELPER_WORDS}\n".encode())
        try:
            await self._follow(process, self._feed(process, stdin), stdout, stderr)
        finally:
            await self._leave(client, process)

    async def _files(self, kind: type[_Files]) -> _Files:
        files = kind(self._channel, self._target)
        await files.connect()
        return files

    def _fail(self, stderr: SSHWriter[bytes], text: str) -> None:
        if self._gone.is_set():
            return
        with contextlib.suppress(OSError):
            end = "\r\n" if self._channel.get_terminal_type() is not None else "\n"
            stderr.write(f"exec-server: {text}{end}".encode())
            self._channel.exit(_DOOR_FAILED)

    async def _start(self, client: ExecServerClient, command: str | None) -> RemoteProcess:
        channel = self._channel
        terminal = channel.get_terminal_type()
        argv = await shell_words(client, command)
        env = safe_variables(channel.get_environment())
        # Programs find out by these that they are used from elsewhere.
        env["SSH_CONNECTION"] = "127.0.0.1 0 127.0.0.1 0"
        env["SSH_CLIENT"] = "127.0.0.1 0 0"
        words: dict[str, Any] = {"env": env, "ensure": True, "on_gap": "skip"}
        if terminal is None:
            starting = partial(start_with_input, client, argv)
        else:
            columns, rows = channel.get_terminal_size()[:2]
            env["TERM"] = terminal or "dumb"
            argv = with_modes(argv, channel.get_terminal_modes())
            starting = partial(client.start, argv)
            words.update(tty=True, rows=rows or 24, cols=columns or 80)
            # A person's terminal outlives the server, if the server can do that.
            words["durable"] = await client.offers("processDurable")
        home = await home_directory(client)
        try:
            process = await starting(cwd=home, **words)
        except RpcError:
            if home is None or await client.fs.exists(home):
                raise
            process = await starting(**words)
        if terminal is not None and channel.get_terminal_size()[:2] != (columns, rows):
            self._size = rows, columns
            self._call(self._resize(process))
        return process

    async def _follow(
        self,
        process: DoorProcess,
        feeding: Coroutine[Any, Any, None],
        stdout: SSHWriter[bytes],
        stderr: SSHWriter[bytes],
    ) -> None:
        """Pass everything on until the process has closed or the client has left."""
        async with contextlib.AsyncExitStack() as stack:
            tasks = {
                "in": asyncio.create_task(feeding),
                "out": asyncio.create_task(self._copy(process, stdout, stderr)),
                "gone": asyncio.create_task(self._left()),
            }
            if process.is_terminal:
                # What a shell has left in the background may keep the terminal open.
                tasks["end"] = asyncio.create_task(self._ended(process))
            stack.push_async_callback(_cancel, list(tasks.values()))
            waited = {task for name, task in tasks.items() if name != "in"}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if self._gone.is_set():
                return
            if not tasks["out"].done():
                await asyncio.wait({tasks["out"], tasks["gone"]}, timeout=_FAREWELL)
            if tasks["out"].done():
                tasks["out"].result()
            if isinstance(process, EndlessInputProcess) and process.why_ended is not None:
                stderr.write(f"exec-server: {process.why_ended}\n".encode())
            await self._tell_end(process)

    async def _feed(self, process: RemoteProcess, stdin: SSHReader[bytes]) -> None:
        # Helpers and stock servers get one write after the other.
        if type(process) is RemoteProcess and await can_write_ahead(process):
            takes_input = await self._feed_ahead(process, stdin)
        else:
            takes_input = await self._pass_on(process.write, stdin)
        if takes_input and not self._gone.is_set():
            with contextlib.suppress(StdinClosed, MethodNotFound):
                await process.close_stdin()

    async def _feed_ahead(self, process: RemoteProcess, stdin: SSHReader[bytes]) -> bool:
        async with InputAhead(process) as ahead:
            takes_input = await self._pass_on(ahead.write, stdin)
            if takes_input:
                try:
                    await ahead.flush()
                except StdinClosed:
                    return False
            return takes_input

    async def _pass_on(
        self, write: Callable[[bytes], Awaitable[None]], stdin: SSHReader[bytes]
    ) -> bool:
        """Write all input; False if the process does not take all of it."""
        takes_input = True
        while data := await stdin.read(INPUT_BYTES):
            if takes_input:
                try:
                    await write(data)
                except StdinClosed:
                    # What follows is dropped, so that the client can go on to its end of input.
                    takes_input = False
        return takes_input

    async def _copy(
        self, process: DoorProcess, stdout: SSHWriter[bytes], stderr: SSHWriter[bytes]
    ) -> None:
        async for chunk in process:
            if self._is_refused and chunk.stream != "stderr":
                await self._break_pipe(process)
                continue
            writer = stderr if chunk.stream == "stderr" else stdout
            try:
                writer.write(chunk.data)
                await writer.drain()
            except OSError:
                # The client takes no more; `gone` tells whether it has left.
                await self._left()
                return

    async def _break_pipe(self, process: DoorProcess) -> None:
        """As if the process had written to a pipe without a reader."""
        try:
            await process.send_signal(signal.SIGPIPE)
        except InvalidParams:
            # The one signal that every server knows.
            await process.send_signal(signal.SIGINT)

    async def _left(self) -> None:
        await self._gone.wait()

    async def _ended(self, process: DoorProcess) -> None:
        await process.wait()

    async def _tell_end(self, process: DoorProcess) -> None:
        status = await process.wait()
        if self._gone.is_set():
            return
        with contextlib.suppress(OSError):
            # Not every signal has a name: most of the real-time ones have none.
            ended_by = as_signal(process.signal)
            if isinstance(ended_by, signal.Signals):
                self._channel.exit_with_signal(ended_by.name.removeprefix("SIG"))
            else:
                self._channel.exit(status & 0xFF)

    async def _leave(self, client: ExecServerClient, process: RemoteProcess) -> None:
        """The client is done with the process; what runs still is ended."""
        if process.returncode is None and process.lost is None:
            with contextlib.suppress(ExecServerError, TimeoutError):
                async with asyncio.timeout(_FAREWELL):
                    await self._end(process)
            if process.returncode is None:
                process.abandon()
        if process.is_durable and process.returncode is not None:
            with contextlib.suppress(ExecServerError, TimeoutError):
                async with asyncio.timeout(_FAREWELL):
                    await client.prune_jobs(
                        session_id=client.session_id, process_id=process.process_id
                    )

    async def _end(self, process: RemoteProcess) -> None:
        """As a terminal or a pipe ends that was closed at its other side."""
        if process.is_terminal:
            await process.send_signal(signal.SIGHUP)
        else:
            with contextlib.suppress(MethodNotFound):
                await process.close_stdin()
        async for _ in process:
            pass
        await process.wait()

    # Terminals.

    async def _resize(self, process: DoorProcess) -> None:
        while (size := self._size) is not None:
            await process.resize(*size)
            if size == self._size:
                self._size = None

    # Helpers.

    def _call(self, call: Awaitable[None]) -> None:
        async def quietly() -> None:
            with contextlib.suppress(ExecServerError):
                await call

        task = asyncio.create_task(quietly())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    def _no_handler(self, *_: object) -> None:
        raise AssertionError("session_started does not call it")


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
