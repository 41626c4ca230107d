"""The terminals of a sandbox session of the OpenAI Agents SDK: start, type, look, end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque

from agents.sandbox.errors import PtySessionNotFoundError
from agents.sandbox.session.pty_output import collect_pty_output
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    process_id_to_prune_from_meta,
    resolve_pty_write_yield_time_ms,
)

import exec_server

# How long a first look and a look after typing wait for output, in seconds.
_FIRST_LOOK, _NEXT_LOOK = 10.0, 0.25


class _Terminal:
    """A process whose output is collected until the model looks at it."""

    def __init__(self, process: exec_server.RemoteProcess, *, is_tty: bool) -> None:
        self.process = process
        self.is_tty = is_tty
        self.last_used = time.monotonic()
        self.chunks: deque[bytes] = deque()
        self.lock = asyncio.Lock()
        self.notify = asyncio.Event()
        self.status: int | None = None
        self.is_done = False
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        try:
            async for chunk in self.process:
                self.chunks.append(chunk.data)
                self.notify.set()
            status = await self.process.wait()
            # The SDK has the numbers of signals as `subprocess` does.
            ended_by = self.process.signal
            self.status = status if ended_by is None else -ended_by
        except exec_server.ExecServerError as exc:
            self.chunks.append(f"\n{exc}\n".encode())
        finally:
            self.is_done = True
            self.notify.set()

    async def look(self, *, seconds: float, max_tokens: int | None) -> tuple[bytes, int | None]:
        """The output of at most so many *seconds* from now, cut to *max_tokens*."""
        output, tokens, _ = await collect_pty_output(
            output_chunks=self.chunks,
            output_lock=self.lock,
            output_notify=self.notify,
            is_done=lambda: self.is_done,
            yield_time_ms=round(seconds * 1000),
            max_output_tokens=max_tokens,
        )
        return output, tokens

    async def end(self) -> None:
        """End the process with everything that it has started."""
        self.process.abandon()
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)


class Terminals:
    """The terminals of one session, by the numbers that the model sees."""

    def __init__(self) -> None:
        self._terminals: dict[int, _Terminal] = {}

    async def add(
        self,
        process: exec_server.RemoteProcess,
        *,
        is_tty: bool,
        seconds: float | None,
        max_tokens: int | None,
    ) -> PtyExecUpdate:
        """Follow a process that was just started; the oldest one ends if there are too many."""
        if len(self._terminals) >= PTY_PROCESSES_MAX:
            facts = [(n, each.last_used, each.is_done) for n, each in self._terminals.items()]
            if (oldest := process_id_to_prune_from_meta(facts)) is not None:
                await self._terminals.pop(oldest).end()
        number = allocate_pty_process_id(set(self._terminals))
        self._terminals[number] = _Terminal(process, is_tty=is_tty)
        wanted = _FIRST_LOOK if seconds is None else seconds
        limit = clamp_pty_yield_time_ms(round(wanted * 1000)) / 1000
        return await self._update(number, limit, max_tokens)

    async def write(
        self, number: int, chars: str, *, seconds: float | None, max_tokens: int | None
    ) -> PtyExecUpdate:
        """Type *chars*, or only look if there are none."""
        if (terminal := self._terminals.get(number)) is None:
            raise PtySessionNotFoundError(session_id=number)
        terminal.last_used = time.monotonic()
        if chars:
            if not terminal.is_tty:
                raise RuntimeError("stdin is not available for this process")
            # Of one that has ended, the update tells the status.
            with contextlib.suppress(exec_server.StdinClosed):
                await terminal.process.write(chars.encode())
        wanted = round((_NEXT_LOOK if seconds is None else seconds) * 1000)
        limit = resolve_pty_write_yield_time_ms(yield_time_ms=wanted, input_empty=not chars)
        return await self._update(number, limit / 1000, max_tokens)

    async def _update(self, number: int, seconds: float, max_tokens: int | None) -> PtyExecUpdate:
        terminal = self._terminals[number]
        output, tokens = await terminal.look(seconds=seconds, max_tokens=max_tokens)
        shown: int | None = number
        if terminal.is_done and not terminal.chunks:
            self._terminals.pop(number, None)
            shown = None
        return PtyExecUpdate(shown, output, terminal.status, tokens)

    async def end_all(self) -> None:
        """End all processes."""
        terminals, self._terminals = list(self._terminals.values()), {}
        await asyncio.gather(*(each.end() for each in terminals))
