"""One logical client: its processes, and the connection that now hears of them, if any."""

from __future__ import annotations

import asyncio
from typing import Any

from exec_server.limits import Limits
from exec_server.process.process_table import ProcessTable
from exec_server.process.pump import OutputGate
from exec_server.protocol import network
from exec_server.rpc.peer import Peer
from exec_server.state.attachment import SessionId
from exec_server.transport.connection import Connection


class Session:
    """Outlives its connections; its processes talk to whichever is attached."""

    processes: ProcessTable

    def __init__(self, session_id: SessionId, *, limits: Limits) -> None:
        self.id = session_id
        self.gate = OutputGate()
        # How long it is kept without a connection, where that is not the server's own time.
        self.retained_seconds: float | None = None
        self._connection: Connection | None = None
        self._peer: Peer | None = None
        self._limits = limits

    @property
    def is_attached(self) -> bool:
        return self._connection is not None

    def attach(self, connection: Connection, peer: Peer) -> None:
        self._connection = connection
        self._peer = peer

    def detach(self) -> None:
        """Go on without a client: events are only retained, so nothing holds the output back."""
        self._connection = self._peer = None
        self.gate.open()

    def push(self, *parts: bytes) -> None:
        """Send an event to the attached client, or nowhere: the log has it."""
        if self._connection is not None:
            self._connection.send(*parts)

    def ask_policy(self, params: network.PolicyRequestParams) -> asyncio.Future[Any] | None:
        """Ask the attached client; None when there is none, or it has enough open questions."""
        peer = self._peer
        if peer is None or peer.calls_under_way >= self._limits.policy_questions:
            return None
        return peer.call(network.POLICY_REQUEST, params)

    def report_decision(self, event: network.PolicyDecisionEvent) -> None:
        """Tell the attached client, unless it is behind: nobody depends on it."""
        if self._peer is not None and not self._peer.is_writing_paused:
            self._peer.notify(network.POLICY_DECISION, event)

    def close(self) -> None:
        self._connection = self._peer = None
        self.processes.close()
