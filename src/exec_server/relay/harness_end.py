"""The harness's end of an encrypted stream, which has a socket of its own.

Perform the effects of `start`, then give every binary message to `receive`. A RelayError ends the
connection, and so does a text message: drop the socket. It never falls back to plaintext.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from exec_server.errors import RelayError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.relay.effects import Effect, Message, Send, StreamOpened
from exec_server.relay.frame import (
    Data,
    Handshake,
    RelayFrame,
    Reset,
    Resume,
    StreamId,
    Trace,
    decode,
    encode,
)
from exec_server.relay.keys import SEED_BYTES, KeyPair, PublicKeys
from exec_server.relay.noise import Initiator, prologue
from exec_server.relay.noise_stream import NoiseStream
from exec_server.relay.records import Join


class HarnessEnd:
    """One stream to the executor whose key the registry has named.

    Each connection needs a new random UUID as *stream_id*; *identity* may be used for many.
    """

    def __init__(
        self,
        identity: KeyPair,
        executor: PublicKeys,
        *,
        environment_id: str,
        registration_id: str,
        stream_id: str,
        random_bytes: Callable[[int], bytes],
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.stream_id = StreamId(stream_id)
        self._limits = limits
        self._initiator: Initiator | None = Initiator(
            identity,
            executor,
            prologue=prologue(environment_id, registration_id, stream_id),
            ephemeral=KeyPair(random_bytes(SEED_BYTES)),
        )
        self._stream: NoiseStream | None = None
        self._join: Join = b"".join

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    def start(self, authorization: str) -> Sequence[Effect]:
        """Announce the stream and begin the handshake; to be called once."""
        assert self._initiator is not None
        message = self._initiator.write(authorization.encode())
        return [
            Send(encode(RelayFrame(self.stream_id, body)))
            for body in (Resume(), Handshake(message))
        ]

    def join_with(self, join: Join) -> None:
        """Let *join* make the long messages."""
        self._join = join
        if self._stream is not None:
            self._stream.join_with(join)

    def receive(self, data: bytes | memoryview) -> Sequence[Effect]:
        """Return StreamOpened once, then Messages. Raises RelayError if it cannot go on."""
        try:
            messages = None if self._stream is None else self._stream.receive_next(data)
            if messages is None:
                return self._receive(data)
            return [Message(self.stream_id, message) for message in messages] if messages else ()
        except RelayError:
            self._initiator = self._stream = None
            raise

    def send(self, *parts: bytes, trace: Trace | None = None) -> Iterable[Effect]:
        """Send one message, given in pieces; nothing happens unless the stream is open.

        Perform all effects before the next call: those of a long message are made one by one.
        Raises RelayError, before the first effect, if no peer would accept the message or all
        sequence numbers are used.
        """
        if self._stream is None:
            return ()
        return self._stream.send(*parts, trace=trace)

    def _receive(self, data: bytes | memoryview) -> Sequence[Effect]:
        frame = decode(data)
        if frame.stream_id != self.stream_id:
            return ()
        match frame.body:
            case Data() as body:
                return self._on_data(body)
            case Handshake(message):
                return self._on_handshake(message)
            case Reset():
                # A reset is not authenticated, so its words are not repeated.
                raise RelayError(
                    "the stream was reset"
                    if self.is_open
                    else "the stream was reset; the executor may not serve the key of this client"
                )
            case _:
                return ()

    def _on_handshake(self, message: bytes) -> Sequence[Effect]:
        if self._initiator is None:
            raise RelayError("a second handshake")
        channel = self._initiator.read(message)
        self._initiator = None
        self._stream = NoiseStream(self.stream_id, channel, limits=self._limits)
        self._stream.join_with(self._join)
        return [StreamOpened(self.stream_id)]

    def _on_data(self, body: Data) -> Sequence[Effect]:
        if self._stream is None:
            raise RelayError("data without a handshake")
        return [Message(self.stream_id, data) for data in self._stream.receive(body)]
