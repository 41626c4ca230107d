"""One logical client: its processes, and the connection that now hears of them, if any."""

from __future__ import annotations

from exec_server.process.pump import Gate
from exec_server.process.table import ProcessTable
from exec_server.state.attachment import SessionId
from exec_server.transport.connection import Connection


class Session:
    """Outlives its connections; its processes talk to whichever is attached."""

    processes: ProcessTable

    def __init__(self, session_id: SessionId) -> None:
        self.id = session_id
        self.gate = Gate()
        self._connection: Connection | None = None

    @property
    def is_attached(self) -> bool:
        return self._connection is not None

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    def detach(self) -> None:
        """Go on without a client: events are only retained, so nothing holds the output back."""
        self._connection = None
        self.gate.open()

    def push(self, *parts: bytes) -> None:
        """Send an event to the attached client, or nowhere: the log has it."""
        if self._connection is not None:
            self._connection.send(*parts)

    def close(self) -> None:
        self._connection = None
        self.processes.close()
