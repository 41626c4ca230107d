"""Whatever the bus does to packets: messages arrive once, in order and unchanged, within bounds."""

from __future__ import annotations

import random

import pytest

from exec_server.hub.cluster.reliable_halves import ASK, GAP, HEAD, HEADER_BYTES, STATUS
from tests.requirements import requirement
from tests.support.reliable_channels import (
    FRAGMENT,
    LIMIT,
    PATIENCE,
    WINDOW,
    bring,
    channel,
    kind_of,
    numbers,
    payload_bytes,
    settle,
)


@requirement("hub/reliable:exact")
def test_messages_go_both_ways(near, far):
    near.send(b"ping")
    assert bring(near.packets(), far) == [b"ping"]
    far.send(b"pong")
    assert bring(far.packets(), near) == [b"pong"]
    assert near.taken() == 1
    assert near.packets() == []


@requirement("hub/reliable:pieces")
@pytest.mark.parametrize("size", [0, 1, FRAGMENT, FRAGMENT + 1, WINDOW, 10 * WINDOW + 7])
def test_a_message_of_any_size_arrives_whole(near, far, size):
    data = random.Random(size).randbytes(size)
    near.send(data)
    near.send(b"next")
    first = near.packets()
    assert all(len(packet) <= HEADER_BYTES + FRAGMENT for packet in first)
    assert bring(first, far) + settle(near, far)[1] == [data, b"next"]


def test_a_packet_as_long_as_the_window_fits():
    near, far = channel(fragment=WINDOW), channel(fragment=WINDOW)
    near.send(bytes(WINDOW))
    assert bring(near.packets(), far) == [bytes(WINDOW)]


@pytest.mark.parametrize(
    "wrong", [{"fragment": 0}, {"fragment": WINDOW + 1}, {"patience": 0}], ids=str
)
def test_a_channel_that_could_not_work_is_not_made(wrong):
    with pytest.raises(ValueError, match="a reliable channel needs"):
        channel(**wrong)


@requirement("hub/reliable:window")
@pytest.mark.parametrize("size", [0, 1, 30, FRAGMENT, 3 * FRAGMENT])
def test_no_more_is_sent_than_the_window(near, far, size):
    far.pause()
    for _ in range(1000):
        near.send(bytes(size))
    sent = near.packets()
    assert sent
    assert payload_bytes(sent) <= WINDOW
    assert sum(map(len, sent)) <= LIMIT
    assert bring(sent, far) == []
    assert near.packets() == []
    # No more than that is kept for repetition either.
    near.tick()
    near.tick()
    assert near.packets() == sent
    far.resume()
    assert len(far.messages() + settle(near, far)[1]) == 1000


@requirement("hub/reliable:window")
@pytest.mark.parametrize(("excess", "sent"), [(0, 2), (1, 1)])
def test_the_window_is_used_to_the_last_byte(excess, sent):
    wide = channel(fragment=WINDOW)
    for size in (FRAGMENT, LIMIT - FRAGMENT - 2 * HEADER_BYTES + excess):
        wide.send(bytes(size))
    assert len(wide.packets()) == sent


