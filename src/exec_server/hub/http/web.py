"""The registry over HTTP: paths to handlers, errors to answers."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from exec_server import prometheus
from exec_server.hub.access.pairing import Pairings, read_claim, read_pledge
from exec_server.hub.access.pairing_reply import read_reply
from exec_server.hub.access.refusals import RegistryRefusal, no_socket, put_off
from exec_server.hub.access.signing import PassRefused, Signer
from exec_server.hub.access.throttle import forwarded_address
from exec_server.hub.access.tokens import TokenGate, secret_in
from exec_server.hub.bus import Bus, BusUnavailable
from exec_server.hub.cluster.registrations import Registrations
from exec_server.hub.http import admission_gate, status_page
from exec_server.hub.http.admission_gate import AdmissionGate, Overloaded, Patience
from exec_server.hub.http.connection_guard import SERVER_NAME, ConnectionGuard
from exec_server.hub.http.environment_listing import listed, read_turn
from exec_server.hub.http.handover import is_upgrade
from exec_server.hub.http.registry_api import Caller, RegistryApi
from exec_server.hub.http.registry_metrics import EnvironmentCount, bus_metrics, registry_metrics
from exec_server.hub.http.rendezvous import Rendezvous
from exec_server.hub.observe import metrics, telemetry
from exec_server.hub.observe.audit import Audit
from exec_server.hub.store import Store, StoreUnavailable
from exec_server.hub.store.entities import AccessToken
from exec_server.hub.store.names import is_name
from exec_server.limits import Limits
from exec_server.protocol.registry import (
    CONNECT,
    ENVIRONMENTS_PATH,
    EVENTS_PATH,
    FACTS,
    HARNESS_QUERY,
    OWN_TOKEN_PATH,
    PAIR_PATH,
    PAIR_REPLY_PATH,
    REGISTER,
    RENDEZVOUS_PATH,
    VALIDATE,
    environment_path,
    pairing_path,
    rendezvous_path,
)

logger = logging.getLogger(__name__)

_HOST = re.compile(r"[A-Za-z0-9.\-\[\]:]{1,255}")
_EVENTS_AT_ONCE = 1000
_ENVIRONMENTS_AT_ONCE = 1000


class RegistryParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a registry that the handlers use."""

    store: Store
    bus: Bus
    registrations: Registrations
    admission: AdmissionGate
    gate: TokenGate
    signer: Signer
    api: RegistryApi
    audit: Audit
    pairings: Pairings
    rendezvous: Rendezvous
    connections: ConnectionGuard
    environments: EnvironmentCount
    limits: Limits
    clock: Callable[[], float]
    telemetry: telemetry.RegistryTelemetry
    public_url: str | None = None
    is_behind_proxy: bool = False

    def metrics(self) -> list[prometheus.Metric]:
        """The metrics for the status page, `/metrics` and a collector."""
        return [
            *registry_metrics(self.registrations, self.rendezvous, self.gate),
            *self.admission.metrics(),
            *self.connections.metrics(),
            *bus_metrics(self.bus),
            *self.environments.metrics(),
            *self.audit.metrics(),
            *self.telemetry.metrics(),
        ]


