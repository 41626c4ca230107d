"""Both ends of the relay meet here: sockets are let in by their URLs and joined by environment."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from exec_server.errors import RelayError
from exec_server.hub.access.refusals import no_socket
from exec_server.hub.access.signing import Pass
from exec_server.hub.bus import BusUnavailable
from exec_server.hub.cluster.node_messages import Presence
from exec_server.hub.cluster.passages import Passage
from exec_server.hub.cluster.registration import Seat
from exec_server.hub.cluster.registrations import Seats
from exec_server.hub.http import admission_gate
from exec_server.hub.observe.audit import Audit
from exec_server.hub.relay.relay_socket import Link
from exec_server.hub.relay.routing import (
    GOING_AWAY,
    POLICY_VIOLATION,
    TRY_AGAIN_LATER,
    Exchange,
    Memory,
)
from exec_server.hub.store import Store, StoreUnavailable
from exec_server.hub.store.entities import Environment, Token
from exec_server.limits import Limits

logger = logging.getLogger(__name__)


class Rendezvous:
    """The sockets of this node."""

    def __init__(
        self,
        store: Store,
        seats: Seats,
        audit: Audit,
        *,
        limits: Limits,
        clock: Callable[[], float],
        allows_plaintext: bool = False,
    ) -> None:
        self._store = store
        self._seats = seats
        self._audit = audit
        self._limits = limits
        self._clock = clock
        self._allows_plaintext = allows_plaintext
        self._loop = asyncio.get_running_loop()
        self._live: defaultdict[str, set[Link]] = defaultdict(set)
        self._sockets = 0
        self._none_left = asyncio.Event()
        self._none_left.set()
        self.is_draining = False
        self.harnesses = 0
        # Of exchanges that have ended.
        self.frames = 0
        self.bytes = 0

    @property
    def memory(self) -> Memory:
        return self._seats.memory

    @property
    def sockets(self) -> int:
        return self._sockets

    # The executor.

    async def serve_executor(
        self, request: web.Request, granted: Pass, *, address: str
    ) -> web.StreamResponse:
        environment = await self._expected(granted)
        await self._check_generation(environment, granted)
        token = await self._good_token(granted.token_id)
        socket = self._new_socket(environment)
        await socket.prepare(request)
        link = Link(socket, request, limits=self._limits, takes_text=True)
        exchange = Exchange(link, memory=self._seats.memory, limits=self._limits)
        link.tell(exchange.executor_took)
        seat = Seat(
            environment_id=environment.id,
            registration_id=environment.registration_id,
            generation=environment.generation,
            link=link,
            exchange=exchange,
            address=address,
            since=self._clock(),
        )
        with self._counted(link, token):
            await self._sit(seat, token)
        return socket

    async def _sit(self, seat: Seat, token: Token) -> None:
        exchange, loop = seat.exchange, self._loop
        try:
            await self._take(seat)
            admission_gate.leave()
            await self._note("executor online", seat.environment_id, token, seat.address)
            await seat.link.carry(lambda data: exchange.from_executor(data, now=loop.time()))
        finally:
            exchange.end("the executor is gone")
            seat.link.give_up()
            self._count_of(exchange)
            await self._seats.leave(seat)
            await self._note("executor offline", seat.environment_id, token, seat.address)

    async def _take(self, seat: Seat) -> None:
        # The fence may be away for seconds, and others do without it as well.
        admission_gate.leave(self._limits.hub_admission_lent)
        try:
            has_seat = await self._seats.take(seat)
            # It may have been replaced while its socket came about.
            newest = await self._store.environment(seat.environment_id)
        except (BusUnavailable, StoreUnavailable) as exc:
            logger.warning("no seat for %s: %s", seat.environment_id, exc)
            seat.link.end(TRY_AGAIN_LATER, "the registry cannot reach what it needs")
            return
        if not has_seat or newest is None or newest.registration_id != seat.registration_id:
            seat.link.end(GOING_AWAY, "a newer registration serves this environment")

    async def _check_generation(self, environment: Environment, granted: Pass) -> None:
        if environment.registration_id == granted.registration_id:
            return
        # A 4xx makes it register again and replace the newer one. Two of one name would do that in
        # turn for ever, so the older has to wait while the newer lives.
        is_fresh = self._clock() - environment.registered_at < self._limits.hub_registration_grace
        if is_fresh or await self.presence(environment) is not None:
            raise no_socket("route_unavailable")
        raise no_socket("unexpected_executor_registration_id")

    async def supersede(self, environment_id: str, generation: int) -> None:
        """A newer registration has come: the older one's socket ends at once."""
        await self._seats.supersede(environment_id, generation)

    async def presence(self, environment: Environment) -> Presence | None:
        """Where the executor of the newest registration is connected."""
        # Other nodes may take their time to answer.
        admission_gate.leave(self._limits.hub_admission_lent)
        found = await self._seats.find(environment.id)
        is_newest = found is not None and found.registration_id == environment.registration_id
        return found if is_newest else None

    # The harness.

    async def serve_harness(
        self, request: web.Request, granted: Pass, *, address: str
    ) -> web.StreamResponse:
        environment = await self._expected(granted)
        # A 401 gets the harness a new bundle, which is what it needs here.
        if environment.registration_id != granted.registration_id:
            raise no_socket("unexpected_executor_registration_id", status=401)
        await self._check_room(environment)
        token = await self._good_token(granted.token_id)
        if not await self._store.open_authorization(granted.authorization_id, now=self._clock()):
            raise no_socket("expired")
        return await self.join(request, environment, token=token, address=address)

    async def join(
        self, request: web.Request, environment: Environment, *, token: Token, address: str
    ) -> web.StreamResponse:
        """Make the socket of *request* a harness of the environment's executor."""
        await self._check_room(environment)
        socket = self._new_socket(environment)
        await socket.prepare(request)
        link = Link(socket, request, limits=self._limits)
        with self._counted(link, token):
            passage = await self._join(environment, link)
            admission_gate.leave()
            if passage is None:
                await socket.close(code=GOING_AWAY, message=b"the executor is gone")
                return socket
            await self._converse(link, passage, environment.id, token, address)
        return socket

    async def _join(self, environment: Environment, link: Link) -> Passage | None:
        try:
            return await self._seats.join(environment.id, environment.registration_id, link)
        except BusUnavailable as exc:
            logger.warning("no way to %s: %s", environment.id, exc)
            return None

    async def _converse(
        self, link: Link, passage: Passage, environment_id: str, token: Token, address: str
    ) -> None:
        exchange, loop = passage.exchange, self._loop

        def receive(data: bytes) -> None:
            try:
                exchange.from_harness(passage.harness, data, now=loop.time())
            except RelayError as exc:
                link.end(POLICY_VIOLATION, str(exc))

        self.harnesses += 1
        try:
            await self._note("harness online", environment_id, token, address)
            await link.carry(receive)
        finally:
            self.harnesses -= 1
            self._seats.close(passage)
            link.give_up()
            if passage.channel is not None:
                self._count_of(exchange)
            await self._note("harness offline", environment_id, token, address)

    async def _check_room(self, environment: Environment) -> None:
        presence = await self.presence(environment)
        if presence is None:
            raise no_socket("route_unavailable", status=401)
        if not presence.has_room:
            raise no_socket("route_unavailable")

    # Both.

    async def _expected(self, granted: Pass) -> Environment:
        if self.is_draining:
            raise no_socket("pod_draining")
        environment = await self._store.environment(granted.environment_id)
        if environment is None:
            raise no_socket("unknown_route")
        return environment

    async def _good_token(self, token_id: str) -> Token:
        token = await self._store.token(token_id)
        if token is None or not token.is_good(self._clock()):
            raise no_socket("expired")
        return token

    def _new_socket(self, environment: Environment) -> web.WebSocketResponse:
        if self.is_draining:
            raise no_socket("pod_draining")
        if environment.is_plaintext and not self._allows_plaintext:
            # It registered while that was still allowed; to register again tells it why.
            raise no_socket("unexpected_executor_registration_id")
        if self._sockets >= self._limits.hub_sockets:
            raise no_socket("route_unavailable")
        # aiohttp wants to be told the first size that is too large.
        most = self._limits.relay_frame_bytes + 1
        if environment.is_plaintext:
            most += self._limits.message_bytes
        return web.WebSocketResponse(
            timeout=self._limits.close_timeout,
            autoping=False,
            compress=False,
            max_msg_size=most,
            decode_text=False,
        )

    @contextmanager
    def _counted(self, link: Link, token: Token) -> Iterator[None]:
        self._sockets += 1
        self._none_left.clear()
        self._live[token.id].add(link)
        try:
            yield
        except (BusUnavailable, StoreUnavailable) as exc:
            logger.warning("a rendezvous socket failed: %s", exc)
            link.abort()
        except Exception:
            # The upgrade was answered long ago, so nobody above could say anything sensible.
            logger.exception("a rendezvous socket failed")
            link.abort()
        finally:
            self._live[token.id].discard(link)
            if not self._live[token.id]:
                del self._live[token.id]
            self._sockets -= 1
            if not self._sockets:
                self._none_left.set()

    def _count_of(self, exchange: Exchange) -> None:
        self.frames += exchange.frames
        self.bytes += exchange.bytes

    async def _note(self, name: str, environment_id: str, token: Token, address: str) -> None:
        await self._audit.note(name, token=token, environment_id=environment_id, address=address)
        logger.info("%s: %s", name, environment_id)

    async def end_revoked(self) -> None:
        """End the sockets whose tokens are no longer good."""
        if not self._live:
            return
        for token_id in await self._store.ended_tokens(tuple(self._live), now=self._clock()):
            for link in tuple(self._live.get(token_id, ())):
                link.cut(POLICY_VIOLATION, "the token is no longer good")
            await self._audit.note("token ended", token_id=token_id)

    async def drain(self) -> None:
        """Let nobody in any more and everybody go."""
        self.is_draining = True
        for links in tuple(self._live.values()):
            for link in tuple(links):
                link.cut(GOING_AWAY, "the registry stops")
        try:
            async with asyncio.timeout(self._limits.close_timeout * 3):
                await self._none_left.wait()
        except TimeoutError:
            logger.warning("%d sockets are still open", self._sockets)
