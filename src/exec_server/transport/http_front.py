"""The HTTP on a WebSocket port: one request head, then an answer or an upgrade.

picows reads only `GET` over HTTP/1.1, so the request head is read and judged here. picows takes
over once the connection is a WebSocket.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import msgspec

from exec_server.limits import Limits
from exec_server.transport.accepting import WaitingConnections
from exec_server.transport.connection import Identity
from exec_server.transport.failure_delays import FailureDelays
from exec_server.transport.refusal_log import RefusalKind, RefusalLog

logger = logging.getLogger(__name__)

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


# A line may end in a bare LF, and blank lines may come before the first one: RFC 9112, 2.2.
_HEAD_END = re.compile(rb"\n\r?\n")
_LINE_END = re.compile(r"\r?\n")
_NAME, _VALUE = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", r"[^\x00-\x08\x0a-\x1f\x7f]*"
_HEADER = re.compile(rf"({_NAME}):({_VALUE})")
_HEADERS = re.compile(rf"{_NAME}:{_VALUE}(?:\r?\n{_NAME}:{_VALUE})*")
# How a TLS handshake begins, and no HTTP request does.
_TLS_HANDSHAKE = b"\x16\x03"
# How much of a text that a stranger sent is logged.
_LOGGED_CHARS = 100


class RequestHead(msgspec.Struct, frozen=True):
    """The request line and headers of an HTTP request."""

    method: str
    path: str
    version: str
    # The names are in lower case. A repeated header has its first value.
    headers: dict[str, str]


class HttpAnswer(msgspec.Struct, frozen=True):
    """An answer that refuses the upgrade, or reports that the server is ready."""

    status: int
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()


# None lets the request in; a text is the body of the 401.
CheckAuthorization = Callable[[str | None], str | None]
# The same, with the connection that the request has come on.
CheckClient = Callable[[asyncio.BaseTransport, str | None], str | None]
# None lets the peer in; a text is the body of the 403. A future tells it later.
Verdict = str | asyncio.Future[str | None] | None
# Judges an accepted connection before anything is read.
JudgePeer = Callable[[asyncio.BaseTransport], Verdict]
# Who an accepted peer is, by its socket and its Authorization header; see `Connection.identity`.
# PermissionError refuses one that is no longer accepted.
Identify = Callable[[asyncio.BaseTransport, str | None], Identity | None]


class HttpPage(msgspec.Struct, frozen=True):
    """A path that is answered besides the upgrade."""

    show: Callable[[], HttpAnswer]
    methods: tuple[str, ...] = ("GET",)
    needs_token: bool = False
    # True refuses requests for a host name: a web page can give a name of its own to this address.
    needs_address: bool = False


Pages = Mapping[str, HttpPage]
# The one that the reference has.
READY: Pages = {"/readyz": HttpPage(lambda: HttpAnswer(200), methods=("GET", "HEAD"))}


def parse_head(data: bytes) -> RequestHead | None:
    """Read the request line and headers; None if they are not HTTP/1."""
    request_line, *fields = _LINE_END.split(data.decode("latin-1"), maxsplit=1)
    words = request_line.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
        return None
    headers: dict[str, str] = {}
    for text in fields:
        if not _HEADERS.fullmatch(text):
            return None
        for name, value in _HEADER.findall(text):
            headers.setdefault(name.lower(), value.strip(" \t"))
    return RequestHead(words[0], _path_of(words[1]), words[2], headers)


def _path_of(target: str) -> str:
    """Return the path of a request target, which may be a whole URL with any host."""
    path = target.partition("?")[0]
    if path.startswith("http://"):
        path = "/" + path.removeprefix("http://").partition("/")[2]
    return path


def judge(
    head: RequestHead, check: CheckAuthorization | None, pages: Pages = READY
) -> HttpAnswer | None:
    """Return the answer to *head*, or None if it is an upgrade to be accepted."""
    if "origin" in head.headers:
        return HttpAnswer(403)
    page = pages.get(head.path)
    if page is not None:
        return _show(page, head, check)
    if head.path != "/":
        return HttpAnswer(404)
    return _refuse_upgrade(head) or _refuse_token(head, check)


def _show(page: HttpPage, head: RequestHead, check: CheckAuthorization | None) -> HttpAnswer:
    if head.method not in page.methods:
        return HttpAnswer(405, headers=(("Allow", ",".join(page.methods)),))
    if page.needs_address and not _is_address(head.headers.get("host", "")):
        return HttpAnswer(403, "the Host header has to be an address or localhost")
    return (_refuse_token(head, check) if page.needs_token else None) or page.show()


def _refuse_token(head: RequestHead, check: CheckAuthorization | None) -> HttpAnswer | None:
    reason = None if check is None else check(head.headers.get("authorization"))
    return None if reason is None else HttpAnswer(401, reason)


def _refuse_upgrade(head: RequestHead) -> HttpAnswer | None:
    headers = head.headers
    if head.method != "GET":
        return HttpAnswer(405, "Request method must be `GET`")
    if not _has_token(headers.get("connection", ""), "upgrade"):
        return HttpAnswer(400, "Connection header did not include 'upgrade'")
    if not _has_token(headers.get("upgrade", ""), "websocket"):
        return HttpAnswer(400, "`Upgrade` header did not include 'websocket'")
    if headers.get("sec-websocket-version") != "13":
        return HttpAnswer(400, "`Sec-WebSocket-Version` header did not include '13'")
    if "sec-websocket-key" not in headers:
        return HttpAnswer(400, "`Sec-WebSocket-Key` header missing")
    if head.version != "HTTP/1.1":
        return HttpAnswer(
            426, "WebSocket request couldn't be upgraded since no upgrade state was present"
        )
    return None


def _is_address(host: str) -> bool:
    """True if *host*, which may have a port, is an IP address, localhost or missing."""
    name = host.rpartition("]")[0].removeprefix("[") or host.partition(":")[0]
    if name in ("", "localhost"):
        return True
    # Only requests for metrics that have no token come here.
    from ipaddress import ip_address

    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _has_token(value: str, token: str) -> bool:
    return any(word.strip().lower() == token for word in value.split(","))


def encode_answer(answer: HttpAnswer, *, without_body: bool) -> bytes:
    body = answer.body.encode()
    lines = [f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}"]
    if body and not any(name == "Content-Type" for name, _ in answer.headers):
        lines.append("Content-Type: text/plain; charset=utf-8")
    lines += [f"{name}: {value}" for name, value in answer.headers]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + (b"" if without_body else body)


class HttpFront(asyncio.Protocol):
    """Reads one request head, then answers it or upgrades its connection.

    *upgrade* is called with the transport, the handshake and the Authorization header. Until then
    the transport is in *waiting*.
    """

    def __init__(
        self,
        *,
        limits: Limits,
        waiting: WaitingConnections,
        judge_peer: JudgePeer,
        check: CheckClient | None,
        upgrade: Callable[[asyncio.Transport, bytes, str | None], None],
        delays: FailureDelays,
        refusals: RefusalLog,
        pages: Pages,
    ) -> None:
        self._limits = limits
        self._pages = pages
        self._refusals = refusals
        self._delays = delays
        self._waiting = waiting
        self._judge_peer = judge_peer
        self._check = check
        self._upgrade = upgrade
        self._data = bytearray()
        # True if further data has no effect.
        self._is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._verdict = self._judge_peer(transport)
        self._waiting.add(self._transport)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._limits.http_head_timeout, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            return
        self._data += data if self._data else data.lstrip(b"\r\n")
        if self._data.startswith(_TLS_HANDSHAKE):
            # The reference answers this, too.
            self._refuse(HttpAnswer(400), None)
            return
        found = _HEAD_END.search(self._data)
        size = found.end() if found else len(self._data)
        if size > self._limits.http_head_bytes:
            self._refuse(HttpAnswer(431), None)
            return
        if found is None:
            return
        if isinstance(self._verdict, asyncio.Future) and not self._verdict.done():
            self._is_answered = True
            self._transport.pause_reading()
            self._verdict.add_done_callback(lambda _: self._take_later(found))
            return
        self._take(found)

    def _take_later(self, found: re.Match[bytes]) -> None:
        if not self._transport.is_closing():
            self._is_answered = False
            self._transport.resume_reading()
            self._take(found)

    def _take(self, found: re.Match[bytes]) -> None:
        """Answer the request head that ends with *found*, or let it in."""
        head = parse_head(bytes(self._data[: found.start()]).removesuffix(b"\r"))
        answer = HttpAnswer(400) if head is None else self._judge(head)
        if answer is not None or head is None:
            self._refuse(answer or HttpAnswer(400), head)
            return
        self._let_go()
        handshake = accepted_request(head.headers["sec-websocket-key"])
        handshake += bytes(self._data[found.end() :])
        self._upgrade(self._transport, handshake, head.headers.get("authorization"))

    def _judge(self, head: RequestHead) -> HttpAnswer | None:
        refusal = self._verdict
        if isinstance(refusal, asyncio.Future):
            refusal = refusal.result()
        if refusal is not None:
            return HttpAnswer(403, refusal)
        check = None if self._check is None else partial(self._check, self._transport)
        return judge(head, check, self._pages)

    def _refuse(self, answer: HttpAnswer, head: RequestHead | None) -> None:
        """Log why the request is refused, and answer; a wrong token is answered more slowly."""
        without_body = head is not None and head.method == "HEAD"
        peer = self._transport.get_extra_info("peername") or "a Unix socket"
        # A fault of the server refuses no one.
        if 400 <= answer.status < 500:
            self._log_refusal(peer, answer, head)
        delay = self._delays.failed(_shown(peer, with_port=False)) if answer.status == 401 else 0.0
        if not delay:
            self._answer(answer, without_body=without_body)
            return
        self._is_answered = True
        self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(delay, self._answer_later, answer, without_body)

    def _log_refusal(self, peer: object, answer: HttpAnswer, head: RequestHead | None) -> None:
        kind = _kind(answer, head)
        more = self._refusals.refused(_shown(peer, with_port=False), kind)
        if more is not None:
            reason, notice = _why(answer, head), "login" if kind == "token" else "connection"
            logger.warning("refused %s: %s%s", _shown(peer), reason, more, extra={"notice": notice})
            self._refusals.logged(_shown(peer), kind, reason + more)

    def _answer_later(self, answer: HttpAnswer, without_body: bool) -> None:
        if not self._transport.is_closing():
            self._answer(answer, without_body=without_body)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()

    def _let_go(self) -> None:
        self._deadline.cancel()
        self._waiting.discard(self._transport)

    def _answer(self, answer: HttpAnswer, *, without_body: bool = False) -> None:
        """Write *answer*, and let the peer close first: a reset would destroy the answer."""
        self._is_answered = True
        self._data.clear()
        self._transport.write(encode_answer(answer, without_body=without_body))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._limits.close_timeout, self._transport.close)


def _shown(peer: object, *, with_port: bool = True) -> str:
    """The address of a peer, as text for the log."""
    if not isinstance(peer, tuple):
        return str(peer)
    host, port = peer[:2]
    if not with_port:
        return str(host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _kind(answer: HttpAnswer, head: RequestHead | None) -> RefusalKind:
    if answer.status == 401:
        return "token"
    if answer.status == 403:
        return "peer" if answer.body else "origin"
    return "path" if answer.status == 404 and head is not None else "malformed"


def _why(answer: HttpAnswer, head: RequestHead | None) -> str:
    """The reason of a refusal, without anything secret and on one line."""
    if head is None:
        return "the request is not HTTP" if answer.status == 400 else "the request head is too long"
    if answer.body:
        return answer.body
    if "origin" in head.headers:
        return f"it comes from a web page of {head.headers['origin'][:_LOGGED_CHARS]!a}"
    return f"{head.method[:_LOGGED_CHARS]!a} {head.path[:_LOGGED_CHARS]!a} is not served"


def accepted_request(key: str) -> bytes:
    """Return an upgrade that is accepted already, in the only form that picows reads."""
    return (
        "GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    ).encode("latin-1")
