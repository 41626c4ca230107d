"""SessionStreams: gives each session its table of streams, with the server's rules and budget."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from exec_server.limits import Limits
from exec_server.server.session import Session
from exec_server.server.streams.stream_rules import StreamRules
from exec_server.server.streams.stream_table import StreamTable
from exec_server.state.window import WindowBudget
from exec_server.streams.pace import BulkPace

if TYPE_CHECKING:
    from exec_server.server.server_audit import ServerAudit


class SessionStreams:
    """What the streams of all sessions share."""

    def __init__(
        self, stream_allow: Iterable[str], *, limits: Limits, audit: ServerAudit | None
    ) -> None:
        self._rules = StreamRules(stream_allow)
        self._limits = limits
        self._audit = audit
        # Small input of processes counts as well as small messages of streams.
        self.pace = BulkPace(asyncio.get_running_loop())
        self._windows = WindowBudget(
            total_bytes=limits.stream_total_bytes,
            max_window=limits.stream_window,
            free_bytes=limits.stream_min_window,
        )

    def table_of(self, session: Session, *, is_paused: bool) -> StreamTable:
        """The table of *session*, made with its first request."""
        if session.streams is None:
            session.streams = StreamTable(
                session,
                rules=self._rules,
                limits=self._limits,
                windows=self._windows,
                pace=self.pace,
            )
            if self._audit is not None:
                session.streams.on_over = partial(self._audit.stream_ended, session)
            session.streams.attached(is_paused=is_paused)
        return session.streams
