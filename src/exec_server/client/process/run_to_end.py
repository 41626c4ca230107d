"""Run a command to its end and collect its output."""

from __future__ import annotations

import asyncio
import contextlib
from typing import NamedTuple

import msgspec

from exec_server.client.process.bounded_output import BoundedOutput
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.errors import (
    CommandFailed,
    CommandTimeout,
    ExecServerError,
    ProcessLost,
    StdinClosed,
)

# How long a command that was killed may take to close.
_LAST_WORDS = 2.0


class CompletedProcess(msgspec.Struct, frozen=True):
    """A command that has ended, with the fields of `subprocess.CompletedProcess` and more."""

    argv: list[str]
    returncode: int
    stdout: bytes
    stderr: bytes
    # True if output is missing: the middle of more than `max_output` bytes, or what the server
    # could not retain during an outage; and the number of missing bytes, as far as it is known.
    truncated: bool = False
    dropped_bytes: int = 0
    # How the server has confined the command, which backend has enforced that, and true if the
    # sandbox has probably refused it something; the first two are None if the server does not say.
    sandbox_type: str | None = None
    sandbox_rung: str | None = None
    sandbox_denied: bool = False

    @property
    def is_truncated(self) -> bool:
        """The same as `truncated`; it has the name that handles of processes give it."""
        return self.truncated

    def check_returncode(self) -> None:
        """Raise CommandFailed unless the command succeeded."""
        if self.returncode != 0:
            raise CommandFailed(self.argv, self.returncode, self.stdout, self.stderr)


class _Sink(NamedTuple):
    stdout: BoundedOutput
    stderr: BoundedOutput

    @property
    def dropped_bytes(self) -> int:
        return self.stdout.dropped_bytes + self.stderr.dropped_bytes


async def complete(
    process: RemoteProcess,
    argv: list[str],
    *,
    input: bytes | None,
    time_limit: float | None,
    max_output: int | None,
) -> CompletedProcess:
    """Write *input* to *process* and collect its output until it closes.

    Of each stream at most *max_output* bytes are kept: the first half, and as much of the end.
    The process is killed after *time_limit*, after an error, and if the caller is cancelled.
    """
    sink = _Sink(BoundedOutput(max_output), BoundedOutput(max_output))
    try:
        async with asyncio.timeout(time_limit):
            await _communicate(process, input, sink)
            returncode = await process.wait()
    except TimeoutError:
        assert time_limit is not None
        await _end(process, sink)
        raise CommandTimeout(
            argv, time_limit, sink.stdout.content(), sink.stderr.content()
        ) from None
    except ProcessLost as exc:
        raise ProcessLost(
            exc.reason, stdout=sink.stdout.content(), stderr=sink.stderr.content()
        ) from None
    except BaseException:
        process.abandon()
        raise
    return CompletedProcess(
        argv,
        returncode,
        sink.stdout.content(),
        sink.stderr.content(),
        process.is_truncated or sink.dropped_bytes > 0,
        process.dropped_bytes + sink.dropped_bytes,
        process.sandbox_type,
        process.sandbox_rung,
        process.sandbox_denied,
    )


async def _communicate(process: RemoteProcess, input: bytes | None, sink: _Sink) -> None:
    """Write and collect at the same time, because either may have to wait for the other."""
    tasks = [asyncio.create_task(_collect(process, sink))]
    if input is not None:
        tasks.append(asyncio.create_task(_feed(process, input)))
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _collect(process: RemoteProcess, sink: _Sink) -> None:
    async for chunk in process:
        (sink.stderr if chunk.stream == "stderr" else sink.stdout).add(chunk.data)


async def _feed(process: RemoteProcess, data: bytes) -> None:
    # A command may end without reading all of its input.
    with contextlib.suppress(StdinClosed):
        await process.write(data)
        await process.close_stdin()


async def _end(process: RemoteProcess, sink: _Sink) -> None:
    with contextlib.suppress(TimeoutError, ExecServerError):
        async with asyncio.timeout(_LAST_WORDS):
            await process.terminate()
            await _collect(process, sink)
    # Without a connection the process is killed as soon as there is one.
    process.abandon()
