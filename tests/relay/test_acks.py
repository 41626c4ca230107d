"""ack and ack_bits tell which frames have arrived."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import RelayError
from exec_server.limits import Limits
from exec_server.relay.acks import ReceivedFrames, SentFrames
from tests.requirements import requirement


@requirement("relay/plaintext:acks")
@given(st.lists(st.integers(0, 60), max_size=80))
def test_the_numbers_tell_what_has_come(seqs):
    received, seen = ReceivedFrames(), set()
    for seq in seqs:
        assert received.note(seq) == (seq not in seen)
        seen.add(seq)
        in_a_row = next(number for number in range(62) if number not in seen)
        assert received.ack == max(in_a_row - 1, 0)
        told = {received.ack + 1 + bit for bit in range(32) if received.ack_bits >> bit & 1}
        assert told == ({s for s in seen if in_a_row <= s < in_a_row + 32} if in_a_row else set())


@requirement("relay/plaintext:acks")
def test_bit_i_stands_for_ack_plus_one_plus_i():
    received = ReceivedFrames()
    for seq in (0, 1, 2, 4, 7):
        received.note(seq)
    assert (received.ack, received.ack_bits) == (2, 0b10010)


@requirement("relay/plaintext:arrival-order")
def test_a_frame_too_far_ahead_is_an_error():
    received = ReceivedFrames(limits=Limits(relay_seen_frames=5))
    assert received.note(5) and not received.note(5)
    with pytest.raises(RelayError):
        received.note(6)
    with pytest.raises(RelayError):
        received.note(2**32 - 1)


def test_counting_starts_where_the_peer_says():
    received = ReceivedFrames(first=7)
    assert (received.ack, received.note(6), received.note(7), received.ack) == (6, False, True, 7)


@requirement("relay/plaintext:acks")
@given(st.lists(st.integers(0, 39), min_size=1, max_size=60))
def test_the_sender_counts_what_was_confirmed(arriving):
    received, sent = ReceivedFrames(), SentFrames()
    sent.next_seq = 40
    for seq in arriving:
        received.note(seq)
        sent.read(received.ack, received.ack_bits)
    in_a_row = next(number for number in range(41) if number not in arriving)
    counted = len({seq for seq in arriving if seq < in_a_row + 32}) if in_a_row > 0 else 0
    # An ack of 0 alone has no meaning.
    assert sent.unacknowledged == (40 if counted == 1 else 40 - counted)


@requirement("relay/plaintext:acks")
@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), max_size=10))
def test_claims_that_cannot_be_true_are_passed_over(claims):
    sent = SentFrames()
    sent.next_seq = 10
    for ack, ack_bits in [*claims, (4, 0b10), (2, 0), (9, 1)]:
        sent.read(ack, ack_bits)
        assert 0 <= sent.unacknowledged <= 10
    assert sent.unacknowledged <= 4
