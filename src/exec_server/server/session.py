"""A session: one logical client with its processes, and its connection while one is attached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from exec_server.limits import Limits
from exec_server.process.process_table import ProcessTable
from exec_server.process.pump import OutputGate, Parked
from exec_server.protocol import file_watch, network
from exec_server.rpc.peer import Peer
from exec_server.state.attachment import SessionId
from exec_server.transport.connection import Connection

if TYPE_CHECKING:
    from exec_server.access.principal import Principal
    from exec_server.files.agents.watches import Watches
    from exec_server.files.file_service import FileService
    from exec_server.process.durable.durable_jobs import SessionJobs
    from exec_server.protocol.method import Event
    from exec_server.server.sharing.process_watches import ProcessWatch
    from exec_server.server.streams.stream_table import StreamTable


P = TypeVar("P")


class Session:
    """Outlives its connections. Events of its processes go to the attached connection."""

    def __init__(
        self,
        session_id: SessionId,
        *,
        limits: Limits,
        make_processes: Callable[[Session], ProcessTable],
    ) -> None:
        self._make_processes = make_processes
        # Its processes; None before they are first asked for.
        self.made_processes: ProcessTable | None = None
        self.id = session_id
        self.gate = OutputGate()
        # The principal of the client that has made it.
        self.owner = ""
        # The rights of the connection that has, or had, the session.
        self._rights: Principal | None = None
        # The retention that the client asked for; None is the server's default.
        self.retained_seconds: float | None = None
        # Its durable jobs; None if this server keeps no state.
        self.jobs: SessionJobs | None = None
        # Its byte streams; None before the first one.
        self.streams: StreamTable | None = None
        # Its watches, by the ids that the client has given them; and whether the client understands
        # the events about them.
        self.watches: dict[str, ProcessWatch] = {}
        self.hears_sharing = False
        # What its client calls itself.
        self.client_name = ""
        self.is_attached = False
        self._connection: Connection | None = None
        self._peer: Peer | None = None
        self._limits = limits
        self._file_watches: Watches | None = None

    @property
    def processes(self) -> ProcessTable:
        """Its processes; the table is made when it is first asked for."""
        if self.made_processes is None:
            self.made_processes = self._make_processes(self)
        return self.made_processes

    @property
    def has_processes(self) -> bool:
        """True if a process of it is not forgotten yet."""
        return bool(self.made_processes)

    @property
    def is_kept(self) -> bool:
        """True if it has durable jobs, and so does not end while it is detached."""
        return bool(self.jobs)

    def use_rights(self, who: Principal) -> None:
        """The next connection has the rights of *who*.

        If these are others than before, what was judged once, when it was opened, ends: streams go
        around floors that are new, and a watch may be on a process of another principal.
        """
        if self._rights is not None and self._rights != who:
            for watch in tuple(self.watches.values()):
                watch.end()
            if self.streams is not None:
                self.streams.close()
                self.streams = None
        self._rights = who

    def attach(self, connection: Connection, peer: Peer) -> None:
        self._connection = connection
        self._peer = peer
        self.is_attached = True
        if self.streams is not None:
            self.streams.attached(is_paused=peer.is_writing_paused)

    def detach(self) -> None:
        """Go on without a connection. Events are only retained, so output does not have to wait."""
        self._connection = self._peer = None
        self.is_attached = False
        self.hears_sharing = False
        self.gate.open()
        if self.streams is not None:
            self.streams.detached()
        if self._file_watches is not None:
            self._file_watches.detach()
        for watch in tuple(self.watches.values()):
            watch.detached()

    def push(self, *parts: bytes) -> None:
        """Send an event to the attached client. Without one, only the log keeps it."""
        if self._connection is not None:
            self._connection.send(*parts)

    def push_bulk(self, before: bytes, data: bytes, after: bytes) -> None:
        """`push` an event in which the base64 of *data* stands between two texts."""
        if self._peer is not None:
            self._peer.send_bulk(before, data, after)

    def notify(self, event: Event[P], params: P) -> None:
        """Send an event that is not repeated to the attached client, if there is one."""
        if self._peer is not None:
            self._peer.notify(event, params)

    @property
    def is_writing_paused(self) -> bool:
        """True if the attached client is behind with reading."""
        return self._peer is not None and self._peer.is_writing_paused

    def interrupt(self) -> None:
        """Lose the connection, if there is one; its client may resume the session."""
        if self._connection is not None:
            self._connection.abort()

    def ask_policy(self, params: network.PolicyRequestParams) -> asyncio.Future[Any] | None:
        """Ask the attached client; None if there is none, or if too many questions are open."""
        peer = self._peer
        if peer is None or peer.calls_under_way >= self._limits.policy_questions:
            return None
        return peer.call(network.POLICY_REQUEST, params)

    def ask_grant(
        self, process_id: str, protocol: str, host: str, port: int
    ) -> asyncio.Future[bool] | None:
        """Whether a host that no rule allows is granted; None if it will not be."""
        return self.processes.ask_host(process_id, protocol, host, port)

    def report_decision(self, event: network.PolicyDecisionEvent) -> None:
        """Tell the attached client, unless it is behind with reading."""
        self.processes.refused_host(event)
        if self._peer is not None and not self._peer.is_writing_paused:
            self._peer.notify(network.POLICY_DECISION, event)

    # Watches of files.

    def file_watches_of(self, service: FileService) -> Watches:
        """The watches of this session, made with the first one."""
        if self._file_watches is None:
            from exec_server.files.agents.watches import Watches

            self._file_watches = Watches(service, push=self._files_changed, park=self._park)
        return self._file_watches

    def _files_changed(self, event: file_watch.FilesChangedEvent) -> None:
        if self._peer is not None:
            self._peer.notify(file_watch.FILES_CHANGED, event)

    def _park(self, watch: Parked) -> bool:
        """Keep *watch* until the client has caught up; False if it is not behind."""
        if self.gate.is_open:
            return False
        self.gate.park(watch)
        return True

    def close(self) -> None:
        self._connection = self._peer = None
        self.is_attached = False
        for watch in tuple(self.watches.values()):
            watch.end()
        if self.made_processes is not None:
            self.made_processes.close()
        if self.streams is not None:
            self.streams.close()
        if self._file_watches is not None:
            self._file_watches.close()

    def pause_output(self) -> None:
        """The connection takes no more for now."""
        self.gate.close()
        if self.streams is not None:
            self.streams.turns.close()

    def resume_output(self) -> None:
        """The connection takes data again."""
        self.gate.open()
        if self.streams is not None:
            self.streams.turns.open()
        for watch in tuple(self.watches.values()):
            watch.writing_resumed()
