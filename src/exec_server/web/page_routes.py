"""The HTTP application of the page: which path leads where, and the headers of every answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

import msgspec
from aiohttp import web

from exec_server.hub.http.connection_guard import ConnectionGuard
from exec_server.web.page_access import PageAccess, PageSession
from exec_server.web.page_assets import answer_with, read_assets
from exec_server.web.page_socket import PageSocket
from exec_server.web.places import PagePlaces
from exec_server.web.transfer_routes import TransferRoutes

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SERVER_NAME = "exec-server"
KEY_HEADER = "X-Exec-Server-Key"

# No inline script or style, nothing from elsewhere, and no frame around it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Server": SERVER_NAME,
}

# A sign-in is a short text.
_BODY_BYTES = 4096
_SECONDS = 10.0
_MAX_SOCKETS = 64


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a sign-in: the secret of a one-time link, or the token of a principal."""

    token: str


class PageRoutes:
    """The aiohttp application."""

    def __init__(
        self,
        access: PageAccess,
        places: PagePlaces,
        *,
        hosts: Collection[str],
        is_secure: bool,
        cookie_name: str,
        on_sign_in: Callable[[PageSession], None],
        strangers: ConnectionGuard,
    ) -> None:
        """*hosts* are the values of `Host` that are answered, with their ports."""
        self.strangers = strangers
        self._access = access
        self._places = places
        self._hosts = frozenset(host.lower() for host in hosts)
        self._scheme = "https" if is_secure else "http"
        self._cookie_name = cookie_name
        self._on_sign_in = on_sign_in
        self._assets = read_assets()
        self._transfers = TransferRoutes(access, places)
        self._sockets: set[PageSocket] = set()

    def application(self) -> web.Application:
        application = web.Application(
            middlewares=[self.strangers.middleware, self._guard], client_max_size=_BODY_BYTES
        )
        application.on_response_prepare.append(_add_headers)
        application.on_response_prepare.append(self.strangers.upgraded)
        route = application.router.add_route
        route("GET", "/", self._page)
        route("GET", "/assets/{path:.+}", self._asset)
        route("GET", "/session", self._state)
        route("POST", "/session", self._sign_in)
        route("DELETE", "/session", self._sign_out)
        route("GET", "/socket", self._socket)
        route("GET", "/download/{ticket}/{name}", self._download)
        route("PUT", "/upload/{place}", self._upload)
        return application

    async def close(self) -> None:
        """Close all sockets; the tabs are told that the program ends."""
        await asyncio.gather(*(socket.close() for socket in list(self._sockets)))

    # Every request.

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._check_host(request)
            self._check_origin(request)
            return await handler(request)
        except web.HTTPException as exc:
            refusal = _refusal(exc.status, exc.text or exc.reason or "")
            if request.can_read_body:
                # The rest of a body is not awaited.
                refusal.force_close()
            return refusal
        except ConnectionResetError:
            raise
        except Exception:
            logger.exception("a request of the page failed: %s", request.path)
            return _refusal(500, "the program has failed; its log says more")

    def _check_host(self, request: web.Request) -> None:
        """Refuse other names: a foreign site can make its name lead to this address."""
        if request.headers.getall("Host", []) != [request.host]:
            raise web.HTTPBadRequest(text="there must be one Host")
        if request.host.lower() not in self._hosts:
            raise web.HTTPMisdirectedRequest(text="this page has another name")

    def _check_origin(self, request: web.Request) -> None:
        """Refuse what another site makes a browser send, also from another port of this host."""
        origin = request.headers.get("Origin")
        is_own = origin == f"{self._scheme}://{request.host}"
        if origin is not None and not is_own:
            raise web.HTTPForbidden(text="another origin has sent this request")
        if origin is None and (request.method != "GET" or request.path == "/socket"):
            raise web.HTTPForbidden(text="the request names no origin")
        site = request.headers.get("Sec-Fetch-Site", "none")
        is_visit = request.path == "/" and request.headers.get("Sec-Fetch-Mode") == "navigate"
        if site not in ("none", "same-origin") and not is_visit:
            raise web.HTTPForbidden(text="another site has sent this request")

    def _session(self, request: web.Request) -> PageSession:
        """The session of the cookie. It alone is enough only where nothing secret is answered."""
        session = self._access.session_of(request.cookies.get(self._cookie_name))
        if session is None:
            raise web.HTTPUnauthorized(text="sign in first: open the URL that the program prints")
        return session

    def _keyed_session(self, request: web.Request) -> PageSession:
        session = self._session(request)
        if not self._access.has_key(session, request.headers.get(KEY_HEADER)):
            raise web.HTTPUnauthorized(text="the key of the page is missing")
        return session

    # Files of the page, which contain no secrets.

    async def _page(self, request: web.Request) -> web.StreamResponse:
        return answer_with(self._assets["index.html"], request)

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        asset = self._assets.get(request.match_info["path"])
        if asset is None:
            raise web.HTTPNotFound(text="there is no such file")
        return answer_with(asset, request)

    # Sessions.

    async def _state(self, request: web.Request) -> web.StreamResponse:
        """Tell the page whether to ask for a token, and whether its session is good."""
        try:
            is_signed_in = bool(self._keyed_session(request))
        except web.HTTPUnauthorized:
            is_signed_in = False
        return _json({"signedIn": is_signed_in, "wantsToken": self._access.wants_token})

    async def _sign_in(self, request: web.Request) -> web.StreamResponse:
        try:
            async with asyncio.timeout(_SECONDS):
                given = msgspec.json.decode(await request.read(), type=SignIn)
        except (msgspec.DecodeError, msgspec.ValidationError, TimeoutError):
            raise web.HTTPBadRequest(text="this is no sign-in") from None
        session = await asyncio.to_thread(self._access.sign_in, given.token)
        if session is None:
            text = "this token is not accepted"
            if not self._access.wants_token:
                text = "this link was used already; the program has printed a new one"
            raise web.HTTPForbidden(text=text)
        self._on_sign_in(session)
        response = _json({"key": session.key})
        response.set_cookie(
            self._cookie_name,
            session.cookie,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=self._scheme == "https",
        )
        return response

    async def _sign_out(self, request: web.Request) -> web.StreamResponse:
        session = self._keyed_session(request)
        self._access.sign_out(session)
        for socket in list(self._sockets):
            if socket.session is session:
                await socket.close()
        response = _json({})
        response.del_cookie(self._cookie_name, path="/")
        return response

    # Everything else.

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        session = self._session(request)
        if len(self._sockets) >= _MAX_SOCKETS:
            raise web.HTTPServiceUnavailable(text="too many tabs are open")
        socket = PageSocket(session, self._access, self._places)
        self._sockets.add(socket)
        try:
            return await socket.serve(request)
        finally:
            self._sockets.discard(socket)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        return await self._transfers.download(request, self._session(request))

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        self._keyed_session(request)
        # The transfer has deadlines of its own.
        self.strangers.trust(request)
        return await self._transfers.upload(request)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    # aiohttp has set its own, which names its version.
    response.headers["Server"] = SERVER_NAME
    response.headers.setdefault("Cache-Control", "no-store")


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def _refusal(status: int, text: str) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode({"error": text}), content_type="application/json"
    )
