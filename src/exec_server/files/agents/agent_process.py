"""The server's side of an agent: the lines that it prints, and its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Hashable
from typing import NamedTuple, Protocol

from exec_server.sandbox.model import Policy

# An agent's lines are shorter; a longer one is not its own.
_LINE_BYTES = 4 * 1024 * 1024
# How many seconds the reason of an early end is waited for.
_LAST_WORDS = 2.0


class AgentRun(Protocol):
    """The process of an agent; *ended* gets a sentence that says how it ended."""

    ended: asyncio.Future[str]

    @property
    def exit_code(self) -> int | None:
        """Its exit status once it has ended, negative after a signal."""

    @property
    def last_words(self) -> str:
        """What it wrote to stderr, known once it has ended."""

    def discard(self) -> None:
        """Kill it; how it ends does not matter any more."""


class StartedAgent(NamedTuple):
    """A new agent, with the descriptors that belong to the receiver."""

    stdin: int
    stdout: int
    process: AgentRun


class AgentOrder(NamedTuple):
    """What to start: the work, its request as JSON, what confines it, and for whom it is done."""

    work: str
    request: bytes
    # None if nothing restricts it.
    policy: Policy | None
    owner: Hashable | None
    # A program that does the work instead of an agent, with its arguments; it gets no request.
    program: tuple[bytes, ...] = ()


# Raises RpcError.
AgentStarter = Callable[[AgentOrder], Awaitable[StartedAgent]]


class Agent:
    """Owns a started agent. *on_line* gets each line, and *on_end* is called once, with the reason
    if the agent was not closed from this side."""

    # The most that is read in one turn of the event loop.
    read_bytes = 256 * 1024

    def __init__(
        self,
        started: StartedAgent,
        *,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._stdin, self._stdout, self._process = started
        self._on_line = on_line
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._rest = bytearray()
        self._is_reading = False
        self._is_closed = False
        self._ending: asyncio.TimerHandle | None = None
        os.set_blocking(self._stdout, False)
        self.resume()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def pause(self) -> None:
        """Read no more lines for now; the agent waits as soon as its pipe is full."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._stdout)

    def resume(self) -> None:
        if not self._is_reading and not self._is_closed and self._ending is None:
            self._is_reading = True
            self._loop.add_reader(self._stdout, self._on_readable)

    def close(self) -> None:
        """End the agent. Idempotent; *on_end* is not called any more."""
        if self._is_closed:
            return
        self.pause()
        self._is_closed = True
        if self._ending is not None:
            self._ending.cancel()
        os.close(self._stdout)
        os.close(self._stdin)
        self._process.discard()

    def _on_readable(self) -> None:
        try:
            data = os.read(self._stdout, self.read_bytes)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended_early()
            return
        self._received(data)

    def _received(self, data: bytes) -> None:
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        if len(rest) > _LINE_BYTES:
            self._finish("it printed nonsense")
            return
        for line in lines:
            if self._is_closed:
                return
            self._on_line(bytes(line))

    def _ended_early(self) -> None:
        """Its last words say why, for example that the sandbox cannot be enforced here."""
        self.pause()
        self._ending = self._loop.call_later(_LAST_WORDS, self._finish, "it ended early")
        self._process.ended.add_done_callback(lambda ended: self._finish(ended.result()))

    def _finish(self, text: str) -> None:
        if not self._is_closed:
            self.close()
            self._on_end(text)
