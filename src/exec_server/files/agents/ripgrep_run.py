"""A search by `rg` without an agent: the server reads what it prints.

An agent is a Python that starts, which takes longer than ripgrep needs for a small tree. Patterns
of ripgrep take linear time, so the process needs no supervision but a deadline.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable

import msgspec

from exec_server.files.agents.agent_process import Agent, StartedAgent
from exec_server.files.agents.ripgrep_output import RipgrepOutput
from exec_server.protocol.file_search import FileHits, SearchEnd

# rg prints in bursts. With the usual 64 KiB it and the server wait for one another.
_PIPE_BYTES = 256 * 1024


class RipgrepRun(Agent):
    """Owns a `rg --json`. *on_found* gets what it finds, and *on_done* is called once at its end,
    unless it was closed from this side."""

    # What is decoded in one turn of the event loop.
    read_bytes = 128 * 1024

    def __init__(
        self,
        started: StartedAgent,
        root: bytes,
        most: int,
        *,
        on_found: Callable[[list[FileHits]], None],
        on_done: Callable[[list[FileHits], SearchEnd], None],
    ) -> None:
        self._output = RipgrepOutput()
        self._root, self._most = root, most
        self._count = 0
        self._on_found = on_found
        self._on_done = on_done
        _enlarge(started.stdout)
        super().__init__(started, on_line=_ignore, on_end=_ignore)

    def _received(self, data: bytes) -> None:
        try:
            found = self._within_limit(self._output.take(data))
        except (msgspec.MsgspecError, ValueError):
            self._end([], SearchEnd("failed", "the search failed: rg printed nonsense"))
            return
        if self._count > self._most:
            self._end(found, SearchEnd("matches"))
        elif found:
            self._on_found(found)

    def _within_limit(self, found: list[FileHits]) -> list[FileHits]:
        """*found* until more matches than were asked for have come."""
        for index, each in enumerate(found):
            room = self._most - self._count
            self._count += each.match_count
            if self._count > self._most:
                return [*found[:index], each.first(room)]
        return found

    def _finish(self, text: str) -> None:
        if not self.is_closed:
            process = self._process
            self._end([], self._output.end(process.exit_code, process.last_words, self._root))

    def _end(self, found: list[FileHits], end: SearchEnd) -> None:
        end.engine, end.matches = "ripgrep", min(self._count, self._most)
        self.close()
        self._on_done(found, end)


def _enlarge(pipe: int) -> None:
    """Let rg print more before it waits, unless its user has too many large pipes already."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _ignore(_: object) -> None:
    """Lines and ends are taken by the methods above."""
