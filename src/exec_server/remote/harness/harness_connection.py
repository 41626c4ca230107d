"""A socket to the rendezvous with one stream on it, as a Connection."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol

from exec_server.errors import ConnectError, RelayError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.memory import keep_freed_memory
from exec_server.relay.effects import Effect, Message, Send, StreamOpened
from exec_server.relay.frame import Trace
from exec_server.relay.harness_end import HarnessEnd
from exec_server.relay.keys import SEED_BYTES, KeyPair
from exec_server.relay.plaintext import PlaintextHarness
from exec_server.relay.records import Join
from exec_server.relay.trace import trace_of
from exec_server.remote.credentials.credentials import HarnessToken
from exec_server.remote.executor.executor import upgrade_headers
from exec_server.remote.executor.relays import plaintext_sizes
from exec_server.remote.registry_client import Bundle
from exec_server.transport.connection import Connection, Identity, Receiver
from exec_server.transport.frames import FrameSocket, Sizes, dial_frames

if TYPE_CHECKING:
    from ssl import SSLContext

# A change of less than this is not the progress of a backlog.
_BACKLOG_BYTES = 64 * 1024
# Messages of output are joined from several records.
_JOINED_BYTES = 1024 * 1024


@cache
def process_identity() -> KeyPair:
    """Return the keys for all harnesses of this process that have none of their own."""
    return KeyPair(os.urandom(SEED_BYTES))


async def dial_bundle(
    bundle: Bundle,
    *,
    environment_id: str,
    identity: KeyPair,
    limits: Limits = DEFAULT_LIMITS,
    connect_timeout: float | None = None,
    ssl_context: SSLContext | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Connection:
    """Open an encrypted stream to the executor of *bundle*. Raises ConnectError."""
    harness = HarnessEnd(
        identity,
        bundle.executor_key,
        environment_id=environment_id,
        registration_id=bundle.registration_id,
        stream_id=str(uuid.uuid4()),
        random_bytes=os.urandom,
        limits=limits,
    )
    most = limits.relay_frame_bytes
    keep_freed_memory(_JOINED_BYTES)
    return await _open(
        bundle.url,
        HarnessConnection(harness, lambda: harness.start(bundle.authorization), limits=limits),
        sizes=Sizes(frame_bytes=most, message_bytes=most, sent_frame_bytes=most),
        headers=upgrade_headers(environ),
        limits=limits,
        connect_timeout=connect_timeout,
        ssl_context=ssl_context,
    )


async def dial_plaintext(
    url: str,
    *,
    bearer_token: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    connect_timeout: float | None = None,
    ssl_context: SSLContext | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Connection:
    """Open a stream of the older relay, which the rendezvous can read. Raises ConnectError."""
    harness = PlaintextHarness(str(uuid.uuid4()), limits=limits)
    headers = upgrade_headers(environ)
    if bearer_token is not None:
        headers += HarnessToken(bearer_token).headers().items()
    return await _open(
        url,
        HarnessConnection(harness, harness.start, limits=limits),
        sizes=plaintext_sizes(limits),
        headers=headers,
        limits=limits,
        connect_timeout=connect_timeout,
        ssl_context=ssl_context,
    )


async def _open(
    url: str,
    connection: HarnessConnection,
    *,
    sizes: Sizes,
    headers: Sequence[tuple[str, str]],
    limits: Limits,
    connect_timeout: float | None,
    ssl_context: SSLContext | None,
) -> Connection:
    try:
        await dial_frames(
            url,
            connection,
            sizes=sizes,
            headers=headers,
            limits=limits,
            connect_timeout=connect_timeout,
            ssl_context=ssl_context,
        )
        async with asyncio.timeout(limits.initialize_timeout):
            await connection.wait_open()
    except TimeoutError:
        connection.abandon()
        raise ConnectError(
            f"the executor did not answer the handshake within {limits.initialize_timeout:g} s"
        ) from None
    except BaseException:
        # It may be open already: the caller may be cancelled at the moment of the answer.
        connection.abandon()
        raise
    return connection


class _End(Protocol):
    """Our end of a stream, for either relay."""

    def join_with(self, join: Join) -> None: ...

    def receive(self, data: bytes | memoryview) -> Sequence[Effect]: ...

    def send(self, *parts: bytes, trace: Trace | None = None) -> Iterable[Effect]: ...


class HarnessConnection:
    """One stream with a socket of its own; both end together, without a close frame."""

    transport_name = "relay"
    principal: str | None = None
    identity: Identity | None = None
    carries_bytes = True
    malformed_prefix = None

    def __init__(self, end: _End, start: Callable[[], Sequence[Effect]], *, limits: Limits) -> None:
        self.peer_name = "the executor behind the rendezvous"
        self._end = end
        self._start = start
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._socket: FrameSocket | None = None
        self._receiver: Receiver | None = None
        # What comes with the answer to the handshake, until there is a receiver.
        self._early: list[bytes] = []
        self._is_lost = False
        # The number of frames of the stream that have come.
        self.arrived = 0
        self._cause = "the rendezvous ended the connection"

    async def wait_open(self) -> None:
        """Wait until the handshake is complete. Raises ConnectError."""
        await self._opened

    def abandon(self) -> None:
        """End a stream for which no caller waits any more."""
        # Otherwise an error that is set, or will be, would be reported as never retrieved.
        if not self._opened.cancel() and not self._opened.cancelled():
            self._opened.exception()
        self.abort()

    # Called by the socket.

    def socket_opened(self, socket: FrameSocket) -> None:
        self._socket = socket
        self._perform(self._start())

    def frame_received(self, data: bytes | memoryview) -> None:
        self.arrived += 1
        try:
            effects = self._end.receive(data)
        except RelayError as exc:
            self._give_up(str(exc))
        else:
            if effects:
                self._perform(effects)

    def text_received(self, data: bytes) -> None:
        self._give_up("a text message")

    def writing_paused(self) -> None:
        if self._receiver is not None:
            self._receiver.writing_paused()

    def writing_resumed(self) -> None:
        if self._receiver is not None:
            self._receiver.writing_resumed()

    def socket_lost(self, reason: str) -> None:
        self._is_lost = True
        if not self._opened.done():
            self._opened.set_exception(ConnectError(f"the stream was not opened: {self._cause}"))
        if self._receiver is not None:
            self._deliver_early()
            receiver, self._receiver = self._receiver, None
            if receiver is not None:
                receiver.connection_lost()

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if type(effect) is Message:
                if self._receiver is not None and not self._early:
                    self._receiver.message_received(effect.data)
                elif not self._is_lost:
                    self._early.append(effect.data)
            elif type(effect) is Send:
                if self._socket is not None:
                    self._socket.send(effect.buffer, effect.start)
            elif type(effect) is StreamOpened and not self._opened.done():
                self._opened.set_result(None)
                # Only what has been read already can still come.
                self.pause_reading()

    def _deliver_early(self) -> None:
        early, self._early = self._early, []
        for message in early:
            if self._receiver is not None:
                self._receiver.message_received(message)

    def _give_up(self, cause: str) -> None:
        self._cause = cause
        self.abort()

    # The methods of a Connection.

    @property
    def departed(self) -> int:
        return self.unsent_bytes // _BACKLOG_BYTES

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._socket is None or self._is_lost else self._socket.unsent_bytes

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._end.join_with(getattr(receiver, "join", b"".join))
        if self._early:
            self._loop.call_soon(self._deliver_early)
        if self._is_lost:
            self._loop.call_soon(self.socket_lost, "")
        else:
            self.resume_reading()

    def send(self, *parts: bytes) -> None:
        if self._is_lost:
            return
        trace = trace_of(parts[0]) if len(parts) == 1 else None
        try:
            self._perform(self._end.send(*parts, trace=trace))
        except RelayError as exc:
            self._give_up(str(exc))

    def send_bytes(self, *parts: bytes) -> None:
        self.send(*parts)

    def close(self, reason: str = "", *, is_violation: bool = False) -> None:
        if self._socket is not None:
            self._socket.close()

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.drop()

    def pause_reading(self) -> None:
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._socket is not None:
            self._socket.resume_reading()
