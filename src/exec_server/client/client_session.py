"""The inside of a client: its session, its calls, and the receivers of the server's events.

The module is long because every part of a client is told here of events, losses and recoveries.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
from collections.abc import Callable
from typing import TypeVar

import msgspec

from exec_server.client import tracing
from exec_server.client.arguments import Word, as_path
from exec_server.client.connect_options import (
    ExecServerClientConnectOptions,
    UrlOptions,
    as_options,
)
from exec_server.client.connection_link import ConnectionLink
from exec_server.client.files.change_reports import FileWatches
from exec_server.client.files.missing_watch import MissingWatches
from exec_server.client.files.search_results import FileSearches
from exec_server.client.flow.flow_control import FlowControl
from exec_server.client.http.response_body import HttpBodies
from exec_server.client.link_watch import LinkWatch
from exec_server.client.network_policy import NetworkPolicy
from exec_server.client.os_errors import as_os_error
from exec_server.client.process.tracked_processes import TrackedProcesses
from exec_server.client.process.watched_processes import WatchedProcesses
from exec_server.client.session_link import DISCONNECTED, ConnectionState, Dialler, SessionLink
from exec_server.client.session_token import SessionToken
from exec_server.client.streams.client_streams import ClientStreams
from exec_server.errors import (
    CallTimeout,
    ConfigurationError,
    ConnectionClosed,
    MethodNotFound,
    RpcError,
    SessionAttached,
)
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol import environment
from exec_server.protocol.denials import DeniedEvent
from exec_server.protocol.file_search import SearchFoundEvent
from exec_server.protocol.file_watch import FilesChangedEvent
from exec_server.protocol.fs import FAMILY, MissingChangedEvent
from exec_server.protocol.http import BodyDelta
from exec_server.protocol.lifecycle import RETAIN, InitializeResult, RetainParams
from exec_server.protocol.method import NOTHING, Method
from exec_server.protocol.network import PolicyDecisionEvent
from exec_server.protocol.paths import from_uri, to_uri
from exec_server.protocol.process import START, AckParams
from exec_server.protocol.sharing import ControlChangedEvent, PresenceEvent, WatchedEvent
from exec_server.protocol.streams import FAMILY as STREAM_FAMILY
from exec_server.protocol.streams import (
    AcceptedEvent,
    DataEvent,
    EndEvent,
    ResetEvent,
    StreamAckEvent,
)
from exec_server.rpc.router import Route
from exec_server.state.event_order import ProcessEvent
from exec_server.transport.connection import Connection

P = TypeVar("P")
R = TypeVar("R")

StrPath = str | os.PathLike[str]
StreamEvents = DataEvent | StreamAckEvent | EndEvent | ResetEvent | AcceptedEvent

# The errors of these methods are OSErrors where the server's system has refused something.
_OF_THE_SYSTEM = (FAMILY, START.family, STREAM_FAMILY)

_STREAM_EVENTS = (DataEvent, StreamAckEvent, EndEvent, ResetEvent, AcceptedEvent)


class _DefaultTimeout:
    """The deadline that the options give to every call."""


_DEFAULT = _DefaultTimeout()


class ClientSession:
    """Everything that the parts of one client share; users see only what these parts offer.

    It makes calls over the connection that the session has at the moment, and it hands the events
    of that connection to the part that they concern.
    """

    def __init__(
        self,
        options: ExecServerClientConnectOptions,
        *,
        dialler: Dialler | None = None,
        on_state: Callable[[ConnectionState], None] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Without a *dialler* a lost connection is not replaced."""
        self.options = options
        self.limits = limits
        # The number of calls that the server runs at once for this client.
        self.concurrency = 1
        # The random text of the server's run, if the server says it.
        self.server_instance: str | None = None
        # False for servers older than sessions, which take native paths.
        self.uses_uris = True
        self.flow = FlowControl(self, limits=limits)
        # True once the windows were given up, because the client leaves.
        self._has_released = False
        self.policy = NetworkPolicy()
        self.processes = TrackedProcesses(self, limits=limits)
        self.watched = WatchedProcesses(self)
        self.watches = MissingWatches()
        self.file_watches = FileWatches()
        self.searches = FileSearches()
        self.bodies = HttpBodies(limits=limits, flow=self.flow)
        self.streams = ClientStreams(self, limits=limits)
        self.link = SessionLink(
            self, options, limits=limits, flow=self.flow, dialler=dialler, on_state=on_state
        )
        self._watch = LinkWatch(
            limits=limits,
            is_needed=self._is_waiting,
            is_reading=lambda: self.flow.is_reading,
            give_up=self.link.give_up,
        )
        self._info: environment.EnvironmentInfo | None = None
        # What a server without `environment/info` has answered.
        self._without_info: MethodNotFound | None = None

    @property
    def connection(self) -> ConnectionLink | None:
        """The connection in use; None while there is none."""
        return self.link.link

    @property
    def offers_flow(self) -> bool:
        """True if the server has said that it knows output windows."""
        return self.has_announced("processFlow")

    def has_announced(self, capability: str) -> bool:
        """True if the server has said, without being asked now, that it has *capability*."""
        return self._info is not None and bool(self._info.capabilities.get(capability))

    def acknowledge(self, process_id: str, seq: int | None) -> bool:
        """Send `process/ack`; False if there is no connection. None gives up the window."""
        connection = self.connection
        if connection is None or connection.is_lost:
            return False
        connection.acknowledge(AckParams(process_id, seq))
        return True

    # The session.

    def token(self) -> str:
        """The text with which another client continues this session."""
        if self.link.session_id is None:
            raise ConfigurationError("this server has no sessions")
        return str(SessionToken(self.link.session_id, self.processes.cursors()))

    async def retain(self, seconds: float) -> float:
        """Ask for the session to be kept while no client is connected; returns what is granted."""
        granted = (await self.call(RETAIN, RetainParams(seconds), repeat=True)).seconds
        self.link.retained_seconds = granted if seconds > 0 else None
        return granted

    def has_durable_process(self) -> None:
        """The session has a durable process, so the server keeps it as long as it ever does."""
        if self.link.retained_seconds is None:
            # The server does not say how long that is. Its default does no harm: a session that the
            # server no longer has is given up at once.
            self.link.retained_seconds = self.limits.max_detached_session_seconds

    def close(self) -> None:
        """Disconnect. The processes of a retained session do not wait for a reader."""
        self._release()
        self.streams.close()
        self.link.close()

    def _release(self) -> None:
        """Give up the windows of a retained session, once, and ask for an answer after that.

        Without the answer the server might not hear of it: if it finds out that the client has
        closed the socket, because it cannot send, it does not read what came before.
        """
        if self.link.retained_seconds is None or self._has_released:
            return
        self._has_released = True
        if self.flow.release_all() and self.connection is not None:
            self.connection.confirm()

    async def settle(self) -> None:
        """Wait for a moment until requests that were sent without waiting are answered."""
        self._release()
        self.streams.close()
        if self.connection is not None:
            with self.flow.calling():
                await self.connection.settle(self.limits.close_timeout)

    async def take_over(self, dialler: Dialler, seconds: float, *, force: bool) -> None:
        """Connect to a session that the server may still see attached to its last connection.

        With *force* another client that holds it loses it at once.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            try:
                return await self.link.open(await dialler(), takes_over=True, force=force)
            except SessionAttached:
                if loop.time() + self.limits.recovery_pause > deadline:
                    raise
            await asyncio.sleep(self.limits.recovery_pause)

    # Calls.

    async def call(
        self,
        method: Method[P, R],
        params: P,
        *,
        seconds: float | _DefaultTimeout | None = _DEFAULT,
        repeat: bool = False,
    ) -> R:
        """The answer to a request, which waits for a connection when there is none.

        With *repeat* the request is made again if the connection is lost before the answer.
        """
        if isinstance(seconds, _DefaultTimeout):
            seconds = self.options.call_timeout
        try:
            with tracing.calling(method.name, params) as trace:
                return await self._ask(method, params, seconds=seconds, repeat=repeat, trace=trace)
        except RpcError as exc:
            raise (as_os_error(exc) if method.family in _OF_THE_SYSTEM else exc) from None

    async def _ask(
        self,
        method: Method[P, R],
        params: P,
        *,
        seconds: float | None,
        repeat: bool,
        trace: bytes | None,
    ) -> R:
        is_sent = False
        try:
            with self.flow.calling():
                async with asyncio.timeout(seconds):
                    while True:
                        connection = await self.link.connected_link()
                        is_sent = True
                        self._watch.wake()
                        try:
                            return await connection.call(method, params, seconds=None, trace=trace)
                        except ConnectionClosed:
                            if not repeat:
                                raise
        except TimeoutError:
            text = f"{method.name} was not answered within {seconds:g} s"
            raise CallTimeout(text, may_have_run=is_sent) from None
        except ConnectionClosed as exc:
            if not is_sent:
                raise
            text = f"{exc}: {method.name} may have been carried out"
            raise type(exc)(text, may_have_run=True) from exc

    async def call_on(self, link: ConnectionLink, method: Method[P, R], params: P) -> R:
        """The answer to a request that goes through *link* or not at all, without a deadline."""
        with tracing.calling(method.name, params) as trace, self.flow.calling():
            self._watch.wake()
            return await link.call(method, params, seconds=None, trace=trace)

    def _is_waiting(self) -> bool:
        """True if the client waits for the server, so that it has to notice a dead connection."""
        is_following = (
            self.file_watches or self.searches or self.streams.has_open or self.watched.has_open
        )
        is_busy = self.flow.is_calling or self.processes.has_living or self.bodies.has_open
        return is_busy or bool(is_following)

    def send(self, method: Method[P, R], params: P) -> None:
        """Make a request without waiting for its answer, if there is a connection."""
        if self.connection is not None and not self.connection.is_lost:
            self.connection.send(method, params)

    # The server and its machine.

    async def environment_info(self) -> environment.EnvironmentInfo:
        """What the server says about its machine; it is asked at most once."""
        if self._without_info is not None:
            raise self._without_info
        if self._info is None:
            try:
                self._info = await self._ask_info()
            except MethodNotFound as exc:
                self._without_info = exc
                raise
        return self._info

    async def sandbox_info(self) -> environment.SandboxInfo | None:
        """How the server enforces sandboxes; None from a server that does not say."""
        info = await self.environment_info()
        if not info.sandbox:
            # The handshake may have come before the server knew it.
            self._info = info = await self._ask_info()
        return info.sandbox or None

    async def _ask_info(self) -> environment.EnvironmentInfo:
        return await self.call(environment.INFO, NOTHING, seconds=self.limits.info_timeout)

    async def offers(self, capability: str) -> bool:
        """True if the server says that it has *capability*."""
        try:
            return bool((await self.environment_info()).capabilities.get(capability))
        except RpcError:
            return False

    async def require(self, capability: str, otherwise: str) -> None:
        """Raise MethodNotFound if the server lists its capabilities and this is not among them."""
        try:
            info = await self.environment_info()
        except RpcError:
            return
        if not info.capabilities.get(capability):
            raise MethodNotFound(f"the server does not offer {capability}: {otherwise}")

    async def resolve(self, cwd: Word | None) -> str:
        """A working directory in the form that the server wants."""
        text = "" if cwd is None else as_path(cwd, "cwd")
        if text.startswith("file:"):
            return text
        if not text.startswith("/"):
            text = posixpath.join(await self.server_cwd(), text)
        return to_uri(text) if self.uses_uris else text

    async def server_cwd(self) -> str:
        """The server's own working directory."""
        try:
            info = await self.environment_info()
        except RpcError:
            # Old servers do not know this method.
            return "/"
        return os.fsdecode(from_uri(info.cwd)) if info.cwd else "/"

    # The reports of the session link; see SessionListener.

    @property
    def routes(self) -> dict[str, Route]:
        return self.policy.routes

    def event_received(
        self,
        event: ProcessEvent
        | MissingChangedEvent
        | FilesChangedEvent
        | SearchFoundEvent
        | BodyDelta
        | PolicyDecisionEvent
        | DeniedEvent
        | WatchedEvent
        | PresenceEvent
        | ControlChangedEvent
        | StreamEvents,
    ) -> None:
        if isinstance(event, _STREAM_EVENTS):
            self.streams.event_received(event)
        elif isinstance(event, MissingChangedEvent):
            self.watches.event_received(event)
        elif isinstance(event, FilesChangedEvent):
            self.file_watches.event_received(event)
        elif isinstance(event, SearchFoundEvent):
            self.searches.event_received(event)
        elif isinstance(event, BodyDelta):
            self.bodies.delta_received(event)
        elif isinstance(event, PolicyDecisionEvent):
            self.policy.decision_received(event)
        elif isinstance(event, DeniedEvent):
            self.processes.denied(event)
        elif isinstance(event, WatchedEvent | PresenceEvent | ControlChangedEvent):
            self.watched.event_received(event)
        else:
            self.processes.event_received(event)

    def connected(self, result: InitializeResult, link: ConnectionLink) -> None:
        self.concurrency = result.concurrent_requests or 1
        if self._is_restarted(result):
            # Another release may offer other things.
            self._info = self._without_info = None
        self.server_instance = result.server_instance
        self._info = self._info or result.environment_info
        self.uses_uris = result.session_id is not None
        self.processes.connected(link)
        self.streams.connected(link)
        self._watch.use(link)

    def connection_lost(self) -> None:
        self._watch.use(None)
        self.watches.connection_lost()
        self.searches.connection_lost()
        self.bodies.connection_lost(ConnectionClosed(DISCONNECTED))
        self.processes.connection_lost()
        self.streams.connection_lost()

    def flow_taken(self) -> dict[str, int]:
        return self.flow.taken()

    async def restore(self, result: InitializeResult, link: ConnectionLink) -> None:
        self._watch.use(link)
        await self.streams.restore(link)
        await self.processes.restore(link, is_restarted=self._is_restarted(result))
        await self.file_watches.restore(link)
        await self.watched.restore(link)

    def _is_restarted(self, result: InitializeResult) -> bool:
        """True if another run of the server goes on with the session."""
        return None not in (self.server_instance, result.server_instance) and (
            self.server_instance != result.server_instance
        )

    def session_lost(self, error: ConnectionClosed) -> None:
        self.processes.session_lost(error)
        self.streams.session_lost(error)
        self.file_watches.session_lost(error)
        self.watched.session_lost(error)


