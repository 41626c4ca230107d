"""Many encrypted streams on the one socket of an executor: admission, resets, failure budgets.

Give every binary message of the socket to `Mux.receive` and perform the effects that it returns.
When the registry has answered a `Validate`, call `settle`; at `next_deadline`, call `expire`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from exec_server.errors import RelayError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.relay.budget import FailureBudgets
from exec_server.relay.effects import Abandon, Effect, Send, StreamOpened, Validate
from exec_server.relay.frame import (
    Data,
    Handshake,
    RelayFrame,
    Reset,
    StreamId,
    decode,
    encode,
)
from exec_server.relay.keys import SEED_BYTES, KeyPair, PublicKeys
from exec_server.relay.noise import Responder, prologue
from exec_server.relay.noise_stream import NoiseStream
from exec_server.relay.open_streams import Streams

# The only reason that is sent: a peer that may have caused an error does not learn which it was.
RESET_REASON = "noise_relay_protocol_error"


class _PendingStream(Struct, frozen=True):
    """A handshake that waits for the answer of the registry."""

    stream_id: StreamId
    responder: Responder
    deadline: float


class Mux(Streams[NoiseStream]):
    """The streams of one physical connection, on the executor's side.

    *identity* outlives connections. *registration_id* is that of the registration whose URL was
    dialled. *random_bytes* is a source like `os.urandom`.
    """

    def __init__(
        self,
        identity: KeyPair,
        *,
        environment_id: str,
        registration_id: str,
        random_bytes: Callable[[int], bytes],
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__()
        self._identity = identity
        self._environment_id = environment_id
        self._registration_id = registration_id
        self._random_bytes = random_bytes
        self._limits = limits
        self._failures = FailureBudgets(limits=limits)
        # The keys are tickets. The oldest comes first, so the order is that of the deadlines.
        self._pending: dict[int, _PendingStream] = {}
        self._tickets: dict[StreamId, int] = {}
        self._last_ticket = 0

    def receive(self, data: bytes | memoryview, *, now: float) -> Sequence[Effect]:
        """Take one binary message of the socket. One that is not a valid frame is ignored."""
        try:
            frame = decode(data)
        except RelayError:
            return ()
        stream_id, body = frame.stream_id, frame.body
        if isinstance(body, Data):
            stream = self._open.get(stream_id)
            if stream is not None:
                return self._deliver(stream_id, stream, body)
            return [*self._cancel(stream_id, now=now), self._reset(stream_id)]
        if isinstance(body, Handshake):
            return self._on_handshake(stream_id, body.payload, now=now)
        if isinstance(body, Reset):
            # Resets are not authenticated, so their words are not repeated.
            return [*self._forget(stream_id), *self._was_reset(stream_id, "reset by the peer")]
        return ()

    def settle(self, ticket: int, *, is_valid: bool, now: float) -> Sequence[Effect]:
        """Take the registry's answer to a `Validate`. If it is too late, nothing changes."""
        pending = self._pending.get(ticket)
        if pending is None:
            return ()
        stream_id = pending.stream_id
        self._forget(stream_id)
        if not is_valid or now >= pending.deadline:
            return [self._fail(stream_id, pending.responder.initiator, now=now)]
        if len(self._open) >= self._limits.relay_streams:
            return [self._reset(stream_id)]
        return self._admit(stream_id, pending.responder)

    def next_deadline(self) -> float | None:
        """Return the time at which `expire` is to be called next; None if nothing waits."""
        return next((pending.deadline for pending in self._pending.values()), None)

    def expire(self, *, now: float) -> Sequence[Effect]:
        """Refuse the handshakes for which no answer came in time."""
        effects: list[Effect] = []
        for pending in [p for p in self._pending.values() if p.deadline <= now]:
            effects += self._forget(pending.stream_id)
            effects.append(self._fail(pending.stream_id, pending.responder.initiator, now=now))
        return effects

    def end(self, reason: str = "the socket is gone") -> Sequence[Effect]:
        """End all streams and questions, because the socket is lost."""
        abandoned = [Abandon(ticket) for ticket in self._pending]
        self._pending.clear()
        self._tickets.clear()
        return [*abandoned, *super().end(reason)]

    def _on_handshake(self, stream_id: StreamId, message: bytes, *, now: float) -> Sequence[Effect]:
        failures = self._failures
        if (
            failures.is_flooded(now=now)
            or failures.is_spent(stream_id, now=now)
            or stream_id in self._open
        ):
            return [self._reset(stream_id)]
        if stream_id in self._tickets:
            return [*self._cancel(stream_id, now=now), self._reset(stream_id)]
        if (
            len(self._open) >= self._limits.relay_streams
            or len(self._pending) >= self._limits.relay_validations
        ):
            return [self._reset(stream_id)]
        try:
            responder = Responder(
                self._identity,
                message,
                prologue=prologue(self._environment_id, self._registration_id, stream_id),
            )
        except RelayError:
            return [self._fail(stream_id, now=now)]
        return [self._examine(stream_id, responder, now=now)]

    def _examine(self, stream_id: StreamId, responder: Responder, *, now: float) -> Effect:
        """Judge a harness whose key is known from here on."""
        if self._failures.is_spent(responder.initiator, now=now):
            return self._reset(stream_id)
        try:
            authorization = self._read_authorization(responder.payload)
        except RelayError:
            return self._fail(stream_id, responder.initiator, now=now)
        self._last_ticket += 1
        ticket = self._tickets[stream_id] = self._last_ticket
        deadline = now + self._limits.relay_validation_timeout
        self._pending[ticket] = _PendingStream(stream_id, responder, deadline)
        return Validate(ticket, stream_id, responder.initiator, authorization)

    def _read_authorization(self, payload: bytes) -> str:
        if len(payload) > self._limits.relay_authorization_bytes:
            raise RelayError("the authorization of a harness is too long")
        try:
            return payload.decode()
        except UnicodeDecodeError:
            raise RelayError("the authorization of a harness is not UTF-8") from None

    def _admit(self, stream_id: StreamId, responder: Responder) -> Sequence[Effect]:
        message, channel = responder.write(KeyPair(self._random_bytes(SEED_BYTES)))
        self._open[stream_id] = NoiseStream(stream_id, channel, limits=self._limits)
        return [Send(encode(RelayFrame(stream_id, Handshake(message)))), StreamOpened(stream_id)]

    def _cancel(self, stream_id: StreamId, *, now: float) -> Sequence[Effect]:
        """Drop a handshake whose peer did not wait for the answer; that counts as a failure."""
        ticket = self._tickets.get(stream_id)
        if ticket is not None:
            key = self._pending[ticket].responder.initiator
            self._failures.fail(stream_id, key, now=now)
        return self._forget(stream_id)

    def _forget(self, stream_id: StreamId) -> Sequence[Effect]:
        ticket = self._tickets.pop(stream_id, None)
        if ticket is None:
            return ()
        del self._pending[ticket]
        return [Abandon(ticket)]

    def _fail(self, stream_id: StreamId, *key: PublicKeys, now: float) -> Send:
        """Refuse a handshake and count it, also for its key if that is known."""
        self._failures.fail(stream_id, *key, now=now)
        return self._reset(stream_id)

    def _reset(self, stream_id: StreamId, reason: str = RESET_REASON) -> Send:
        return super()._reset(stream_id, RESET_REASON)
