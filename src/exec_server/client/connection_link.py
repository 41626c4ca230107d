"""ConnectionLink: one live connection of a client, with its handshake, calls and events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from exec_server.client.connect_options import ExecServerClientConnectOptions
from exec_server.errors import (
    CallTimeout,
    ConnectError,
    ConnectionClosed,
    InvalidParams,
    ProtocolError,
)
from exec_server.limits import Limits
from exec_server.protocol import (
    denials,
    file_search,
    file_watch,
    fs,
    http,
    lifecycle,
    network,
    process,
    sharing,
    streams,
)
from exec_server.protocol.method import NOTHING, Event, Method
from exec_server.rpc import boundary
from exec_server.rpc.peer import Peer
from exec_server.rpc.router import Route
from exec_server.streams.turns import StreamTurns
from exec_server.transport.connection import Audible, Connection, Pingable

P = TypeVar("P")
R = TypeVar("R")

_EVENTS: dict[str, Event[Any]] = {
    event.name: event
    for event in (
        process.OUTPUT,
        process.EXITED,
        process.CLOSED,
        fs.MISSING_CHANGED,
        file_search.SEARCH_FOUND,
        file_watch.FILES_CHANGED,
        http.BODY_DELTA,
        network.POLICY_DECISION,
        denials.DENIED,
        streams.ACCEPTED,
        streams.DATA,
        streams.END,
        streams.ACK,
        streams.RESET,
        sharing.WATCHED,
        sharing.PRESENCE,
        sharing.CONTROL_CHANGED,
    )
}


def announces(result: lifecycle.InitializeResult, capability: str) -> bool:
    """True if the server says in the handshake that it has *capability*."""
    info = result.environment_info
    return info is not None and bool(info.capabilities.get(capability))


class ConnectionLink:
    """A connection that a client uses until it is lost; the next connection gets its own object.

    A request of the server that *routes* does not know is answered with "unknown method", and an
    unknown notification is ignored. A notification that does not decode ends the connection; so
    does a request whose id is not a non-negative integer, or is in use by another open request.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        limits: Limits,
        on_event: Callable[[Any], None],
        on_lost: Callable[[ConnectionLink], None],
        routes: dict[str, Route] | None = None,
    ) -> None:
        self.routes = routes or {}
        # The turns of the streams that use this connection.
        self.turns: StreamTurns | None = None
        self._on_event = on_event
        self._on_lost = on_lost
        self._lost = asyncio.Event()
        self._unwatched: set[asyncio.Future[Any]] = set()
        # The latest moment to close, while the last answers are awaited.
        self._closing: asyncio.TimerHandle | None = None
        self._connection = connection
        self._peer = Peer(connection, self, limits=limits, is_strict=False)
        self._peer.take_packed()
        # True if the server answers `session/ping` even while it works on another request.
        self._knows_ping = False
        # A slow answer to a request of the server must not delay anything else.
        self._peer.allow_concurrency(limits.policy_questions)

    async def initialize(
        self,
        options: ExecServerClientConnectOptions,
        *,
        flow_processes: dict[str, int] | None = None,
        take_over: lifecycle.TakeOver | None = None,
    ) -> lifecycle.InitializeResult:
        """Do the whole handshake. Raises the server's error if it refuses.

        *flow_processes* are the processes of a resumed session that keep their windows. *take_over*
        says how the session is taken from another connection.
        """
        params = lifecycle.InitializeParams(
            options.client_name,
            options.resume_session_id,
            # One call at a time is the default of every server.
            options.concurrent_requests if options.concurrent_requests > 1 else None,
            flow_processes or None,
            take_over,
            error_details=True,
            sharing=True,
            packed=self._peer.takes_packed,
        )
        try:
            result = await self.call(
                lifecycle.INITIALIZE, params, seconds=options.initialize_timeout
            )
        except CallTimeout:
            raise ConnectError(
                f"the server did not answer `initialize` within {options.initialize_timeout:g} s"
            ) from None
        except ConnectionClosed as exc:
            raise ConnectError(self._why_no_handshake()) from exc
        asked = options.resume_session_id
        if asked is not None and result.session_id != asked:
            raise ProtocolError(f"session {asked} was asked for and another one resumed")
        self._peer.notify(lifecycle.INITIALIZED, NOTHING)
        if result.packed:
            self._peer.send_packed()
        is_concurrent = (result.concurrent_requests or 1) > 1
        self._knows_ping = is_concurrent and announces(result, "sessionPing")
        return result

    def _why_no_handshake(self) -> str:
        violation = self._peer.violation
        is_program = self._connection.transport_name == "stdio"
        if violation is None:
            if is_program:
                return "the program that leads to the server has ended without an answer"
            return "the server ended the connection during the handshake"
        why = f"what answers there is not an exec-server: {violation}"
        if is_program:
            why += "; the program must print nothing but messages on its standard output"
        return why

    async def call(
        self,
        method: Method[P, R],
        params: P,
        *,
        seconds: float | None,
        trace: bytes | None = None,
    ) -> R:
        """The answer to a request, whose `trace` member is *trace*.

        Raises RpcError if the server refuses, ConnectionClosed if the connection is lost, and
        CallTimeout after *seconds*; in the last two cases the request may have been carried out.
        """
        answer = self._peer.call(method, params, trace=trace)
        try:
            async with asyncio.timeout(seconds):
                result = await answer
        except TimeoutError:
            raise CallTimeout(f"{method.name} was not answered within {seconds:g} s") from None
        return boundary.decode_result(method.result, result)

    def send(self, method: Method[P, R], params: P) -> asyncio.Future[Any]:
        """Make a request to clean up, without waiting for it; its result may be ignored."""
        answer = self._peer.call(method, params, is_cleanup=True)
        self._unwatched.add(answer)
        answer.add_done_callback(self._ignore)
        return answer

    def acknowledge(self, params: process.AckParams) -> None:
        """Send `process/ack`; only servers with `processFlow` know it."""
        self._peer.notify(process.ACK, params)

    def notify(self, event: Event[P], params: P) -> None:
        """Send an event; only servers that have announced it know it."""
        self._peer.notify(event, params)

    def send_bulk(self, before: bytes, data: bytes, after: bytes) -> None:
        """Send one message, in which the base64 of *data* stands between two texts."""
        self._peer.send_bulk(before, data, after)

    def _ignore(self, answer: asyncio.Future[Any]) -> None:
        self._unwatched.discard(answer)
        if not answer.cancelled():
            answer.exception()
        if self._closing is not None and not self._unwatched:
            self._peer.close()

    async def settle(self, seconds: float) -> None:
        """Wait until what was sent with `send` is answered, but not longer than *seconds*.

        Closing a socket that has unread input resets it, and then the last requests are lost.
        """
        if self._unwatched:
            await asyncio.wait(self._unwatched, timeout=seconds)

    # Signs of life.

    @property
    def activity(self) -> object:
        """A value that changes while bytes come from the server, or a backlog leaves for it."""
        connection = self._connection
        departed = connection.departed if isinstance(connection, Audible) else None
        return self._peer.arrived, departed

    def confirm(self) -> None:
        """Ask for an answer, which `settle` waits for, if this server can be asked."""
        if self._knows_ping:
            self.send(lifecycle.PING, NOTHING)

    def probe(self) -> bool:
        """Ask for a sign of life; False if this server cannot be asked over this transport."""
        if self._knows_ping:
            self.send(lifecycle.PING, NOTHING)
            return True
        if isinstance(self._connection, Pingable):
            self._connection.ping()
            return True
        return False

    @property
    def is_lost(self) -> bool:
        return self._peer.is_lost

    def abort(self) -> None:
        """End the connection without saying goodbye."""
        self._connection.abort()

    def close(self, *, settle: float = 0.0) -> None:
        """Begin to close the connection; `wait_lost` waits for the end.

        What was sent with `send` is answered before that, but it waits no longer than *settle*.
        """
        if not self._unwatched or settle <= 0 or self.is_lost:
            self._peer.close()
        elif self._closing is None:
            self._closing = asyncio.get_running_loop().call_later(settle, self._peer.close)

    async def wait_lost(self) -> None:
        await self._lost.wait()

    # Calls from the peer.

    def notification_received(self, method: str, params: Any) -> None:
        event = _EVENTS.get(method)
        if event is None:
            return
        try:
            decoded = boundary.decode_params(event.params, params)
        except InvalidParams as exc:
            if event in (network.POLICY_DECISION, denials.DENIED, sharing.PRESENCE):
                # It is only a report, and nothing depends on it.
                return
            raise ProtocolError(f"{method}: {exc}") from exc
        self._on_event(decoded)

    @property
    def is_writing_paused(self) -> bool:
        return self._peer.is_writing_paused

    def writing_paused(self) -> None:
        """Streams wait. Nothing else has to: each handle has one write under way at a time."""
        if self.turns is not None:
            self.turns.close()

    def writing_resumed(self) -> None:
        if self.turns is not None:
            self.turns.open()

    def connection_lost(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
        self._lost.set()
        self._on_lost(self)
