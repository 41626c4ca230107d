"""A search by `rg` without an agent: the server reads what it prints.

An agent is a Python that starts, which takes longer than ripgrep needs for a small tree. Patterns
of ripgrep take linear time, so the process needs no supervision but a deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import msgspec

from exec_server.files.agents.agent_process import Agent, StartedAgent
from exec_server.files.agents.ripgrep_output import RipgrepOutput
from exec_server.protocol.file_search import SearchEnd, SearchMatch


class RipgrepRun(Agent):
    """Owns a `rg --json`. *on_matches* gets what it finds, and *on_done* is called once at its end,
    unless it was closed from this side."""

    # What is decoded in one turn of the event loop.
    read_bytes = 64 * 1024

    def __init__(
        self,
        started: StartedAgent,
        root: bytes,
        most: int,
        *,
        on_matches: Callable[[list[SearchMatch]], None],
        on_done: Callable[[list[SearchMatch], SearchEnd], None],
    ) -> None:
        self._output = RipgrepOutput()
        self._root, self._most = root, most
        self._count = 0
        self._on_matches = on_matches
        self._on_done = on_done
        super().__init__(started, on_line=_ignore, on_end=_ignore)

    def _received(self, data: bytes) -> None:
        try:
            found = self._within_limit(list(self._output.take(data)))
        except (msgspec.MsgspecError, ValueError):
            self._end([], SearchEnd("failed", "the search failed: rg printed nonsense"))
            return
        if self._count > self._most:
            self._end(found, SearchEnd("matches"))
        elif found:
            self._on_matches(found)

    def _within_limit(self, found: list[SearchMatch]) -> list[SearchMatch]:
        """*found* until more matches than were asked for have come."""
        for index, each in enumerate(found):
            self._count += not each.is_context
            if self._count > self._most:
                return list(islice(found, index))
        return found

    def _finish(self, text: str) -> None:
        if not self.is_closed:
            process = self._process
            self._end([], self._output.end(process.exit_code, process.last_words, self._root))

    def _end(self, found: list[SearchMatch], end: SearchEnd) -> None:
        end.engine, end.matches = "ripgrep", min(self._count, self._most)
        self.close()
        self._on_done(found, end)


def _ignore(_: object) -> None:
    """Lines and ends are taken by the methods above."""
