"""The WebSockets of executors and harnesses: their signed URLs are checked, then they are joined.

A refusal here uses a reason and a status that the reference knows, which is OpenAI Codex's own
`codex exec-server`. Its executor registers again after any 4xx. Its harness asks for a new URL
after a 401 and for nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager

import msgspec
from aiohttp import web

from exec_server.errors import RelayError
from exec_server.hub.access.refusals import no_socket
from exec_server.hub.access.signing import Pass
from exec_server.hub.bus import BusUnavailable
from exec_server.hub.cluster.node_messages import Presence
from exec_server.hub.cluster.passages import Passage
from exec_server.hub.cluster.registration import LiveRegistration
from exec_server.hub.cluster.registrations import Registrations
from exec_server.hub.http import admission_gate
from exec_server.hub.http.connection_guard import ConnectionGuard
from exec_server.hub.http.handover import HandedOver, hand_over
from exec_server.hub.observe import telemetry
from exec_server.hub.observe.audit import Audit
from exec_server.hub.relay.corks import Corks
from exec_server.hub.relay.queue_memory import Memory
from exec_server.hub.relay.relay_socket import BUFFER_BYTES, READ_BYTES, RelaySocket
from exec_server.hub.relay.routing import (
    GOING_AWAY,
    POLICY_VIOLATION,
    TRY_AGAIN_LATER,
    Exchange,
    Frame,
)
from exec_server.hub.store import Store, StoreUnavailable
from exec_server.hub.store.entities import AccessToken, Environment
from exec_server.limits import Limits
from exec_server.protocol.registry import SUPERSEDED_REASON

logger = logging.getLogger(__name__)

_STOPS = "the registry stops"
# A farm may have one token for all of its executors, so that one may have most of the sockets. One
# place in sixteen is left for other tokens.
_EXECUTORS_PER_FREE = 15


class Rendezvous:
    """The rendezvous sockets of this node."""

    def __init__(
        self,
        store: Store,
        registrations: Registrations,
        audit: Audit,
        *,
        limits: Limits,
        clock: Callable[[], float],
        connections: ConnectionGuard,
        allows_plaintext: bool = False,
    ) -> None:
        self._store = store
        self._connections = connections
        self._corks = Corks()
        # All sockets read to it in turns.
        self._room = bytearray(READ_BYTES)
        self._registrations = registrations
        self._audit = audit
        self._limits = limits
        self._clock = clock
        self._allows_plaintext = allows_plaintext
        self._loop = asyncio.get_running_loop()
        # The open sockets by the id of the token that they were opened with.
        self._live: defaultdict[str, set[RelaySocket]] = defaultdict(set)
        # The places that are taken, in all and by the id of the token, and also for sockets that
        # are about to be opened.
        self._sockets = 0
        self._places: Counter[str] = Counter()
        self._none_left = asyncio.Event()
        self._none_left.set()
        self.is_draining = False
        self.harnesses = 0
        # The frames and bytes of exchanges that have ended.
        self.frames = 0
        self.bytes = 0

    @property
    def memory(self) -> Memory:
        return self._registrations.memory

    @property
    def sockets(self) -> int:
        return self._sockets

    # Executors.

    async def serve_executor(
        self, request: web.Request, granted: Pass, *, address: str
    ) -> web.StreamResponse:
        environment = await self._expected(granted)
        await self._check_generation(environment, granted)
        token = await self._good_token(granted.token_id)
        with self._place(token, per_free=_EXECUTORS_PER_FREE):
            socket = self._open(request, environment, takes_text=True)
            registration = self._registration(environment, socket, address=address)
            with self._served(socket, token):
                await self._carry_executor(registration, token)
        return HandedOver()

    def _registration(
        self, environment: Environment, socket: RelaySocket, *, address: str
    ) -> LiveRegistration:
        exchange = Exchange(
            socket, memory=self.memory, limits=self._limits, environment_id=environment.id
        )
        socket.on_taken(exchange.executor_took)
        return LiveRegistration(
            environment_id=environment.id,
            registration_id=environment.registration_id,
            generation=environment.generation,
            socket=socket,
            exchange=exchange,
            address=address,
            since=self._clock(),
        )

    async def _carry_executor(self, registration: LiveRegistration, token: AccessToken) -> None:
        exchange, loop = registration.exchange, self._loop
        name, address = registration.environment_id, registration.address
        # The last callback runs first. All of them run, even if one raises or is cancelled.
        async with AsyncExitStack() as leaving:
            leaving.push_async_callback(self._note, "executor offline", name, token, address)
            leaving.push_async_callback(self._registrations.leave, registration)
            leaving.callback(self._count_of, exchange)
            leaving.callback(registration.socket.give_up)
            leaving.callback(exchange.end, "the executor is gone")
            await self._begin_to_serve(registration)
            admission_gate.leave()
            await self._note("executor online", name, token, address)
            await registration.socket.carry(
                lambda data: exchange.from_executor(data, now=loop.time())
            )

    async def _begin_to_serve(self, registration: LiveRegistration) -> None:
        # The bus may need seconds to write the owner record. The slot is of use to others then.
        admission_gate.leave(self._limits.hub_admission_lent)
        try:
            is_serving = await self._registrations.serve(registration)
            # A newer registration may have come while the socket was opened.
            newest = await self._store.environment(registration.environment_id)
        except (BusUnavailable, StoreUnavailable) as exc:
            logger.warning("%s cannot be served: %s", registration.environment_id, exc)
            registration.socket.end(TRY_AGAIN_LATER, "the registry cannot reach what it needs")
            return
        newest_id = None if newest is None else newest.registration_id
        if not is_serving or newest_id != registration.registration_id:
            registration.socket.end(GOING_AWAY, SUPERSEDED_REASON)

    async def _check_generation(self, environment: Environment, granted: Pass) -> None:
        if environment.registration_id == granted.registration_id:
            return
        # A 4xx would make this executor register again and replace the newer one. Two executors of
        # one name would do that in turn for ever, so the older one waits while the newer one lives.
        is_fresh = self._clock() - environment.registered_at < self._limits.hub_registration_grace
        if is_fresh or await self.presence(environment) is not None:
            raise no_socket("route_unavailable")
        raise no_socket("unexpected_executor_registration_id")

    async def supersede(self, environment_id: str, generation: int) -> None:
        """End the sockets of older registrations at once, because a newer one has come."""
        await self._registrations.supersede(environment_id, generation)

    async def presence(self, environment: Environment, *, token_id: str = "") -> Presence | None:
        """The connected executor of the newest registration; None if there is none.

        If *token_id* is given, `has_room` is that for a harness with this token.
        """
        # Other nodes may need seconds to answer. The slot is of use to others then.
        admission_gate.leave(self._limits.hub_admission_lent)
        found = await self._registrations.find(environment.id, token_id=token_id)
        is_newest = found is not None and found.registration_id == environment.registration_id
        return found if is_newest else None

    # Harnesses.

    async def serve_harness(
        self, request: web.Request, granted: Pass, *, address: str
    ) -> web.StreamResponse:
        environment = await self._expected(granted)
        # After a 401 the harness asks for a new URL, which is what it needs here.
        if environment.registration_id != granted.registration_id:
            raise no_socket("unexpected_executor_registration_id", status=401)
        await self._check_room(environment, granted.token_id)
        token = await self._good_token(granted.token_id)
        if not await self._store.open_authorization(granted.authorization_id, now=self._clock()):
            raise no_socket("expired")
        return await self.join(request, environment, token=token, address=address)

    async def join(
        self, request: web.Request, environment: Environment, *, token: AccessToken, address: str
    ) -> web.StreamResponse:
        """Upgrade *request* and join its socket to the environment's executor."""
        await self._check_room(environment, token.id)
        with self._place(token, per_free=1):
            socket = self._open(request, environment, takes_text=False)
            with self._served(socket, token):
                passage = await self._join(environment, socket, token.id)
                admission_gate.leave()
                if passage is None:
                    socket.end(GOING_AWAY, "the executor is gone")
                    await socket.carry(lambda data: None)
                else:
                    await self._converse(socket, passage, environment.id, token, address)
        return HandedOver()

    async def _join(
        self, environment: Environment, socket: RelaySocket, token_id: str
    ) -> Passage | None:
        try:
            return await self._registrations.join(
                environment.id, environment.registration_id, socket, token_id=token_id
            )
        except BusUnavailable as exc:
            logger.warning("%s cannot be reached: %s", environment.id, exc)
            return None

    async def _converse(
        self,
        socket: RelaySocket,
        passage: Passage,
        environment_id: str,
        token: AccessToken,
        address: str,
    ) -> None:
        exchange, loop = passage.exchange, self._loop

        def receive(data: Frame) -> None:
            try:
                exchange.from_harness(passage.harness, data, now=loop.time())
            except RelayError as exc:
                socket.end(POLICY_VIOLATION, str(exc))

        self.harnesses += 1
        # The last callback runs first. All of them run, even if one raises or is cancelled.
        async with AsyncExitStack() as leaving:
            leaving.push_async_callback(
                self._note, "harness offline", environment_id, token, address
            )
            if passage.channel is not None:
                leaving.callback(self._count_of, exchange)
            leaving.callback(socket.give_up)
            leaving.callback(self._registrations.close, passage)
            leaving.callback(self._harness_left)
            await self._note("harness online", environment_id, token, address)
            await socket.carry(receive)

    def _harness_left(self) -> None:
        self.harnesses -= 1

    async def _check_room(self, environment: Environment, token_id: str) -> None:
        presence = await self.presence(environment, token_id=token_id)
        if presence is None:
            raise no_socket("route_unavailable", status=401)
        # One token must not use up the places of the executor, nor those of this node.
        if not presence.has_room or not self._has_place(token_id, per_free=1):
            raise no_socket("route_unavailable")

    # Executors and harnesses.

    async def _expected(self, granted: Pass) -> Environment:
        if self.is_draining:
            raise no_socket("pod_draining")
        environment = await self._store.environment(granted.environment_id)
        if environment is None:
            raise no_socket("unknown_route")
        return environment

    async def _good_token(self, token_id: str) -> AccessToken:
        token = await self._store.token(token_id)
        if token is None or not token.is_good(self._clock()):
            raise no_socket("expired")
        return token

    def _open(
        self, request: web.Request, environment: Environment, *, takes_text: bool
    ) -> RelaySocket:
        """Answer the upgrade."""
        if self.is_draining:
            raise no_socket("pod_draining")
        if environment.is_plaintext and not self._allows_plaintext:
            # The executor registered while plaintext was allowed. It registers again after this
            # answer, and the refusal of that tells it why.
            raise no_socket("unexpected_executor_registration_id")
        most = self._limits.relay_frame_bytes
        if environment.is_plaintext:
            most += self._limits.message_bytes
        socket = RelaySocket(
            limits=self._limits, message_bytes=most, corks=self._corks, takes_text=takes_text
        )
        limits = msgspec.structs.replace(self._limits, frame_bytes=most)
        hand_over(
            request,
            lambda: socket,
            limits=limits,
            read_bytes=READ_BYTES,
            buffer_bytes=BUFFER_BYTES,
            room=self._room,
        )
        self._connections.forget(request.protocol)
        telemetry.upgraded()
        return socket

    def _has_place(self, token_id: str, *, per_free: int) -> bool:
        """True if a token may have another socket here: *per_free* for each that is free."""
        free = self._limits.hub_sockets - self._sockets
        return self._places[token_id] < per_free * free

    @contextmanager
    def _place(self, token: AccessToken, *, per_free: int) -> Iterator[None]:
        """Take a place for a socket that is about to be opened. Raises RegistryRefusal.

        It counts before anything else is awaited, so that many upgrades at the same moment cannot
        all get the last place.
        """
        if not self._has_place(token.id, per_free=per_free):
            raise no_socket("route_unavailable")
        self._sockets += 1
        self._places[token.id] += 1
        self._none_left.clear()
        try:
            yield
        finally:
            self._places[token.id] -= 1
            if not self._places[token.id]:
                del self._places[token.id]
            self._sockets -= 1
            if not self._sockets:
                self._none_left.set()

    @contextmanager
    def _served(self, socket: RelaySocket, token: AccessToken) -> Iterator[None]:
        """Let an open socket end with its token or with this node, and catch its failures."""
        self._live[token.id].add(socket)
        if self.is_draining:
            socket.cut(GOING_AWAY, _STOPS)
        try:
            yield
        except (BusUnavailable, StoreUnavailable) as exc:
            logger.warning("a rendezvous socket failed: %s", exc)
            socket.abort()
        except Exception:
            # The upgrade was answered long ago, so no HTTP answer can report this.
            logger.exception("a rendezvous socket failed")
            socket.abort()
        finally:
            self._live[token.id].discard(socket)
            if not self._live[token.id]:
                del self._live[token.id]

    def _count_of(self, exchange: Exchange) -> None:
        self.frames += exchange.frames
        self.bytes += exchange.bytes

    async def _note(self, name: str, environment_id: str, token: AccessToken, address: str) -> None:
        await self._audit.note(name, token=token, environment_id=environment_id, address=address)
        logger.info("%s: %s", name, environment_id)

    async def end_revoked(self) -> None:
        """End the sockets whose tokens were revoked or have expired."""
        if not self._live:
            return
        for token_id in await self._store.ended_tokens(tuple(self._live), now=self._clock()):
            for socket in tuple(self._live.get(token_id, ())):
                socket.cut(POLICY_VIOLATION, "the token is no longer good")
            await self._audit.note("token ended", token_id=token_id)

    async def drain(self) -> None:
        """Refuse new sockets, and end all open ones."""
        self.is_draining = True
        for sockets in tuple(self._live.values()):
            for socket in tuple(sockets):
                socket.cut(GOING_AWAY, _STOPS)
        try:
            async with asyncio.timeout(self._limits.close_timeout * 3):
                await self._none_left.wait()
        except TimeoutError:
            logger.warning("%d sockets are still open", self._sockets)
