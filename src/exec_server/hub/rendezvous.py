"""Both ends of the relay meet here: sockets are let in by their URLs and joined by environment."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from exec_server.errors import RelayError
from exec_server.hub.audit import Audit
from exec_server.hub.bus import Bus, Seat
from exec_server.hub.links import Link
from exec_server.hub.records import Environment, Token
from exec_server.hub.refusals import no_socket
from exec_server.hub.routing import GOING_AWAY, POLICY_VIOLATION, Exchange, Memory
from exec_server.hub.signing import Pass
from exec_server.hub.store import Store
from exec_server.limits import Limits

logger = logging.getLogger(__name__)


class Rendezvous:
    """The sockets of this node."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        audit: Audit,
        *,
        limits: Limits,
        clock: Callable[[], float],
        allows_plaintext: bool = False,
    ) -> None:
        self._store = store
        self._bus = bus
        self._audit = audit
        self._limits = limits
        self._clock = clock
        self._allows_plaintext = allows_plaintext
        self._loop = asyncio.get_running_loop()
        self._live: defaultdict[str, set[Link]] = defaultdict(set)
        self._sockets = 0
        self._none_left = asyncio.Event()
        self._none_left.set()
        self.memory = Memory(limits.hub_total_bytes)
        self.is_draining = False
        # Of exchanges that have ended.
        self.frames = 0
        self.bytes = 0

    @property
    def sockets(self) -> int:
        return self._sockets

    # The executor.

    async def serve_executor(
        self, request: web.Request, granted: Pass, *, address: str
    ) -> web.StreamResponse:
        environment = await self._expected(granted)
        self._check_generation(environment, granted)
        token = await self._good_token(granted.token_id)
        socket = self._new_socket(environment)
        await socket.prepare(request)
        link = Link(socket, request, limits=self._limits, takes_text=True)
        exchange = Exchange(link, memory=self.memory, limits=self._limits)
        link.tell(exchange.executor_took)
        seat = Seat(
            environment_id=environment.id,
            registration_id=environment.registration_id,
            link=link,
            exchange=exchange,
            address=address,
            since=self._clock(),
        )
        with self._counted(link, token):
            await self._sit(seat, token)
        return socket

    async def _sit(self, seat: Seat, token: Token) -> None:
        before = self._bus.take_seat(seat)
        if before is not None:
            before.exchange.end("the executor has a newer socket")
            before.link.cut(GOING_AWAY, "a newer socket serves this environment")
        exchange, loop = seat.exchange, self._loop
        try:
            await self._note("executor online", seat, token)
            # It may have been replaced while its socket came about.
            newest = await self._store.environment(seat.environment_id)
            if newest is None or newest.registration_id != seat.registration_id:
                seat.link.end(GOING_AWAY, "a newer registration serves this environment")
            await seat.link.carry(lambda data: exchange.from_executor(data, now=loop.time()))
        finally:
            self._bus.leave_seat(seat)
            exchange.end("the executor is gone")
            seat.link.give_up()
            self.frames += exchange.frames
            self.bytes += exchange.bytes
            await self._note("executor offline", seat, token)

    def _check_generation(self, environment: Environment, granted: Pass) -> None:
        if environment.registration_id == granted.registration_id:
            return
        # A 4xx makes it register again and replace the newer one. Two of one name would do that in
        # turn for ever, so the older has to wait while the newer lives.
        seat = self._bus.find(environment.id)
        is_fresh = self._clock() - environment.registered_at < self._limits.hub_registration_grace
        if is_fresh or (seat and seat.registration_id == environment.registration_id):
            raise no_socket("route_unavailable")
        raise no_socket("unexpected_executor_registration_id")

    def supersede(self, environment_id: str, registration_id: str) -> None:
        """A newer registration has come: the older one's socket ends at once."""
        seat = self._bus.find(environment_id)
        if seat is not None and seat.registration_id != registration_id:
            self._bus.leave_seat(seat)
            seat.exchange.end("a newer executor has registered")
            seat.link.cut(GOING_AWAY, "a newer registration serves this environment")

    def is_online(self, environment: Environment) -> bool:
        seat = self._bus.find(environment.id)
        return seat is not None and seat.registration_id == environment.registration_id

    # The harness.

    async def serve_harness(
        self, request: web.Request, granted: Pass, *, address: str
    ) -> web.StreamResponse:
        environment = await self._expected(granted)
        # A 401 gets the harness a new bundle, which is what it needs here.
        if environment.registration_id != granted.registration_id:
            raise no_socket("unexpected_executor_registration_id", status=401)
        self._seat_with_room(environment)
        token = await self._good_token(granted.token_id)
        if not await self._store.open_authorization(granted.authorization_id, now=self._clock()):
            raise no_socket("expired")
        return await self.join(request, environment, token=token, address=address)

    async def join(
        self, request: web.Request, environment: Environment, *, token: Token, address: str
    ) -> web.StreamResponse:
        """Make the socket of *request* a harness of the environment's executor."""
        self._seat_with_room(environment)
        socket = self._new_socket(environment)
        await socket.prepare(request)
        link = Link(socket, request, limits=self._limits)
        with self._counted(link, token):
            seat = self._bus.find(environment.id)
            if seat is None or seat.registration_id != environment.registration_id:
                await socket.close(code=GOING_AWAY, message=b"the executor is gone")
                return socket
            await self._converse(link, seat, token, address)
        return socket

    async def _converse(self, link: Link, seat: Seat, token: Token, address: str) -> None:
        exchange, loop = seat.exchange, self._loop
        harness = exchange.join(link, now=loop.time())
        link.tell(lambda _, size: exchange.harness_took(harness, size))

        def receive(data: bytes) -> None:
            try:
                exchange.from_harness(harness, data, now=loop.time())
            except RelayError as exc:
                link.end(POLICY_VIOLATION, str(exc))

        try:
            await self._note("harness online", seat, token, address)
            await link.carry(receive)
        finally:
            exchange.leave(harness)
            link.give_up()
            await self._note("harness offline", seat, token, address)

    def _seat_with_room(self, environment: Environment) -> None:
        seat = self._bus.find(environment.id)
        if seat is None or seat.registration_id != environment.registration_id:
            raise no_socket("route_unavailable", status=401)
        if not seat.exchange.has_room:
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

    async def _note(self, name: str, seat: Seat, token: Token, address: str | None = None) -> None:
        await self._audit.note(
            name,
            token=token,
            environment_id=seat.environment_id,
            address=seat.address if address is None else address,
        )
        logger.info("%s: %s", name, seat.environment_id)

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
