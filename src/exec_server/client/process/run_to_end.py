"""Run a command to its end and collect its output."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Literal, NamedTuple

import msgspec

from exec_server.client.process.bounded_output import BoundedOutput, Gap, with_gap
from exec_server.client.process.output_buffer import OutputChunk
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.errors import (
    CommandFailed,
    CommandTimeout,
    ExecServerError,
    ProcessLost,
    StdinClosed,
)
from exec_server.protocol.ends import EndReport, Usage

# How long a command that was killed may take to close.
_LAST_WORDS = 2.0


# A process in the background that never stops writing delays the end by so many times the drain.
_DRAINS = 5


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
    # The signal that has ended the command, such as `signal.SIGKILL`; see `RemoteProcess.signal`.
    signal: int | None = None
    # True if the command has left processes in the background that hold its output open. They run
    # on; `client.terminate(process_id)` ends them.
    has_background: bool = False
    process_id: str | None = None
    # Where the middle of more than `max_output` bytes is missing.
    stdout_gap: Gap | None = None
    stderr_gap: Gap | None = None
    # Why the command ended, and what it used; None if the server does not say. See
    # `RemoteProcess.end` and `RemoteProcess.usage`.
    end: EndReport | None = None
    usage: Usage | None = None

    def text(self, stream: Literal["stdout", "stderr"] = "stdout", encoding: str = "utf-8") -> str:
        """The output as a text; a line tells where the middle is missing, and how much of it.

        Bytes that cannot be decoded become U+FFFD.
        """
        content, gap = (
            (self.stderr, self.stderr_gap) if stream == "stderr" else (self.stdout, self.stdout_gap)
        )
        return with_gap(content, gap, encoding)

    @property
    def is_truncated(self) -> bool:
        """The same as `truncated`; it has the name that handles of processes give it."""
        return self.truncated

    def check_returncode(self) -> None:
        """Raise CommandFailed unless the command succeeded."""
        if self.returncode != 0:
            raise CommandFailed(
                self.argv,
                self.returncode,
                self.stdout,
                self.stderr,
                signal=self.signal,
                dropped_bytes=self.dropped_bytes,
                end=self.end,
            )


class _Sink(NamedTuple):
    stdout: BoundedOutput
    stderr: BoundedOutput

    def add(self, chunk: OutputChunk) -> None:
        (self.stderr if chunk.stream == "stderr" else self.stdout).add(chunk.data)

    @property
    def total_bytes(self) -> int:
        return self.stdout.total_bytes + self.stderr.total_bytes

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
    drain: float | None,
) -> CompletedProcess:
    """Write *input* to *process* and collect its output until it closes.

    After the exit, it ends when no output has come for *drain* seconds; None waits for the close.
    Of each stream at most *max_output* bytes are kept: the first half, and as much of the end. The
    process is killed after *time_limit*, after an error, and if the caller is cancelled.
    """
    sink = _Sink(BoundedOutput(max_output), BoundedOutput(max_output))
    is_closed = False
    try:
        async with asyncio.timeout(time_limit):
            is_closed = await _communicate(process, input, sink, drain)
            returncode = await process.wait()
    except TimeoutError:
        if drain is None or process.returncode is None:
            assert time_limit is not None
            await _end(process, sink)
            raise CommandTimeout(
                argv,
                time_limit,
                sink.stdout.content(),
                sink.stderr.content(),
                dropped_bytes=process.dropped_bytes + sink.dropped_bytes,
            ) from None
        returncode = process.returncode
    except ProcessLost as exc:
        raise ProcessLost(
            exc.reason, stdout=sink.stdout.content(), stderr=sink.stderr.content()
        ) from None
    except BaseException:
        process.abandon()
        raise
    # What has come already is not lost, however short the moment was.
    while (chunk := process._take_now()) is not None:
        sink.add(chunk)
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
        process.signal,
        not is_closed,
        process.process_id,
        sink.stdout.gap,
        sink.stderr.gap,
        process.end,
        process.usage,
    )


async def _communicate(
    process: RemoteProcess, input: bytes | None, sink: _Sink, drain: float | None
) -> bool:
    """Write and collect at the same time, because either may have to wait for the other.

    Returns False if something still holds the output open.
    """
    following = asyncio.create_task(_follow(process, sink, drain))
    tasks: set[asyncio.Task[Any]] = {following}
    if input is not None:
        tasks.add(asyncio.create_task(_feed(process, input)))
    try:
        while not following.done():
            done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            # Input that is not read does not delay the end.
            tasks = waiting | {following}
        return following.result()
    finally:
        await _cancel(*tasks)


async def _follow(process: RemoteProcess, sink: _Sink, drain: float | None) -> bool:
    """Collect output until it is closed; False if it was not within *drain* after the exit."""
    if drain is None:
        await _collect(process, sink)
        return True
    collecting = asyncio.create_task(_collect(process, sink))
    exiting = asyncio.create_task(process.wait())
    try:
        await asyncio.wait({collecting, exiting}, return_when=asyncio.FIRST_COMPLETED)
        await _wait_until_silent(collecting, sink, drain)
        if collecting.done():
            collecting.result()
            return True
        exiting.result()
        return False
    finally:
        await _cancel(collecting, exiting)


async def _wait_until_silent(collecting: asyncio.Task[None], sink: _Sink, drain: float) -> None:
    """Wait until no output has come for *drain* seconds; a few times as long at most.

    Over a slow connection the last output of the command itself may follow its exit.
    """
    loop = asyncio.get_running_loop()
    deadline, seen = loop.time() + _DRAINS * drain, -1
    while not collecting.done() and sink.total_bytes > seen:
        seen = sink.total_bytes
        left = deadline - loop.time()
        await asyncio.wait({collecting}, timeout=max(0.0, min(drain, left)))
        if left <= drain:
            return


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _collect(process: RemoteProcess, sink: _Sink) -> None:
    async for chunk in process:
        sink.add(chunk)


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
