"""Input that can be ended on servers that cannot do that: a helper over there cuts it off.

Codex's own server writes to the input of a process and never closes it. The helper is a few lines
of Python that run there before the command. They fork a process that takes the input in frames,
writes it to a pipe, and closes the pipe at an empty frame; then they become the command, whose
input is the pipe. So the command's number, output, signals and exit status are its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from exec_server.client.arguments import BytesLike
from exec_server.client.process.python_helper import helper_words, start_helper
from exec_server.client.process.remote_process import RemoteProcess

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient

HELPER_WORDS = "it cannot end the input of a command; a helper command (python3) there does that"
NO_HELPER_WORDS = (
    "the server cannot end the input of a command, and its machine has no python3 for a helper: "
    "a command that reads its input to the end does not end"
)
_ENDED_WORDS = (
    "the command was ended: it wrote nothing for {seconds:g} seconds after the end of its input, "
    "of which this server cannot tell it. Let it read a file, or give it no input"
)

# Python sets LC_CTYPE where the locale is "C"; the command gets the environment that it was given.
# The process that copies is not a child of the command, which may wait for all of its children. It
# ends when the command does not read any more: then its end of the pipe has an error.
_PROGRAM = r"""
import os, select, signal, sys
r, w = os.pipe()
p = os.fork()
if p:
    os.waitpid(p, 0)
    os.dup2(r, 0); os.close(r); os.close(w)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    env = os.environb
    try:
        with open("/proc/self/environ", "rb") as f: given = f.read().split(b"\0")
        env = dict(each.split(b"=", 1) for each in given if b"=" in each)
    except OSError: pass
    try:
        os.execvpe(sys.argv[1], sys.argv[1:], env)
    except OSError as e:
        os.write(2, os.fsencode("cannot run `%s`: %s\n" % (sys.argv[1], e.strerror)))
        os._exit(127 if e.errno == 2 else 126)
if os.fork(): os._exit(0)
os.close(r)
null = os.open(os.devnull, os.O_WRONLY)
os.dup2(null, 1); os.dup2(null, 2)
for s in (1, 2, 3, 15): signal.signal(s, signal.SIG_IGN)
poll = select.poll()
poll.register(0, select.POLLIN); poll.register(w, 0)
def some(n):
    if any(fd == w for fd, _ in poll.poll()): os._exit(0)
    d = os.read(0, n)
    if not d: os._exit(0)
    return d
try:
    while True:
        head = b""
        while len(head) < 4: head += some(4 - len(head))
        left = int.from_bytes(head, "big")
        if not left: os._exit(0)
        while left:
            d = some(min(left, 1 << 16)); left -= len(d)
            while d: d = d[os.write(w, d):]
except OSError: os._exit(0)
"""


class FramedProcess(RemoteProcess):
    """A process whose input goes through the helper, so that it can be ended."""

    def __init__(self, process: RemoteProcess) -> None:
        super().__init__(*_parts(process), **_options(process))
        self._has_ended_input = False

    async def write(self, data: BytesLike | str) -> None:
        data = self._encoded(data, "data")
        for start in range(0, len(data), self._write_bytes):
            part = data[start : start + self._write_bytes]
            await super().write(len(part).to_bytes(4, "big") + part)

    async def close_stdin(self) -> None:
        if not self._has_ended_input:
            self._has_ended_input = True
            await super().write(bytes(4))


class EndlessInputProcess(RemoteProcess):
    """A process whose input cannot be ended, and which must not wait for its end for ever."""

    def __init__(self, process: RemoteProcess) -> None:
        super().__init__(*_parts(process), **_options(process))
        self._patience = process._client._session.limits.endless_input_seconds
        # Why it was ended, if it was.
        self.why_ended: str | None = None

    async def close_stdin(self) -> None:
        """Wait until the process closes; it is ended if it writes nothing for a while."""
        seen = self.wake_seq
        while not self._tracked.is_settled:
            try:
                async with asyncio.timeout(self._patience):
                    seen = await self.wait_wake(seen)
            except TimeoutError:
                self.why_ended = _ENDED_WORDS.format(seconds=self._patience)
                await self.terminate()
                return


def _parts(process: RemoteProcess) -> tuple[Any, ...]:
    return process._client, process._tracked, process._control


def _options(process: RemoteProcess) -> dict[str, Any]:
    return {"write_bytes": process._write_bytes, "is_text": process._is_text}


def with_helper(argv: Sequence[str]) -> list[str]:
    """The words that start the helper, which becomes *argv*."""
    return helper_words(_PROGRAM, argv)


async def start_with_input(
    client: ExecServerClient, argv: Sequence[str], **words: Any
) -> RemoteProcess:
    """Start a command whose input can be ended on every server whose machine has python3.

    The words are those of `Processes.start`. Without such a helper it is an EndlessInputProcess.
    """
    if await client.offers("processCloseStdin"):
        return await client.start(argv, stdin=True, **words)
    try:
        return FramedProcess(await start_helper(client.start, _PROGRAM, argv, **words))
    except (FileNotFoundError, PermissionError):
        return EndlessInputProcess(await client.start(argv, stdin=True, **words))


async def can_end_input(client: ExecServerClient, process: RemoteProcess) -> bool:
    """True if `process.close_stdin` works."""
    return isinstance(process, FramedProcess) or await client.offers("processCloseStdin")
