"""The handshake ends in two channels that agree, or in a RelayError."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import RelayError
from exec_server.relay.frame import SEQ_END
from exec_server.relay.keys import KeyPair, PublicKeys
from exec_server.relay.noise import Channel, Initiator, Responder, Sealer, prologue
from tests.relay.ends import EXECUTOR, HARNESS, STRANGER, known_bytes
from tests.requirements import requirement

PROLOGUE = prologue("env-1", "registration-1", "stream-1")
EPHEMERAL_1 = KeyPair(known_bytes("ephemeral 1")(96))
EPHEMERAL_2 = KeyPair(known_bytes("ephemeral 2")(96))
PAYLOAD = b"because"


def initiator(said: bytes = PROLOGUE, executor: KeyPair = EXECUTOR) -> Initiator:
    return Initiator(HARNESS, executor.public, prologue=said, ephemeral=EPHEMERAL_1)


MESSAGE_1 = initiator().write(PAYLOAD)


def answered() -> tuple[Initiator, bytes, Channel]:
    """Return an initiator, the answer that it waits for, and the responder's channel."""
    waiting = initiator()
    responder = Responder(EXECUTOR, waiting.write(PAYLOAD), prologue=PROLOGUE)
    return waiting, *responder.write(EPHEMERAL_2)


def flipped(message: bytes, bit: int) -> bytes:
    changed = bytearray(message)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@requirement("relay/noise:prologue")
def test_the_prologue_is_that_of_the_reference():
    assert PROLOGUE.hex() == (
        "0000000000000020636f6465782d657865632d7365727665722d72656c61792d6e6f6973652f7631"
        "0000000000000005656e762d31"
        "000000000000000e726567697374726174696f6e2d31"
        "000000000000000873747265616d2d31"
    )


@given(st.binary(max_size=200))
def test_the_responder_learns_who_knocks_and_why(payload):
    responder = Responder(EXECUTOR, initiator().write(payload), prologue=PROLOGUE)
    assert responder.initiator == HARNESS.public
    assert responder.payload == payload


def test_both_ends_can_read_each_other():
    waiting, message, theirs = answered()
    ours = waiting.read(message)
    assert len(message) == 3424
    assert ours.handshake_hash == theirs.handshake_hash
    for number in range(3):
        text = b"%d" % number
        assert theirs.opener.open(ours.sealer.seal(text)) == text
        assert ours.opener.open(theirs.sealer.seal(text)) == text


@requirement("relay/noise:tampering")
@given(st.integers(0, len(MESSAGE_1) * 8 - 1))
def test_a_changed_first_message_is_refused(bit):
    with pytest.raises(RelayError):
        Responder(EXECUTOR, flipped(MESSAGE_1, bit), prologue=PROLOGUE)


@requirement("relay/noise:tampering")
@given(st.integers(0, len(MESSAGE_1) - 1), st.binary(max_size=40))
def test_a_first_message_of_another_length_is_refused(size, rest):
    for message in (MESSAGE_1[:size], MESSAGE_1 + rest + b"x", MESSAGE_1[size:]):
        if message != MESSAGE_1:
            with pytest.raises(RelayError):
                Responder(EXECUTOR, message, prologue=PROLOGUE)


@requirement("relay/noise:tampering")
@given(st.integers(0, 3424 * 8 - 1))
def test_a_changed_second_message_is_refused(bit):
    waiting, message, _ = answered()
    with pytest.raises(RelayError):
        waiting.read(flipped(message, bit))


@requirement("relay/noise:tampering")
@given(st.integers(0, 3423), st.binary(min_size=1, max_size=40))
def test_a_second_message_of_another_length_is_refused(size, rest):
    for change in (lambda message: message[:size], lambda message: message + rest):
        waiting, message, _ = answered()
        with pytest.raises(RelayError):
            waiting.read(change(message))


@requirement("relay/noise:tampering")
@pytest.mark.parametrize("size", [0, 3567, 65536])
def test_a_first_message_is_neither_too_short_nor_too_long(size):
    with pytest.raises(RelayError):
        Responder(EXECUTOR, bytes(size), prologue=PROLOGUE)


