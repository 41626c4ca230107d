"""JSON-RPC over one connection, both ways: calls, handlers, and the end of both on loss.

The module is long because requests, answers, lanes and the backlog share one connection's state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from exec_server.errors import (
    ConnectionClosed,
    InvalidRequest,
    MalformedMessage,
    MethodNotFound,
    ProtocolError,
    RpcError,
    RuleRefused,
)
from exec_server.limits import Limits
from exec_server.protocol import envelope
from exec_server.protocol.base64 import Blob, encode_base64
from exec_server.protocol.bulk import CHUNK, MARK, Assembly, Cut, cut, member_start
from exec_server.protocol.envelope import (
    ErrorResponse,
    Notification,
    Request,
    Response,
    ResultMessage,
    encode_shape,
)
from exec_server.protocol.method import NOTHING, Encoded, Event, Method, Nothing
from exec_server.protocol.packed import is_packable, packed_text, unpack
from exec_server.rpc import boundary
from exec_server.rpc.lanes import Lane
from exec_server.rpc.router import Route
from exec_server.transport.connection import Audible, Connection, bytes_sender

logger = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")

# An answer of up to this size is read at once, even while a request is being answered; a larger
# one waits in line.
_ANSWER_BYTES = 64 * 1024

_NO_CHUNK = Blob(b"")
# How a packed message begins.
_PACKED = bytes([MARK])

RequestJob = tuple[Request, Route]
RequestLane = Lane[RequestJob]


class Service(Protocol):
    """The server or client that a peer speaks for."""

    routes: dict[str, Route]

    def notification_received(self, method: str, params: Any) -> None:
        """Act on a notification; ProtocolError closes the connection."""

    def writing_paused(self) -> None: ...

    def writing_resumed(self) -> None: ...

    def connection_lost(self) -> None:
        """The connection is gone: every call has failed and every handler is cancelled."""


class Peer:
    """The other end of a connection.

    By default one request is answered at a time: while its handler waits, later messages are not
    even looked at. `allow_concurrency` lets requests overtake each other in two lanes.

    A promise to handlers: if a handler returns a future (and not a coroutine), its answer is sent
    in the next turn of the event loop after that future is done. A handler that wants events to
    follow its answer schedules them two turns after it has set the result. `process/start` relies
    on this, see `ProcessTable._begin_after_answer`.
    """

    def __init__(
        self,
        connection: Connection,
        service: Service,
        *,
        limits: Limits,
        is_strict: bool = True,
        context: Any = None,
        on_refused: Callable[[str, RuleRefused], None] | None = None,
    ) -> None:
        self._connection = connection
        self._service = service
        self._routes = service.routes
        self._limits = limits
        self._decode = envelope.decoder(limits)
        # A strict peer (a server) closes the connection on an answer that it never asked for. A
        # client ignores such an answer; it closes on a request whose id is still in use, because
        # the two answers could not be told apart.
        self._is_strict = is_strict
        self._open_ids: set[int] = set()
        self._context = context
        # Called with the method and the error of each request that the operator's rules refuse.
        self._on_refused = on_refused
        self._running: set[asyncio.Future[Any]] = set()
        self._backlog: deque[bytes | Cut] = deque()
        self._backlog_bytes = 0
        self._is_busy = False
        self._is_broken = False
        self.is_writing_paused = False
        # True if the other side has asked for the `data` of errors.
        self.tells_details = False
        # True if packed messages are understood here.
        self.takes_packed = False
        # Sends a message that is not text; None unless the other side understands packed messages.
        self._send_bytes: Callable[..., None] | None = None
        # Requests that wait until the peer has read more of the answers before them.
        self._choked: list[tuple[Request, Route, RequestLane | None]] = []
        # The lanes of ordinary and of control requests; None while everything runs in order.
        self._lanes: tuple[RequestLane, RequestLane] | None = None
        # Bytes of the messages whose requests are queued or running in the two lanes.
        self._lane_bytes = 0
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self._messages = 0
        self.is_lost = False
        # What the other side has sent that made us end the connection.
        self.violation: str | None = None
        connection.attach(self)

    # Calling the other side.

    def call(
        self,
        method: Method[P, R],
        params: P,
        *,
        trace: bytes | None = None,
        is_cleanup: bool = False,
    ) -> asyncio.Future[Any]:
        """Send a request; the future has its undecoded result, or fails as the peer says.

        The bound on calls in flight does not apply to a cleanup: it ends other calls.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.is_lost:
            future.set_exception(ConnectionClosed("the connection is closed"))
            return future
        if len(self._calls) >= self._limits.calls_in_flight and not is_cleanup:
            future.set_exception(
                InvalidRequest(f"more than {self._limits.calls_in_flight} calls in flight")
            )
            return future
        # This may fail, and then there is no call.
        encoded, chunk = self._encode(params)
        self._last_id += 1
        request_id = self._last_id
        self._calls[request_id] = future
        future.add_done_callback(lambda _: self._calls.pop(request_id, None))
        self._send(envelope.encode_request(request_id, method.name, encoded, trace), chunk)
        return future

    @property
    def calls_under_way(self) -> int:
        return len(self._calls)

    def notify(self, event: Event[P], params: P) -> None:
        encoded, chunk = self._encode(params)
        self._send(envelope.encode_notification(event.name, encoded), chunk)

    # Packed messages.

    def take_packed(self) -> None:
        """Understand packed messages from now on, if the connection carries them."""
        if bytes_sender(self._connection) is not None:
            self.takes_packed = True
            self._decode = envelope.decoder(self._limits, takes_packed=True)

    def send_packed(self) -> None:
        """The other side understands packed messages."""
        self._send_bytes = bytes_sender(self._connection)

    @property
    def sends_packed(self) -> bool:
        return self._send_bytes is not None

    def send_bulk(self, before: bytes, data: bytes, after: bytes) -> None:
        """Send one message, in which the base64 of *data* stands between two texts."""
        # Clients choose ids, which may be long.
        if self._send_bytes is not None and is_packable(len(data), len(before) + len(after)):
            self._send_bytes(packed_text(before, after), data)
        else:
            self._connection.send(before, encode_base64(data), after)

    def _encode(self, params: Any) -> tuple[bytes, bytes | None]:
        """The text of *params*, without its chunk if that is sent packed; and then the chunk."""
        if self._send_bytes is not None:
            chunk = getattr(params, "chunk", None)
            if type(chunk) is Blob and is_packable(len(chunk.data)):
                return boundary.encode(replace(params, chunk=_NO_CHUNK)), chunk.data
        return boundary.encode(params), None

    def _send(self, message: bytes, chunk: bytes | None) -> None:
        if chunk is None:
            self._connection.send(message)
        else:
            place = member_start(message, CHUNK, len(message))
            self.send_bulk(message[:place], chunk, message[place:])

    def close(self, reason: str = "") -> None:
        self._connection.close(reason)

    def give_up(self, reason: str) -> None:
        """Close, and behave as after the loss from now on: handlers end, and messages are ignored.

        The loss itself is reported when the connection has ended.
        """
        self._is_broken = True
        self._backlog.clear()
        self._choked.clear()
        for future in tuple(self._running):
            future.cancel()
        self._connection.close(reason)

    @property
    def arrived(self) -> object:
        """A value that changes whenever something has come from the other side."""
        connection = self._connection
        return connection.arrived if isinstance(connection, Audible) else self._messages

    def allow_concurrency(self, width: int) -> None:
        """From the next message on, up to *width* requests of each lane run at once."""
        if width > 1:
            self._lanes = (Lane(width), Lane(width))

    # What the connection delivers.

    def assemble(self) -> Assembly:
        return Assembly()

    def cut(self, data: memoryview) -> Cut | None:
        """The parts of a message that came whole; None if it has to be read as a whole."""
        if self.takes_packed and data and data[0] == MARK:
            try:
                return unpack(data, limits=self._limits)
            except MalformedMessage:
                # It is refused when it is read.
                return None
        return cut(data) if len(data) > _ANSWER_BYTES else None

    def join(self, pieces: Sequence[bytes | memoryview]) -> bytes | Cut:
        """A message that came in pieces, or its parts."""
        if self.takes_packed and pieces[0][:1] == _PACKED:
            # If it is refused, that is said when it is read.
            with contextlib.suppress(MalformedMessage):
                return unpack(*pieces, limits=self._limits)
        return b"".join(pieces)

    def message_received(self, data: bytes | Cut) -> None:
        self._messages += 1
        if self._is_busy or self._is_broken or (self.is_writing_paused and self._is_choked()):
            self._keep(data)
            return
        try:
            message = self._decode(data)
            if type(message) is Request:
                route = self._routes.get(message.method)
                if route is None or not self._is_strict:
                    self._on_request(message, route, len(data))
                elif self._lanes is not None:
                    self._enter(self._lanes[route.method.is_control], message, route, len(data))
                elif not self._run(message, route, None):
                    self._is_busy = True
            elif type(message) is Notification:
                self._service.notification_received(message.method, message.params)
            else:
                self._on_answer(message)  # type: ignore[arg-type]
        except MalformedMessage as exc:
            self._send_malformed(exc)
        except ProtocolError as exc:
            # Messages that came after it are never looked at.
            self._is_broken = True
            self._backlog.clear()
            self._send_malformed(exc)
            self._connection.close(str(exc), is_violation=True)
        except Exception:
            # A fault of this program. What carries the connection may carry others as well, so it
            # must not see the exception.
            logger.exception("a message from %s could not be handled", self._connection.peer_name)
            self._is_broken = True
            self._backlog.clear()
            self._connection.close("internal error")

    def _keep(self, data: bytes | Cut) -> None:
        """Keep a message until the request before it is done, or its answer read."""
        if self._is_broken or (self._calls and self._settles_call(data)):
            return
        # It is not even decoded until then.
        self._backlog.append(data)
        self._backlog_bytes += len(data)
        if self._is_behind():
            self._connection.pause_reading()

    def _settles_call(self, data: bytes | Cut) -> bool:
        """Take *data* at once if it answers a call of ours; such an answer waits for no request."""
        if type(data) is not bytes or len(data) > _ANSWER_BYTES or b'"method"' in data:
            return False
        try:
            message = self._decode(data)
        except MalformedMessage:
            return False
        if not isinstance(message, Response | ErrorResponse) or message.id not in self._calls:
            return False
        self._on_answer(message)
        return True

    def _is_behind(self) -> bool:
        limits = self._limits
        return (
            len(self._backlog) >= limits.backlog_messages
            or self._backlog_bytes > limits.backlog_bytes
        )

    def _is_choked(self) -> bool:
        """True if the other side sends requests and leaves too many of the answers unread."""
        return self._is_strict and self._connection.unsent_bytes > self._limits.unread_answer_bytes

    def writing_paused(self) -> None:
        self.is_writing_paused = True
        self._service.writing_paused()

    def writing_resumed(self) -> None:
        self.is_writing_paused = False
        self._service.writing_resumed()
        choked, self._choked = self._choked, []
        for request, route, lane in choked:
            if self._run(request, route, lane):
                self._go_on(request, lane)
        if not self._is_busy:
            self._take_backlog()

    def connection_lost(self) -> None:
        self.is_lost = True
        self._backlog.clear()
        self._choked.clear()
        for future in tuple(self._running):
            future.cancel()
        calls, self._calls = self._calls, {}
        why = "the connection was lost"
        if self.violation is not None:
            why += f", because the other side broke the protocol: {self.violation}"
        for call in calls.values():
            if not call.done():
                call.set_exception(ConnectionClosed(why))
        self._service.connection_lost()

    def _send_malformed(self, exc: ProtocolError) -> None:
        prefix = self._connection.malformed_prefix
        if self._is_strict and prefix is not None:
            self._connection.send(
                envelope.encode_error(envelope.MALFORMED_ID, InvalidRequest.code, prefix + str(exc))
            )
        elif not self.is_lost:
            self.violation = self.violation or str(exc)
            self._connection.close(str(exc), is_violation=True)

    def _on_answer(self, message: Response | ErrorResponse) -> None:
        known = type(message.id) is int and 0 < message.id <= self._last_id
        if not known and self._is_strict:
            raise ProtocolError(f"answer to a request that was never made: {message.id}")
        future = self._calls.get(message.id) if known else None
        if future is None or future.done():
            return
        if isinstance(message, Response):
            future.set_result(message.result)
        else:
            future.set_exception(RpcError.from_wire(message.code, message.message, message.data))

    # Answering.

    def _on_request(self, request: Request, route: Route | None, size: int) -> None:
        if not self._is_strict:
            self._claim_id(request.id)
        if route is None:
            who = "stub" if self._is_strict else "client"
            error = MethodNotFound(f"exec-server {who} does not implement `{request.method}` yet")
            self._fail(request, error)
        elif self._lanes is None:
            self._is_busy = not self._run(request, route, None)
        else:
            self._enter(self._lanes[route.method.is_control], request, route, size)

    def _enter(self, lane: RequestLane, request: Request, route: Route, size: int) -> None:
        """Run a request of *size* bytes if its lane has room; otherwise it waits there."""
        if lane.has_room and self._run(request, route, lane):
            # Nearly all requests are answered at once, and are never counted.
            return
        request.size = size
        self._lane_bytes += size
        lane.enter((request, route))
        if self._is_lane_full(lane):
            self._connection.pause_reading()

    def _claim_id(self, request_id: int | str) -> None:
        """Remember the id of a request; until it is answered, no other request may use it."""
        if type(request_id) is not int or request_id < 0:
            raise ProtocolError("a request's id is not a non-negative integer")
        if request_id in self._open_ids:
            raise ProtocolError(f"request {request_id} came again before it was answered")
        self._open_ids.add(request_id)

    def _is_lane_full(self, lane: RequestLane) -> bool:
        limits = self._limits
        return lane.waiting >= limits.waiting_requests or self._lane_bytes > limits.backlog_bytes

    def _run(self, request: Request, route: Route, lane: RequestLane | None) -> bool:
        """Answer now and return True; return False when the handler has to wait."""
        if self.is_writing_paused and self._is_choked():
            self._choked.append((request, route, lane))
            return False
        method = route.method
        try:
            params = request.params
            if method.params is Nothing and type(params) is dict and not params:
                params = NOTHING
            elif method.usual_params is None:
                params = boundary.decode_params(method.params, params)
            else:
                usual = method.usual_params(params)
                params = usual or boundary.decode_params(method.params, params)
            result = route.handler(self._context, params)
        except Exception as exc:
            self._fail(request, exc)
            return True
        if type(result) is method.result and self._is_strict:
            # This is `_answer`, without its way for other results.
            self._connection.send(encode_shape(ResultMessage(request.id, result)))
            return True
        if isinstance(result, Struct):
            self._answer(request, result)
            return True
        # A future stays the same future here, so that `_finish` runs in the turn after it is done.
        future = asyncio.ensure_future(result)
        self._running.add(future)
        future.add_done_callback(partial(self._finish, request, lane))
        return False

    def _finish(
        self, request: Request, lane: RequestLane | None, future: asyncio.Future[Any]
    ) -> None:
        self._running.discard(future)
        error = None if future.cancelled() else future.exception()
        if self.is_lost or future.cancelled():
            return
        if error is None:
            self._answer(request, future.result())
        else:
            self._fail(request, error)
        self._go_on(request, lane)

    def _go_on(self, request: Request, lane: RequestLane | None) -> None:
        """*request* is done; the next one of its *lane* may run."""
        if lane is None:
            self._is_busy = False
            self._take_backlog()
        else:
            self._lane_bytes -= request.size
            self._drive(lane, lane.leave())

    def _take_backlog(self) -> None:
        """Look at the messages that came while a request was being answered."""
        while self._backlog and not self._is_busy:
            if self.is_writing_paused and self._is_choked():
                return
            data = self._backlog.popleft()
            self._backlog_bytes -= len(data)
            self.message_received(data)
        if not self._is_behind():
            self._connection.resume_reading()

    def _drive(self, lane: RequestLane, job: RequestJob | None) -> None:
        """Run *job*, and then the jobs that wait behind it for as long as each ends at once."""
        while job is not None and not self.is_lost and self._run(*job, lane):
            self._lane_bytes -= job[0].size
            job = lane.leave()
        if not self._is_lane_full(lane):
            self._connection.resume_reading()

    def _answer(self, request: Request, result: Any) -> None:
        if not self._is_strict:
            self._open_ids.discard(request.id)
        if type(result) is Encoded:
            head, tail = envelope.around_result(request.id)
            if result.bulk is None:
                self._connection.send(head, *result.parts, tail)
            else:
                before, after = result.parts
                self.send_bulk(head + before, result.bulk, after + tail)
            return
        self._connection.send(envelope.encode_result(request.id, result))

    def _fail(self, request: Request, error: BaseException) -> None:
        self._open_ids.discard(request.id)
        if self._on_refused is not None and isinstance(error, RuleRefused):
            self._on_refused(request.method, error)
        body = boundary.error_body(error, method=request.method)
        data = error.details() if self.tells_details and isinstance(error, RpcError) else None
        self._connection.send(envelope.encode_error(request.id, body.code, body.message, data))
