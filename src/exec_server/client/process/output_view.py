"""OutputView: one stream of a process, and how lines are found in output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from exec_server.client.arguments import check_seconds
from exec_server.client.process.output_buffer import OutputBuffer, OutputChunk, Wanted
from exec_server.client.process.time_limit import within
from exec_server.limits import MIB

# A line or message that is longer is an error, as in asyncio.
LINE_BYTES = 1 * MIB
# How much of the last output the text of an error shows.
_SHOWN_BYTES = 200

Separator = str | bytes | tuple[str | bytes, ...]


class OutputEnded(asyncio.IncompleteReadError):
    """The output has ended before a separator came; `partial` has the rest of it."""

    def __init__(self, partial: bytes, separators: list[bytes]) -> None:
        super().__init__(partial, None)
        self.separators = separators

    def __reduce__(self) -> tuple[type[OutputEnded], tuple[bytes, list[bytes]]]:
        return type(self), (self.partial, self.separators)

    def __str__(self) -> str:
        wanted = " or ".join(map(repr, self.separators))
        rest = self.partial[-_SHOWN_BYTES:]
        said = f"; its end was {rest!r}" if rest else ", and there was no more"
        return f"the output ended before {wanted} came{said}"


class OutputView:
    """One stream of a process: an asynchronous iterator of its bytes as they arrive.

    The methods work like those of `asyncio.StreamReader`. If the process was started with
    `text=True`, they return texts; bytes that are not UTF-8 are replaced by U+FFFD.
    """

    def __init__(
        self, output: OutputBuffer, wanted: Wanted, *, owner: object, is_text: bool = False
    ) -> None:
        self._output = output
        self._wanted = wanted
        # Events reach a process only as long as its handle or one of its views is held.
        self._owner = owner
        self._is_text = is_text

    def __aiter__(self) -> OutputView:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self._output.take(self._wanted)
        if chunk is None:
            raise StopAsyncIteration
        return chunk.data

    async def read(self) -> Any:
        """Everything up to the end of the stream, which comes when the process has closed."""
        return self._said(b"".join([data async for data in self]))

    async def readline(self, *, timeout: float | None = None) -> Any:  # noqa: ASYNC109 (the twin)
        """The next line, with its newline; the last one may have none, and then nothing comes.

        Raises TimeoutError after *timeout* seconds; then nothing of the output is lost.
        """
        try:
            return await self.read_until(b"\n", timeout=timeout)
        except asyncio.IncompleteReadError as exc:
            return self._said(exc.partial)

    async def read_until(
        self,
        separator: Separator = b"\n",
        *,
        limit: int = LINE_BYTES,
        timeout: float | None = None,  # noqa: ASYNC109 (the twin has no other way)
    ) -> Any:
        """Everything up to *separator*, with it; of several separators, the first that comes.

        What follows stays for the next reader. Raises asyncio.IncompleteReadError, which has the
        rest, if the output ends before, asyncio.LimitOverrunError after *limit* bytes without a
        separator, and TimeoutError after *timeout* seconds. After the last two, and if it is
        cancelled, nothing of the output is lost.
        """
        wanted = _separators(separator)
        check_seconds(timeout, "timeout")
        reading = _read_until(self._output, self._wanted, wanted, limit)
        missed = f"{' or '.join(map(repr, wanted))} did not come"
        return self._said(await within(timeout, reading, missed))

    def lines(self, *, limit: int = LINE_BYTES) -> AsyncIterator[Any]:
        """Each line, with its newline; the last one may have none."""
        return Lines(
            self._output, self._wanted, limit=limit, owner=self._owner, is_text=self._is_text
        )

    def _said(self, data: bytes) -> Any:
        return data.decode(errors="replace") if self._is_text else data


def _separators(given: Separator) -> list[bytes]:
    each = given if isinstance(given, tuple) else (given,)
    found = [one.encode() if isinstance(one, str) else one for one in each]
    if not found or b"" in found:
        raise ValueError("a separator must have at least one byte")
    return found


async def _read_until(
    output: OutputBuffer, wanted: Wanted, separators: list[bytes], limit: int
) -> bytes:
    taken: list[OutputChunk] = []
    data = bytearray()
    # A separator may begin in one chunk and end in the next.
    longest = max(map(len, separators))
    try:
        while True:
            chunk = await output.take(wanted)
            if chunk is None:
                partial = bytes(data)
                taken.clear()
                raise OutputEnded(partial, separators)
            since = max(0, len(data) - longest + 1)
            taken.append(chunk)
            data += chunk.data
            ends = [
                (at, at + len(separator))
                for separator in separators
                if (at := data.find(separator, since)) >= 0
            ]
            if ends:
                end = min(ends)[1]
                if end < len(data):
                    rest = bytes(data[end:])
                    output.put_back(OutputChunk(chunk.seq, chunk.stream, rest))
                taken.clear()
                return bytes(data[:end])
            if len(data) > limit:
                text = f"no separator within {limit} bytes"
                raise asyncio.LimitOverrunError(text, len(data))
    finally:
        # There are none unless it was broken off.
        for chunk in reversed(taken):
            output.put_back(chunk)


class Lines:
    """An asynchronous iterator of the lines of the *wanted* output.

    Lines of two streams come in the order of their ends. What a reader that leaves early has not
    got stays for the next one; a generator would be closed too late for that.
    """

    def __init__(
        self, output: OutputBuffer, wanted: Wanted, *, limit: int, owner: object, is_text: bool
    ) -> None:
        self._output = output
        self._wanted = wanted
        self._limit = limit
        self._owner = owner
        self._is_text = is_text
        # What was taken and not given out yet, of each stream; whole lines are in the first one.
        self._rests: dict[str, _Rest] = {}
        self._newest: _Rest | None = None

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> Any:
        line = await self._next()
        return line.decode(errors="replace") if self._is_text else line

    async def _next(self) -> bytes:
        while True:
            if self._newest is not None:
                line = self._newest.next_line()
                if line is not None:
                    return line
                if len(self._newest.data) > self._limit:
                    size = len(self._newest.data)
                    self._put_back()
                    text = f"no newline within {self._limit} bytes"
                    raise asyncio.LimitOverrunError(text, size)
                self._newest = None
            chunk = await self._output.take(self._wanted)
            if chunk is None:
                return self._last()
            self._newest = self._rests.setdefault(chunk.stream, _Rest())
            self._newest.add(chunk)

    def _last(self) -> bytes:
        """A line that has no newline, because the output has ended."""
        while self._rests:
            _, rest = self._rests.popitem()
            if rest.data:
                return rest.data
        raise StopAsyncIteration

    def _put_back(self) -> None:
        rests, self._rests, self._newest = self._rests, {}, None
        for rest in rests.values():
            if rest.chunk is not None and len(rest.data) > rest.start:
                self._output.put_back(rest.chunk._replace(data=rest.data[rest.start :]))

    async def aclose(self) -> None:
        """Leave the rest to the next reader."""
        self._put_back()

    def __del__(self) -> None:
        self._put_back()


class _Rest:
    """Output of one stream that is not given out yet."""

    def __init__(self) -> None:
        self.data = b""
        self.start = 0
        # The last chunk of it.
        self.chunk: OutputChunk | None = None

    def add(self, chunk: OutputChunk) -> None:
        self.data += chunk.data
        self.chunk = chunk

    def next_line(self) -> bytes | None:
        end = self.data.find(b"\n", self.start) + 1
        if not end:
            self.data, self.start = self.data[self.start :], 0
            return None
        start, self.start = self.start, end
        return self.data[start:end]