@requirement("hub/reliable:window")
def test_a_quarter_of_the_window_is_announced_when_taken(near, far):
    near.send(bytes(WINDOW // 4 - HEADER_BYTES - 1))
    bring(near.packets(), far)
    assert far.packets() == []
    near.send(b"")
    bring(near.packets(), far)
    [status] = far.packets()
    assert HEAD.unpack(status) == (STATUS, 0, 2, LIMIT + WINDOW // 4 - 1 + HEADER_BYTES)
    bring([status], near)
    assert near.taken() == 2


@requirement("hub/reliable:window")
def test_a_large_window_is_announced_in_small_steps():
    """A sender that bounds its queue by the taken messages must not wait for a tick."""
    large, step = 64 << 20, 128 << 10
    near, far = (channel(window=large, fragment=step) for _ in range(2))
    near.send(bytes(step))
    bring(near.packets(), far)
    bring(far.packets(), near)
    assert near.taken() == 1


@requirement("hub/reliable:again")
def test_a_gap_is_filled_at_once_and_once(near, far):
    for number in range(4):
        near.send(b"%d" % number)
    packets = near.packets()
    assert bring([packets[0], *packets[2:]], far) == [b"0"]
    [status] = far.packets()
    assert status[0] == STATUS | GAP
    bring([status], near)
    again = near.packets()
    assert numbers(again) == [1, 2, 3]
    # The same report again is about the same gap.
    bring([status], near)
    assert near.packets() == []
    assert bring(again, far) == [b"1", b"2", b"3"]


@requirement("hub/reliable:again")
def test_news_of_a_gap_that_was_filled_is_old(near, far):
    for number in range(3):
        near.send(b"%d" % number)
    packets = near.packets()
    bring(packets[1:], far)
    old = far.packets()
    bring(packets, far)
    far.tick()
    bring(far.packets(), near)
    near.send(b"3")
    near.packets()
    bring(old, near)
    assert near.packets() == []


@requirement("hub/reliable:again")
def test_what_was_lost_at_the_end_is_repeated_after_a_whole_tick(near, far):
    near.send(b"a")
    near.send(b"b")
    sent = near.packets()
    near.tick()
    assert near.packets() == []
    near.tick()
    assert near.packets() == sent
    assert near.packets() == []
    near.tick()
    assert bring(near.packets(), far) == [b"a", b"b"]


@requirement("hub/reliable:again")
@pytest.mark.parametrize("progress", ["arrives", "is taken"])
def test_progress_puts_a_repetition_off(near, far, progress):
    near.send(b"a")
    near.send(b"b")
    first, _ = near.packets()
    far.pause()
    if progress == "is taken":
        bring([first], far)
        far.tick()
        bring(far.packets(), near)
        far.resume()
    near.tick()
    bring([first], far)
    far.messages()
    far.tick()
    bring(far.packets(), near)
    near.tick()
    assert near.packets() == []
    near.tick()
    assert numbers(near.packets()) == [1]


@requirement("hub/reliable:again")
def test_news_of_a_gap_travels_with_a_message(near, far):
    for _ in range(3):
        near.send(b"")
    far.send(b"x")
    far.send(b"y")
    bring(near.packets()[1:], far)
    packets = far.packets()
    assert [packet[0] & GAP for packet in packets] == [GAP, 0]
    assert bring(packets, near) == [b"x", b"y"]
    assert numbers(near.packets()) == [0, 1, 2]


@requirement("hub/reliable:again", "hub/reliable:idle")
def test_an_acknowledgement_goes_alone_at_a_tick_when_nothing_carries_it(near, far):
    near.send(b"a")
    bring(near.packets(), far)
    assert far.packets() == []
    assert far.needs_ticks
    far.tick()
    [status] = far.packets()
    assert kind_of(status) == STATUS
    assert not far.needs_ticks
    bring([status], near)
    assert not near.needs_ticks
    assert near.taken() == 1


@requirement("hub/reliable:idle")
def test_a_channel_at_rest_says_nothing(near, far):
    assert not near.needs_ticks
    near.send(b"a")
    assert near.needs_ticks
    settle(near, far)
    for end in (near, far):
        assert not end.needs_ticks
        for _ in range(10 * PATIENCE):
            end.tick()
        assert end.packets() == []
        assert not end.has_failed


@requirement("hub/reliable:quiet")
def test_a_burst_behind_a_lost_packet_is_answered_once(near, far):
    for _ in range(5):
        near.send(b"")
    bring(near.packets()[1:], far)
    assert [packet[0] for packet in far.packets()] == [STATUS | GAP]
    near.tick()
    near.tick()
    bring(near.packets()[1:], far)
    assert far.packets() == []
    # That answer may be lost: after a tick there is another one.
    assert far.needs_ticks
    far.tick()
    assert not far.needs_ticks
    near.tick()
    bring(near.packets()[1:], far)
    assert [packet[0] for packet in far.packets()] == [STATUS | GAP]


@requirement("hub/reliable:quiet")
def test_each_gap_is_reported_when_there_was_progress_between(near, far):
    for _ in range(6):
        near.send(b"")
    packets = near.packets()
    bring([packets[1], packets[0], packets[3]], far)
    [status] = far.packets()
    assert HEAD.unpack(status)[:3] == (STATUS | GAP, 0, 1)
    bring([packets[1], packets[5]], far)
    [status] = far.packets()
    assert HEAD.unpack(status)[:3] == (STATUS | GAP, 0, 2)


@requirement("hub/reliable:quiet", "hub/reliable:exact")
def test_repeated_packets_are_answered_once_and_delivered_never(near, far):
    for _ in range(5):
        near.send(b"x")
    packets = near.packets()
    bring(packets, far)
    far.packets()
    assert bring(packets, far) == []
    assert [packet[0] for packet in far.packets()] == [STATUS]
    assert bring(packets, far) == []
    assert far.packets() == []
    assert far.needs_ticks
    far.tick()
    assert bring(packets, far) == []
    assert len(far.packets()) == 1


@requirement("hub/reliable:reopened")
def test_a_lost_announcement_of_an_open_window_is_asked_for(near, far):
    for _ in range(10):
        near.send(bytes(FRAGMENT))
    far.pause()
    bring(near.packets(), far)
    far.tick()
    bring(far.packets(), near)
    far.resume()
    far.messages()
    assert far.packets()  # lost
    assert near.packets() == []
    assert near.needs_ticks
    assert not far.needs_ticks
    near.tick()
    near.tick()
    [probe] = near.packets()
    assert probe[0] == STATUS | ASK
    bring([probe], far)
    bring(far.packets(), near)
    assert near.taken() == 3
    assert near.packets()


@requirement("hub/reliable:reopened", "hub/reliable:taken")
def test_lost_news_of_taken_messages_is_asked_for_though_nothing_more_is_queued(near, far):
    near.send(b"a")
    far.pause()
    bring(near.packets(), far)
    far.tick()
    bring(far.packets(), near)
    assert near.taken() == 0
    far.resume()
    far.messages()
    far.tick()
    assert far.packets()  # lost
    settle(near, far)
    assert near.taken() == 1


@requirement("hub/reliable:taken")
def test_messages_count_as_taken_only_when_the_peer_took_them(near, far):
    for data in (b"", b"a", bytes(2 * FRAGMENT), b""):
        near.send(data)
    far.pause()
    bring(near.packets(), far)
    far.tick()
    bring(far.packets(), near)
    assert near.taken() == 0
    far.resume()
    assert far.messages() == [b"", b"a", bytes(2 * FRAGMENT), b""]
    far.tick()
    bring(far.packets(), near)
    assert near.taken() == 4
    assert near.taken() == 0


@requirement("hub/reliable:taken")
def test_discarding_spares_what_was_begun(near, far):
    near.send(b"whole")
    near.send(bytes(2 * WINDOW))
    near.send(b"never")
    near.send(b"sent")
    first = near.packets()
    assert near.discard() == 2
    assert near.discard() == 0
    near.send(b"later")
    assert bring(first, far) + settle(near, far)[1] == [b"whole", bytes(2 * WINDOW), b"later"]
    assert near.taken() == 3


@requirement("hub/reliable:taken", "hub/reliable:idle")
def test_what_was_discarded_is_not_waited_for(near, far):
    near.send(b"a")
    for _ in range(PATIENCE - 1):
        near.tick()
    assert near.discard() == 1
    assert not near.needs_ticks
    near.send(b"b")
    near.tick()
    assert not near.has_failed
    assert settle(near, far)[1] == [b"b"]
    assert near.taken() == 1


@requirement("hub/reliable:end")
def test_an_end_comes_after_all_messages(near, far):
    near.send(b"a")
    near.end(1001, "going")
    near.send(b"too late")
    near.end(1000, "twice")
    far.pause()
    bring(near.packets(), far)
    assert far.ended is None
    far.resume()
    assert far.messages() == [b"a"]
    assert far.ended == (1001, "going")
    assert not near.is_finished
    # The end is acknowledged without waiting for a tick.
    bring(far.packets(), near)
    assert near.is_finished
    assert not far.is_finished
    assert not near.has_failed


@requirement("hub/reliable:end")
def test_an_end_needs_no_window(near, far):
    for _ in range(4):
        near.send(bytes(FRAGMENT - HEADER_BYTES))
    near.end(1000, "")
    far.pause()
    bring(near.packets(), far)
    bring(far.packets(), near)
    assert near.is_finished
    assert far.ended is None


@requirement("hub/reliable:end")
def test_a_lost_end_is_repeated(near, far):
    near.end(1000, "")
    near.packets()
    settle(near, far)
    assert far.ended == (1000, "")
    assert near.is_finished


@requirement("hub/reliable:end")
def test_when_both_end_neither_needs_the_last_word(near, far):
    near.end(1000, "near")
    far.end(1001, "far")
    crossing = near.packets(), far.packets()
    bring(crossing[1], near)
    bring(crossing[0], far)
    assert not near.is_finished
    assert not far.is_finished
    near.packets(), far.packets()  # both lost
    assert near.is_finished
    assert far.is_finished
    for _ in range(PATIENCE):
        far.tick()
    assert not far.has_failed
    assert not far.needs_ticks


@requirement("hub/reliable:end")
def test_a_reason_is_cut_between_letters(near, far):
    near.end(1000, "é" * 100 + "\ud800")
    bring(near.packets(), far)
    assert far.ended == (1000, "é" * 61)
