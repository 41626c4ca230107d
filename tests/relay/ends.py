"""Both ends of a stream, with keys that are the same in every run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.relay.effects import Effect, Message, Send, StreamClosed, StreamOpened, Validate
from exec_server.relay.frame import (
    ROOM,
    Body,
    DataEncoder,
    RelayFrame,
    StreamId,
    Trace,
    decode,
    encode,
)
from exec_server.relay.harness_end import HarnessEnd
from exec_server.relay.keys import KeyPair
from exec_server.relay.mux import Mux

ENVIRONMENT, REGISTRATION = "env-1", "registration-1"
STREAM = StreamId("3f0c6c1e-8a55-4b5e-9d0e-2a2a2a2a2a2a")
E = TypeVar("E")


def written(encoder: DataEncoder, seq: int, payload: bytes, trace: Trace | None = None) -> bytes:
    """The frame that *encoder* makes for *payload*."""
    buffer, at = encoder.frame(seq, len(payload), trace)
    buffer[at : at + len(payload)] = payload
    return bytes(buffer[ROOM:])


def known_bytes(name: str) -> Callable[[int], bytes]:
    """A source of bytes that look random and are always the same."""
    drawn = 0

    def draw(size: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_256(f"{name}/{drawn}".encode()).digest(size)

    return draw


EXECUTOR = KeyPair(known_bytes("executor")(96))
HARNESS = KeyPair(known_bytes("harness")(96))
STRANGER = KeyPair(known_bytes("stranger")(96))


def new_mux(limits: Limits = DEFAULT_LIMITS) -> Mux:
    return Mux(
        EXECUTOR,
        environment_id=ENVIRONMENT,
        registration_id=REGISTRATION,
        random_bytes=known_bytes("mux"),
        limits=limits,
    )


def new_harness(
    stream_id: str = STREAM,
    *,
    key: KeyPair = HARNESS,
    executor: KeyPair = EXECUTOR,
    limits: Limits = DEFAULT_LIMITS,
) -> HarnessEnd:
    return HarnessEnd(
        key,
        executor.public,
        environment_id=ENVIRONMENT,
        registration_id=REGISTRATION,
        stream_id=stream_id,
        random_bytes=known_bytes(stream_id),
        limits=limits,
    )


def frame(body: Body, stream_id: str = STREAM) -> bytes:
    return encode(RelayFrame(StreamId(stream_id), body))


def only(effects: Iterable[Effect], kind: type[E]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(effects: Iterable[Effect]) -> list[RelayFrame]:
    """The frames that the effects send."""
    return [decode(send.data) for send in only(effects, Send)]


def messages(effects: Iterable[Effect]) -> list[bytes]:
    return [message.data for message in only(effects, Message)]


def asked(
    mux: Mux, harness: HarnessEnd, *, now: float = 0, authorization: str = "let me in"
) -> Validate:
    """Return the question of *mux* to the registry about *harness*."""
    effects = [e for send in knock(harness, authorization) for e in mux.receive(send, now=now)]
    (question,) = effects
    assert isinstance(question, Validate)
    return question


def knock(harness: HarnessEnd, authorization: str = "let me in") -> Sequence[bytes]:
    return [send.data for send in only(harness.start(authorization), Send)]


def handshake(
    stream_id: str = STREAM, authorization: str = "let me in", *, key: KeyPair = HARNESS
) -> bytes:
    """The frame of a first message."""
    return knock(new_harness(stream_id, key=key), authorization)[1]


def connect(mux: Mux, harness: HarnessEnd, *, now: float = 0) -> None:
    """Complete a handshake."""
    question = asked(mux, harness, now=now)
    answer, opened = mux.settle(question.ticket, is_valid=True, now=now)
    assert isinstance(answer, Send) and opened == StreamOpened(harness.stream_id)
    assert harness.receive(answer.data) == [StreamOpened(harness.stream_id)]


def pair(limits: Limits = DEFAULT_LIMITS, stream_id: str = STREAM) -> tuple[Mux, HarnessEnd]:
    mux, harness = new_mux(limits), new_harness(stream_id, limits=limits)
    connect(mux, harness)
    return mux, harness


def to_mux(mux: Mux, effects: Iterable[Effect], *, now: float = 0) -> list[Effect]:
    """Return the effects of the executor for all that the harness sends."""
    return [e for send in only(effects, Send) for e in mux.receive(send.data, now=now)]


def is_alive(mux: Mux, harness: HarnessEnd) -> bool:
    """True if a message of the harness still arrives."""
    return messages(to_mux(mux, harness.send(b"are you there"))) == [b"are you there"]


def closed(effects: Iterable[Effect]) -> list[StreamId]:
    return [effect.stream_id for effect in only(effects, StreamClosed)]
