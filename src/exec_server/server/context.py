"""The context of a handler: one connection, its handshake, and the session that it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from exec_server.access.principal import NO_FLOORS, Principal, Scope, unrestricted
from exec_server.errors import (
    InvalidParams,
    InvalidRequest,
    ProtocolError,
    QuotaReached,
    RuleRefused,
    ScopeRefused,
)
from exec_server.limits import Limits
from exec_server.process.child import Child
from exec_server.process.process_table import ProcessTable
from exec_server.protocol import file_search, fs, http, lifecycle, process, streams
from exec_server.protocol.environment import EnvironmentInfo
from exec_server.protocol.lifecycle import InitializeParams
from exec_server.rpc import boundary
from exec_server.rpc.peer import Peer
from exec_server.rpc.router import Route
from exec_server.server.floors.principal_floors import PrincipalFloors, floors_of
from exec_server.server.floors.quotas import ServerQuotas
from exec_server.server.principals.admission import Admission, own_principal
from exec_server.server.principals.restricted_routes import scope_refused
from exec_server.server.session import Session
from exec_server.transport.connection import Connection

if TYPE_CHECKING:
    from exec_server.discovery.discovery_service import Discovery
    from exec_server.files.agents.searches import Searches
    from exec_server.files.agents.watches import Watches
    from exec_server.files.file_service import Files, FileService
    from exec_server.outbound.exchanges import Exchanges, Outbound
    from exec_server.screens.screens import Screens
    from exec_server.server.kept_sessions import KeptSessions
    from exec_server.server.server_audit import ServerAudit
    from exec_server.server.sharing.process_watches import ProcessWatch, Sharing
    from exec_server.server.streams.stream_table import StreamTable


FindPrincipal = Callable[[Connection], Principal]

# The parts of a context that are made when they are first used, and end with the connection.
_HOLDERS = ("files", "exchanges", "searches")


class ServerCore(Protocol):
    """The parts of `ExecServer` that a connection and its handlers use."""

    limits: Limits
    instance: str
    routes: dict[str, Route]
    # The durable jobs; None if the server keeps no state.
    jobs: KeptSessions | None
    # None if no audit log is kept.
    audit: ServerAudit | None
    # The variables that the server was started with.
    server_env: Mapping[str, str]
    # Finds the principal of a connection; None gives each one what it was admitted with.
    find_principal: FindPrincipal | None
    # Called for each request that a rule refuses: the principal, the method and the rule.
    on_rule_refused: Callable[[Principal, str, str], None]
    quotas: ServerQuotas
    # Asks the program around the server to stop it; None if it cannot be asked.
    on_stop: Callable[[], None] | None

    @property
    def environment_info(self) -> EnvironmentInfo: ...

    async def full_environment_info(self) -> EnvironmentInfo: ...

    # These are made when they are first asked for.

    @property
    def files(self) -> FileService: ...

    @property
    def discovery(self) -> Discovery: ...

    @property
    def screens(self) -> Screens: ...

    @property
    def http_loaded(self) -> asyncio.Future[ModuleType]: ...

    @property
    def is_http_loaded(self) -> bool: ...

    @property
    def outbound(self) -> Outbound: ...

    @property
    def sharing(self) -> Sharing: ...

    @property
    def sessions(self) -> Collection[Session]: ...

    # Sessions.

    def open_session(self, context: Context, params: InitializeParams) -> Session: ...

    def attach(self, context: Context) -> None: ...

    def generation(self, session: Session) -> int: ...

    def doubtful_holder(self, context: Context, params: InitializeParams) -> Context | None: ...

    def displace(self, holder: Context) -> None: ...

    def retain(self, session: Session, seconds: float) -> float: ...

    def release(self, context: Context) -> None: ...

    # Streams.

    def streams_of(self, session: Session, context: Context) -> StreamTable: ...

    def sessions_of(self, context: Context, *, is_all: bool) -> Iterator[Session]: ...

    def stream_infos(self, context: Context, *, is_all: bool) -> Iterator[streams.StreamInfo]: ...

    # Principals.

    def routes_for(self, who: Principal) -> dict[str, Route]: ...

    def refused(self, context: Context, what: str, *, scope: Scope | None = None) -> None: ...


class Context:
    """One connection to the server. It refuses work before `initialize` and `initialized`."""

    def __init__(self, server: ServerCore, connection: Connection) -> None:
        self.server = server
        self.connection = connection
        self.session: Session | None = None
        # The principal of the connection, with its rights and floors.
        self.who = self._find_principal()
        self._has_floors = self.who.floors != NO_FLOORS
        self.routes = server.routes_for(self.who)
        if server.audit is not None:
            self.routes = server.audit.routes(self.routes)
        # How many requests run at once; the client may raise it in `initialize`.
        self.concurrency = server.limits.concurrent_requests
        self._is_ready = False
        # Why this connection gets no session, if there is a reason.
        self.refusal: QuotaReached | None = None
        self.peer = Peer(
            connection, self, limits=server.limits, context=self, on_refused=self._refused
        )

    def require(self, family: str) -> Session:
        """The session, if the handshake is complete. Raises an error that names *family*."""
        if self.session is None:
            raise InvalidRequest(f"client must call initialize before using {family} methods")
        if not self._is_ready:
            raise InvalidRequest(f"client must send initialized before using {family} methods")
        return self.session

    @property
    def processes(self) -> ProcessTable:
        return self.require(process.START.family).processes

    def watch(self, watch_id: str) -> ProcessWatch | None:
        """The watch of that id, if the session has one."""
        session = self.session
        return session.watches.get(watch_id) if session is not None and session.watches else None

    def holder(self, process_id: str) -> ProcessTable | ProcessWatch:
        """The watch of that id, or else the processes of the session."""
        session = self.session
        if session is not None and self._is_ready and not session.watches:
            # Nearly always.
            made = session.made_processes
            return session.processes if made is None else made
        watch = self.watch(process_id)
        return self.processes if watch is None else watch

    def child(self, process_id: str) -> Child:
        """The process of that id, or that of a watch. Raises InvalidRequest."""
        watch = self.watch(process_id)
        return self.processes.find(process_id) if watch is None else watch.child

    @property
    def streams(self) -> StreamTable:
        """The byte streams of the session."""
        return self.server.streams_of(self.require(streams.FAMILY), self)

    @property
    def principal(self) -> str:
        """Whose connection this is."""
        return self.who.name

    def _find_principal(self) -> Principal:
        find = self.server.find_principal
        if find is not None:
            return find(self.connection)
        admission = self.connection.identity
        if isinstance(admission, Admission):
            return admission.principal
        return unrestricted(self.connection.principal or own_principal())

    @property
    def floors(self) -> PrincipalFloors | None:
        """What requests cannot go beyond; None if there is no such rule. Raises FloorRefused."""
        return self._own_floors if self._has_floors else None

    @cached_property
    def _own_floors(self) -> PrincipalFloors | None:
        return floors_of(
            self.who,
            server_env=self.server.server_env,
            refused=partial(self.server.on_rule_refused, self.who, process.START.name),
        )

    def _refused(self, method: str, error: RuleRefused) -> None:
        self.server.on_rule_refused(self.who, method, error.message)

    def require_scope(self, scope: Scope, what: str) -> None:
        """Raise ScopeRefused, and report it, unless the principal has *scope*, to do *what*."""
        if not self.who.has(scope):
            raise self.refuse_scope(scope, what)

    def refuse_scope(self, scope: Scope, what: str) -> ScopeRefused:
        """The error for a principal that lacks *scope* to do *what*; it is reported."""
        self.server.refused(self, what, scope=scope)
        return scope_refused(self.who, scope)

    @property
    def can_acknowledge(self) -> bool:
        """True if acknowledgements overtake requests. A write may wait for one that follows it."""
        return self.concurrency > 1

    @cached_property
    def files(self) -> Files:
        """The files of the connection. Handles end with it, also if the session is resumed."""
        self.require(fs.FAMILY)
        tell_missing = partial(self.peer.notify, fs.MISSING_CHANGED)
        return self.server.files.connect(tell_missing, is_packed=self.peer.sends_packed)

    @cached_property
    def searches(self) -> Searches:
        """The searches of the connection, which end with it."""
        from exec_server.files.agents.searches import Searches

        self.require(fs.FAMILY)
        searches = Searches(self.server.files, partial(self.peer.notify, file_search.SEARCH_FOUND))
        if self.peer.is_writing_paused:
            searches.writing_paused()
        return searches

    @property
    def watches(self) -> Watches:
        """The watches of the session, which outlive the connection."""
        return self.require(fs.FAMILY).file_watches_of(self.server.files)

    @cached_property
    def exchanges(self) -> Exchanges:
        """The HTTP requests of the connection, which end with it."""
        self.require(http.REQUEST.family)
        exchanges = self.server.outbound.connect(self.connection.send, **self._http_terms())
        if self.peer.is_writing_paused:
            exchanges.writing_paused()
        return exchanges

    def _http_terms(self) -> dict[str, Any]:
        floors = self.floors
        if floors is None:
            return {}
        check = None if floors.hosts is None else floors.hosts.check
        return {"environ": floors.server_env, "check_host": check}

    @property
    def _holders(self) -> list[Files | Exchanges | Searches]:
        """The parts of this connection that have been made so far."""
        return [self.__dict__[name] for name in _HOLDERS if name in self.__dict__]

    # Called by the peer.

    def notification_received(self, method: str, params: Any) -> None:
        if method == process.ACK.name and self._is_ready:
            self._acknowledge(params)
            return
        if method in streams.FROM_CLIENTS and self._is_ready:
            self._stream_event(method, params)
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
        watch = self.watch(decoded.process_id)
        if watch is None:
            self.processes.acknowledge(decoded)
        else:
            watch.watcher.acknowledge(decoded.seq)

    def _stream_event(self, method: str, params: Any) -> None:
        session = self.session
        if session is None or session.streams is None:
            return
        try:
            session.streams.event_received(streams.FROM_CLIENTS[method], params)
        except InvalidParams as exc:
            raise ProtocolError(str(exc)) from exc

    def writing_paused(self) -> None:
        if self.session is not None:
            self.session.pause_output()
        for holder in self._holders:
            holder.writing_paused()

    def writing_resumed(self) -> None:
        if self.session is not None:
            self.session.resume_output()
        for holder in self._holders:
            holder.writing_resumed()

    def connection_lost(self) -> None:
        for holder in self._holders:
            holder.close()
        self.server.release(self)