async def open_session(
    dialler: Dialler, options: UrlOptions, *, can_redial: bool = True
) -> ClientSession:
    """Connect by means of *dialler*, which can make another connection if *can_redial*.

    The session of a session token may still be attached to its last connection; then the attempt
    is repeated for `connect_timeout` seconds.
    """
    token = None if options.session_token is None else SessionToken.parse(options.session_token)
    handshake = as_options(ExecServerClientConnectOptions, options)
    if token is not None:
        handshake = msgspec.structs.replace(handshake, resume_session_id=token.session_id)
    session = ClientSession(
        handshake,
        dialler=dialler if options.reconnect and can_redial else None,
        on_state=options.on_state,
        limits=options.limits,
    )
    session.policy.on_request = options.on_policy_request
    session.policy.on_decision = options.on_policy_decision
    if token is None:
        await session.link.open(await dialler())
    else:
        session.processes.continue_from(token.cursors)
        await session.take_over(dialler, options.connect_timeout, force=options.take_over)
    return session


async def open_session_over(
    connection: Connection,
    options: ExecServerClientConnectOptions | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> ClientSession:
    """Shake hands over a connection that is there already, and that cannot be replaced."""
    session = ClientSession(options or ExecServerClientConnectOptions(), limits=limits)
    await session.link.open(connection)
    return session