def test_the_longest_first_message_passes():
    longest = 65535 - 3568
    message = initiator().write(bytes(longest))
    assert len(Responder(EXECUTOR, message, prologue=PROLOGUE).payload) == longest
    with pytest.raises(RelayError):
        initiator().write(bytes(longest + 1))


@requirement("relay/noise:prologue")
@pytest.mark.parametrize(
    "said",
    [
        prologue("env-2", "registration-1", "stream-1"),
        prologue("env-1", "registration-2", "stream-1"),
        prologue("env-1", "registration-1", "stream-2"),
        prologue("env-1r", "egistration-1", "stream-1"),
    ],
)
def test_a_handshake_for_another_place_is_refused(said):
    with pytest.raises(RelayError):
        Responder(EXECUTOR, initiator(said).write(PAYLOAD), prologue=PROLOGUE)


def test_a_handshake_for_another_executor_is_refused():
    with pytest.raises(RelayError):
        Responder(EXECUTOR, initiator(executor=STRANGER).write(PAYLOAD), prologue=PROLOGUE)


def test_an_answer_to_another_handshake_is_refused():
    _, message, _ = answered()
    waiting, _, _ = answered()
    with pytest.raises(RelayError):
        waiting.read(message)


class Weak:
    """A key pair whose public keys are not what they should be."""

    def __init__(self, pair: KeyPair, *, x25519: bytes | None, mlkem768: bytes | None) -> None:
        self._pair = pair
        self.public = PublicKeys(pair.public.x25519, pair.public.mlkem768)
        self.public.x25519 = x25519 or pair.public.x25519
        self.public.mlkem768 = mlkem768 or pair.public.mlkem768

    def exchange(self, peer: PublicKeys) -> bytes:
        return self._pair.exchange(peer)


ZERO = {"x25519": bytes(32), "mlkem768": None}
UNREDUCED = {"x25519": None, "mlkem768": b"\xff\xff\xff" + HARNESS.public.mlkem768[3:]}
ZERO_MLKEM = {"x25519": None, "mlkem768": bytes(1184)}


@requirement("relay/noise:weak-keys")
@pytest.mark.parametrize("weak", [ZERO, UNREDUCED, ZERO_MLKEM])
@pytest.mark.parametrize("whose", ["static", "ephemeral"])
def test_a_weak_key_in_the_first_message_is_refused(weak, whose):
    keys = {"static": HARNESS, "ephemeral": EPHEMERAL_1}
    keys[whose] = Weak(keys[whose], **weak)  # type: ignore[assignment]
    message = Initiator(
        keys["static"], EXECUTOR.public, prologue=PROLOGUE, ephemeral=keys["ephemeral"]
    ).write(PAYLOAD)
    with pytest.raises(RelayError, match=r"zero|malformed"):
        Responder(EXECUTOR, message, prologue=PROLOGUE)


@requirement("relay/noise:weak-keys")
@pytest.mark.parametrize("weak", [ZERO, UNREDUCED, ZERO_MLKEM])
def test_a_weak_key_in_the_second_message_is_refused(weak):
    waiting = initiator()
    responder = Responder(EXECUTOR, waiting.write(PAYLOAD), prologue=PROLOGUE)
    message, _ = responder.write(Weak(EPHEMERAL_2, **weak))  # type: ignore[arg-type]
    with pytest.raises(RelayError, match=r"zero|malformed"):
        waiting.read(message)


@requirement("relay/noise:empty-answer")
def test_a_payload_in_the_second_message_is_refused(monkeypatch):
    waiting = initiator()
    responder = Responder(EXECUTOR, waiting.write(PAYLOAD), prologue=PROLOGUE)
    seal = responder._symmetric.seal
    monkeypatch.setattr(
        "exec_server.relay.noise._Symmetric.seal", lambda _, text: seal(text or b"payload")
    )
    message, _ = responder.write(EPHEMERAL_2)
    monkeypatch.undo()
    assert len(message) == 3424 + len(b"payload")
    with pytest.raises(RelayError, match="carries a payload"):
        waiting.read(message)


@requirement("relay/stream:end-of-numbers")
def test_numbers_do_not_wrap():
    sealer = Sealer(bytes(32))
    sealer.next_seq = SEQ_END - 1
    sealer.seal(b"the last")
    with pytest.raises(RelayError):
        sealer.seal(b"one more")