class Site:
    """The aiohttp application."""

    def __init__(self, parts: RegistryParts) -> None:
        self._parts = parts

    def application(self) -> web.Application:
        application = web.Application(
            middlewares=[
                self._parts.connections.middleware,
                self._parts.telemetry.middleware,
                self._answer,
            ],
            client_max_size=self._parts.limits.hub_request_bytes,
        )
        application.on_response_prepare.append(_say_little)
        route = application.router.add_route
        route("POST", environment_path("{id}", REGISTER), self._register)
        route("POST", environment_path("{id}", FACTS), self._facts)
        route("POST", environment_path("{id}", VALIDATE), self._validate)
        route("POST", environment_path("{id}", CONNECT), self._connect)
        route("POST", environment_path("{id}", REGISTER, kind="executor"), self._register_executor)
        route("GET", rendezvous_path("{id}"), self._rendezvous)
        route("GET", ENVIRONMENTS_PATH, self._environments)
        route("GET", EVENTS_PATH, self._events)
        route("POST", pairing_path("{id}"), self._offer)
        route("GET", pairing_path("{id}"), self._offered)
        route("DELETE", pairing_path("{id}"), self._withdraw)
        route("POST", PAIR_PATH, self._pair)
        route("POST", PAIR_REPLY_PATH, self._reply_to_pairing)
        route("DELETE", OWN_TOKEN_PATH, self._give_up)
        route("GET", "/", self._page)
        route("GET", "/metrics", self._metrics)
        route("GET", "/healthz", self._healthz)
        route("GET", "/readyz", self._readyz)
        return application

    @web.middleware
    async def _answer(
        self, request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Turn errors into JSON with a code. A failure of ours shows no details."""
        operation = handler.__name__.removeprefix("_")
        try:
            _check_origin(request)
            response = await handler(request)
        except RegistryRefusal as refusal:
            response = _refused(refusal)
        except web.HTTPException as exc:
            response = _refused(_of_http(exc, request))
        except BusUnavailable as exc:
            logger.warning("%s failed: %s", operation, exc)
            text = "the registry's nodes cannot reach one another"
            response = _refused(put_off(request.path, "nodes_unreachable", text))
        except StoreUnavailable:
            text = "the registry cannot reach its state"
            response = _refused(put_off(request.path, "state_unavailable", text))
        except Overloaded as exc:
            response = _refused(put_off(request.path, "overloaded", str(exc)))
        except ConnectionResetError:
            # The client has gone and does not receive this answer.
            response = _refused(RegistryRefusal(400, "gone", "the connection was lost"))
        except Exception:
            logger.exception("a request failed: %s", operation)
            response = _refused(RegistryRefusal(500, "internal_error", "the registry failed"))
        finally:
            admission_gate.leave()
        return response

    # Requests of executors and harnesses.

    async def _register(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        await self._enter(request, self._parts.admission.long)
        return _json(await self._parts.api.register(self._caller(request), _id(request), body))

    async def _register_executor(self, request: web.Request) -> web.Response:
        await self._enter(request, self._parts.admission.long)
        answer = await self._parts.api.register_executor(self._caller(request), _id(request))
        return _json(answer)

    async def _facts(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        await self._enter(request, self._parts.admission.brief)
        return _json(await self._parts.api.tell_facts(self._caller(request), _id(request), body))

    async def _validate(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        await self._enter(request, self._parts.admission.long)
        return _json(await self._parts.api.validate(self._caller(request), _id(request), body))

    async def _connect(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        await self._enter(request, self._parts.admission.brief)
        return _json(await self._parts.api.connect(self._caller(request), _id(request), body))

    # Their WebSockets.

    async def _rendezvous(self, request: web.Request) -> web.StreamResponse:
        rendezvous, gate = self._parts.rendezvous, self._parts.admission
        environment_id = _id(request)
        if not is_upgrade(request):
            raise RegistryRefusal(426, "upgrade_required", "this path is for WebSockets")
        if not is_name(environment_id, limits=self._parts.limits):
            raise no_socket("unknown_route")
        caller = self._caller(request)
        query = request.rel_url.raw_query_string
        if query == HARNESS_QUERY and caller.authorization is not None:
            await self._enter(request, gate.long)
            environment, token = await self._parts.api.plaintext_harness(caller, environment_id)
            return await rendezvous.join(request, environment, token=token, address=caller.address)
        try:
            granted = self._parts.signer.judge(environment_id, query, now=self._parts.clock())
        except PassRefused as refused:
            raise no_socket(str(refused)) from None
        is_executor = granted.role == "environment"
        serve = rendezvous.serve_executor if is_executor else rendezvous.serve_harness
        # A harness that connects for the first time does not dial again.
        await self._enter(request, gate.dialling if is_executor else gate.long)
        return await serve(request, granted, address=caller.address)

    # Requests of people and their tools.

    async def _environments(self, request: web.Request) -> web.Response:
        token = await self._admit(request, "list")
        turn = read_turn(request.query, most=_ENVIRONMENTS_AT_ONCE, limits=self._parts.limits)
        found = await listed(self._parts.store, self._parts.registrations, token, turn)
        response = _json(found.environments)
        if found.following is not None:
            response.headers["Link"] = f'<?{found.following.query}>; rel="next"'
        return response

    async def _events(self, request: web.Request) -> web.Response:
        await self._admit(request, "observe")
        query = request.query
        try:
            since, limit = float(query.get("since", 0)), int(query.get("limit", 100))
        except ValueError:
            raise RegistryRefusal(
                400, "invalid_request", "`since` and `limit` are numbers"
            ) from None
        await self._parts.audit.settled()
        events = await self._parts.store.events(
            environment_id=query.get("environment"),
            principal=query.get("principal"),
            since=since,
            limit=min(max(limit, 1), _EVENTS_AT_ONCE),
        )
        return _json(events)

    async def _offer(self, request: web.Request) -> web.Response:
        caller, environment_id = self._caller(request), _id(request)
        if not is_name(environment_id, limits=self._parts.limits):
            raise RegistryRefusal(
                400, "invalid_environment_id", "this is not a valid name of an environment"
            )
        pairings, address = self._parts.pairings, caller.address
        if caller.authorization is None:
            pledge = read_pledge(await self._body(request))
            return _json(await pairings.offer_openly(environment_id, pledge, address=address))
        token = await self._parts.gate.admit(
            caller.authorization, "enrol", address=address, environment_id=environment_id
        )
        pledge = read_pledge(await self._body(request))
        await self._parts.gate.bind(token, environment_id, address=address)
        return _json(await pairings.offer(token, environment_id, pledge, address=address))

    async def _offered(self, request: web.Request) -> web.Response:
        ticket = secret_in(self._caller(request).authorization) or ""
        return _json(await self._parts.pairings.state(_id(request), ticket))

    async def _withdraw(self, request: web.Request) -> web.Response:
        caller = self._caller(request)
        ticket, address = secret_in(caller.authorization) or "", caller.address
        return _json(await self._parts.pairings.withdraw(_id(request), ticket, address=address))

    async def _pair(self, request: web.Request) -> web.Response:
        claim = read_claim(await self._body(request))
        address = self._caller(request).address
        return _json(await self._parts.pairings.claim(claim, address=address))

    async def _reply_to_pairing(self, request: web.Request) -> web.Response:
        reply = read_reply(await self._body(request))
        address = self._caller(request).address
        return _json(await self._parts.pairings.reply(reply, address=address))

    async def _give_up(self, request: web.Request) -> web.Response:
        token = await self._admit(request, None)
        address = self._caller(request).address
        return _json(await self._parts.pairings.give_up(token, address=address))

    async def _page(self, request: web.Request) -> web.Response:
        token = await self._admit(request, "observe")
        turn = read_turn(request.query, most=status_page.ENVIRONMENTS, limits=self._parts.limits)
        found = await listed(self._parts.store, self._parts.registrations, token, turn)
        text = status_page.render(found, self._parts.metrics(), now=self._parts.clock())
        return web.Response(text=text, content_type="text/html", headers=status_page.HEADERS)

    async def _metrics(self, request: web.Request) -> web.Response:
        await self._admit(request, "observe")
        await self._parts.environments.refresh()
        text = metrics.exposition(self._parts.metrics(), self._parts.telemetry.requests)
        return web.Response(body=text.encode(), headers={"Content-Type": prometheus.CONTENT_TYPE})

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        if self._parts.rendezvous.is_draining:
            raise RegistryRefusal(503, "draining", "the registry stops")
        async with asyncio.timeout(self._parts.limits.registry_timeout):
            await self._parts.store.environment("readyz")
        if self._parts.bus.connected_since is None:
            raise RegistryRefusal(503, "nodes_unreachable", "the other nodes cannot be reached")
        return web.Response(text="ready\n")

    # Parts of requests.

    async def _enter(self, request: web.Request, patience: Patience) -> None:
        """Wait for a slot for a request whose body was read. Raises Overloaded."""
        await self._parts.admission.enter(patience)
        if request.transport is None:
            raise ConnectionResetError("the client has gone meanwhile")

    async def _admit(self, request: web.Request, right: Any) -> AccessToken:
        caller = self._caller(request)
        return await self._parts.gate.admit(caller.authorization, right, address=caller.address)

    async def _body(self, request: web.Request) -> bytes:
        try:
            async with asyncio.timeout(self._parts.limits.registry_timeout):
                return await request.read()
        except TimeoutError:
            raise RegistryRefusal(408, "request_timeout", "the body took too long") from None
        except web.RequestPayloadError:
            # The length, chunks or compression of the body are wrong.
            raise RegistryRefusal(400, "bad_request", "the body cannot be read") from None

    def _caller(self, request: web.Request) -> Caller:
        address, is_secure = request.remote or "", request.secure
        if self._parts.is_behind_proxy:
            address = forwarded_address(request.headers.getall("X-Forwarded-For", [])) or address
            schemes = ",".join(request.headers.getall("X-Forwarded-Proto", []))
            is_secure = schemes.rpartition(",")[2].strip() == "https"
        telemetry.comes_from(address)
        base_url = self._parts.public_url
        if base_url is None:
            if not _HOST.fullmatch(request.host):
                raise RegistryRefusal(400, "invalid_host", "the Host header is malformed")
            base_url = f"{'wss' if is_secure else 'ws'}://{request.host}"
        return Caller(request.headers.get("Authorization"), address, base_url)


async def _say_little(request: web.Request, response: web.StreamResponse) -> None:
    """Replace aiohttp's header, which names the versions of aiohttp and Python."""
    response.headers["Server"] = SERVER_NAME


def _id(request: web.Request) -> str:
    return request.match_info["id"]


def _json(value: Any) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value),
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def _refused(refusal: RegistryRefusal) -> web.Response:
    telemetry.refused(refusal.code)
    return web.Response(
        status=refusal.status,
        body=refusal.body,
        content_type="application/json",
        headers=refusal.headers,
    )


def _of_http(exc: web.HTTPException, request: web.Request) -> RegistryRefusal:
    if exc.status == 404 and request.path.startswith(RENDEZVOUS_PATH):
        return no_socket("unknown_route")
    headers = {name: exc.headers[name] for name in ("Allow",) if name in exc.headers}
    code = (exc.reason or "error").lower().replace(" ", "_")
    return RegistryRefusal(exc.status, code, exc.reason or "", headers=headers)


def _check_origin(request: web.Request) -> None:
    """Refuse requests that another web site makes a browser send."""
    origin = request.headers.get("Origin")
    site = request.headers.get("Sec-Fetch-Site", "none")
    is_foreign = origin is not None and origin.partition("://")[2] != request.host
    if is_foreign or site not in ("none", "same-origin"):
        raise RegistryRefusal(403, "foreign_origin", "another web site sent this request")
