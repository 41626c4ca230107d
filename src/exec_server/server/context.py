"""What a handler is given: one connection, its handshake, and the session it holds."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from exec_server.errors import InvalidParams, InvalidRequest, ProtocolError
from exec_server.process.process_table import ProcessTable
from exec_server.protocol import fs, http, lifecycle, process
from exec_server.rpc import boundary
from exec_server.rpc.peer import Peer
from exec_server.transport.connection import Connection

if TYPE_CHECKING:
    from exec_server.files.file_service import Files
    from exec_server.outbound.exchanges import Exchanges
    from exec_server.server.server import ExecServer
    from exec_server.server.session import Session


class Context:
    """One connection to the server; refuses work before `initialize` and `initialized`."""

    def __init__(self, server: ExecServer, connection: Connection) -> None:
        self.server = server
        self.connection = connection
        self.session: Session | None = None
        self.routes = server.routes
        # What the client asked for, or what the command line grants everybody.
        self.concurrency = server.limits.concurrent_requests
        self._is_ready = False
        self.peer = Peer(connection, self, limits=server.limits, context=self)

    def require(self, family: str) -> Session:
        """The session, once the handshake is complete; the error names the method's family."""
        if self.session is None:
            raise InvalidRequest(f"client must call initialize before using {family} methods")
        if not self._is_ready:
            raise InvalidRequest(f"client must send initialized before using {family} methods")
        return self.session

    @property
    def processes(self) -> ProcessTable:
        return self.require(process.START.family).processes

    @property
    def can_acknowledge(self) -> bool:
        """Whether acknowledgements overtake requests: a write may wait for one behind it."""
        return self.concurrency > 1

    @cached_property
    def files(self) -> Files:
        """What belongs to the connection alone: a resumed session finds no handles of before."""
        self.require(fs.FAMILY)
        return self.server.files.connect(partial(self.peer.notify, fs.MISSING_CHANGED))

    @property
    def has_files(self) -> bool:
        """Whether a file was ever asked for."""
        return "files" in self.__dict__

    @cached_property
    def exchanges(self) -> Exchanges:
        """Requests to other machines, which end with the connection."""
        self.require(http.REQUEST.family)
        exchanges = self.server.outbound.connect(self.connection.send)
        if self.peer.is_writing_paused:
            exchanges.writing_paused()
        return exchanges

    @property
    def _holders(self) -> list[Files | Exchanges]:
        """What was made for this connection, so far."""
        return [self.__dict__[name] for name in ("files", "exchanges") if name in self.__dict__]

    # What the peer reports.

    def notification_received(self, method: str, params: Any) -> None:
        if method == process.ACK.name and self._is_ready:
            self._acknowledge(params)
            return
        if method != lifecycle.INITIALIZED.name:
            raise ProtocolError(f"unexpected notification `{method}`")
        if self.session is None:
            raise ProtocolError("`initialized` came before a successful `initialize`")
        if not self._is_ready:
            self._is_ready = True
            self.peer.allow_concurrency(self.concurrency)

    def _acknowledge(self, params: Any) -> None:
        try:
            decoded = boundary.decode_params(process.ACK.params, params)
        except InvalidParams as exc:
            raise ProtocolError(f"{process.ACK.name}: {exc}") from exc
        self.processes.acknowledge(decoded)

    def writing_paused(self) -> None:
        if self.session is not None:
            self.session.gate.close()
        for holder in self._holders:
            holder.writing_paused()

    def writing_resumed(self) -> None:
        if self.session is not None:
            self.session.gate.open()
        for holder in self._holders:
            holder.writing_resumed()

    def connection_lost(self) -> None:
        for holder in self._holders:
            holder.close()
        self.server.release(self)
