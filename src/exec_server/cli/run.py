"""`exec-server run`: a command there, as if it ran here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import msgspec

from exec_server.cli import local, logs
from exec_server.cli.connecting import in_loop
from exec_server.cli.run_options import RunOptions, parse_run
from exec_server.client.client import ExecServerClient, connect
from exec_server.client.process import RemoteProcess
from exec_server.errors import ExecServerError, MethodNotFound, RpcError, StdinClosed

logger = logging.getLogger(__name__)

_FAILED = 1
_TIMED_OUT = 124
_NOT_STARTED = 126
_NOT_FOUND = 127
_BY_SIGNAL = 128
# How long a command that was killed may take to close, before we leave without it.
_LAST_WORDS = 2.0

_STDIN, _STDOUT, _STDERR = 0, 1, 2


def run_command(words: list[str]) -> int:
    """Run as *words* say and return the exit status."""
    try:
        options = parse_run(words)
        logs.configure(options.log_level, "text")
        return in_loop(_run(options))
    except KeyboardInterrupt:
        return _BY_SIGNAL + signal.SIGINT
    except ExecServerError as exc:
        print(f"Error: {exc}", file=sys.stderr)
        return _FAILED


async def _run(options: RunOptions) -> int:
    async with connect(options.url, token=options.token, client_name="exec-server run") as client:
        try:
            process = await _start(client, options)
        except RpcError as exc:
            print(f"Error: cannot run `{options.argv[0]}`: {exc}", file=sys.stderr)
            return _NOT_FOUND if "(os error 2)" in str(exc) else _NOT_STARTED
        async with _Session(process, options) as session:
            return await session.follow()


async def _start(client: ExecServerClient, options: RunOptions) -> RemoteProcess:
    size = local.terminal_size() if options.tty else None
    env = dict(options.env)
    if options.tty and "TERM" in os.environ:
        env.setdefault("TERM", os.environ["TERM"])
    return await client.start(
        options.argv,
        cwd=options.cwd,
        env=env,
        tty=options.tty,
        stdin=options.stdin,
        rows=size[0] if size else None,
        cols=size[1] if size else None,
    )


class _Session:
    """One command, joined to this program's descriptors and signals."""

    def __init__(self, process: RemoteProcess, options: RunOptions) -> None:
        self._process = process
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        # Set when we are to end although the command has not closed.
        self._left: asyncio.Future[None] = self._loop.create_future()
        # Another status than the command's own.
        self._status: int | None = None
        self._interrupts = 0
        self._cleanup = contextlib.ExitStack()
        self._output = local.LocalOutput()
        self._collected: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}

    async def __aenter__(self) -> _Session:
        self._on_signal(signal.SIGINT, self._interrupt)
        for signum in (signal.SIGTERM, signal.SIGHUP):
            self._on_signal(signum, self._end, signum)
        if self._options.tty:
            self._on_signal(signal.SIGWINCH, self._resize)
            if os.isatty(_STDIN):
                self._cleanup.enter_context(local.raw_terminal(_STDIN))
        return self

    async def __aexit__(self, *_: object) -> None:
        # First of all: whatever comes now, the terminal is the user's again.
        self._cleanup.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._process.abandon()

    async def follow(self) -> int:
        """Until the command has closed, the time is over, or we are told to leave."""
        if self._options.stdin:
            self._help(self._forward_input())
        self._copying = self._keep(self._copy())
        await asyncio.wait(
            {self._copying, self._left},
            timeout=self._options.time_limit,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not self._copying.done() and not self._left.done():
            self._status = _TIMED_OUT
            await self._kill()
        status = await self._settle()
        if self._options.output == "json":
            await self._output.write(_STDOUT, self._as_json(status))
        elif self._status == _TIMED_OUT:
            self._say(f"the command took longer than {self._options.time_limit:g} seconds")
        return status

    async def _settle(self) -> int:
        if self._copying.done():
            try:
                self._copying.result()
            except BrokenPipeError:
                # Whoever read our output has had enough, as after `| head`.
                return _BY_SIGNAL + signal.SIGPIPE
        if self._status is not None:
            return self._status
        return await self._process.wait() & 0xFF

    async def _copy(self) -> None:
        is_text = self._options.output == "text"
        async for chunk in self._process:
            is_error = chunk.stream == "stderr"
            if is_text:
                await self._output.write(_STDERR if is_error else _STDOUT, chunk.data)
            else:
                self._collected["stderr" if is_error else "stdout"] += chunk.data

    def _as_json(self, status: int) -> bytes:
        result: dict[str, object] = {"exitCode": status}
        if self._status == _TIMED_OUT:
            result["timedOut"] = True
        for name, data in self._collected.items():
            try:
                result[name] = data.decode()
            except UnicodeDecodeError:
                result[f"{name}Base64"] = bytes(data)
        return msgspec.json.encode(result) + b"\n"

    # Input.

    async def _forward_input(self) -> None:
        try:
            async for data in local.read_chunks(_STDIN):
                await self._process.write(data)
        except StdinClosed:
            return
        try:
            await self._process.close_stdin()
        except MethodNotFound:
            logger.debug("this server cannot end a command's input; it stays open")

    # Signals.

    def _on_signal(self, signum: int, callback: Any, *args: Any) -> None:
        self._loop.add_signal_handler(signum, callback, *args)
        self._cleanup.callback(self._loop.remove_signal_handler, signum)

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            self._help(self._process.send_signal(signal.SIGINT))
        else:
            self._help(self._kill_or_leave())

    async def _kill_or_leave(self) -> None:
        if not await self._process.terminate():
            # It has exited, and something it left behind keeps its output open.
            self._leave()

    def _end(self, signum: int) -> None:
        self._status = _BY_SIGNAL + signum
        self._help(self._kill_and_leave())

    async def _kill_and_leave(self) -> None:
        await self._kill()
        self._leave()

    def _leave(self) -> None:
        if not self._left.done():
            self._left.set_result(None)

    def _resize(self) -> None:
        size = local.terminal_size()
        if size is not None:
            self._help(self._process.resize(*size))

    async def _kill(self) -> None:
        """Kill the command and give it a moment to say its last words."""
        with contextlib.suppress(ExecServerError, TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._process.terminate()
        await asyncio.wait({self._copying}, timeout=_LAST_WORDS)

    def _say(self, text: str) -> None:
        # A raw terminal does not return the carriage by itself.
        end = "\r\n" if self._options.tty else "\n"
        print(f"Error: {text}", end=end, file=sys.stderr, flush=True)

    # What runs beside the output.

    def _help(self, work: Coroutine[Any, Any, Any]) -> None:
        self._keep(_quietly(work))

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        return task


async def _quietly(work: Coroutine[Any, Any, Any]) -> None:
    """What a helper cannot do is no reason to end; a lost connection shows in the output."""
    try:
        await work
    except ExecServerError as exc:
        logger.debug("%s", exc)
