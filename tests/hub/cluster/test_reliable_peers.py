"""Peers that are gone, or break the rules."""

from __future__ import annotations

import pytest

from exec_server.hub.cluster.reliable import ReliableChannel
from exec_server.hub.cluster.reliable_halves import END, HEADER_BYTES, STATUS
from tests.requirements import requirement
from tests.support.reliable_channels import (
    FRAGMENT,
    LIMIT,
    PATIENCE,
    WINDOW,
    bring,
    channel,
    header,
    settle,
)


@requirement("hub/reliable:gone")
def test_on_a_dead_bus_patience_ends(near):
    near.send(b"a")
    for _ in range(PATIENCE - 1):
        near.packets()
        near.tick()
        assert not near.has_failed
    near.tick()
    assert near.has_failed
    assert not near.needs_ticks
    assert near.packets() == []
    near.send(b"b")
    near.end(1000, "")
    near.tick()
    near.receive(header(STATUS))
    assert near.packets() == []


@requirement("hub/reliable:gone")
def test_a_peer_that_is_gone_while_the_window_is_closed_is_noticed(near, far):
    far.pause()
    near.send(bytes(2 * WINDOW))
    bring(near.packets(), far)
    far.tick()
    bring(far.packets(), near)
    for _ in range(PATIENCE):
        assert not near.has_failed
        near.tick()
        near.packets()
    assert near.has_failed


@requirement("hub/reliable:gone")
def test_a_peer_that_takes_nothing_but_lives_is_waited_for(near, far):
    far.pause()
    near.send(bytes(2 * WINDOW))
    for _ in range(20 * PATIENCE):
        bring(near.packets(), far)
        bring(far.packets(), near)
        near.tick()
        far.tick()
    assert not near.has_failed
    far.resume()
    assert far.messages() + settle(near, far)[1] == [bytes(2 * WINDOW)]


@requirement("hub/reliable:gone")
def test_a_peer_that_is_heard_but_hears_nothing_is_given_up(near, far):
    near.send(b"a")
    near.packets()
    for _ in range(PATIENCE):
        assert not near.has_failed
        far.send(b"b")
        bring(far.packets(), near)
        near.tick()
        near.packets()
    assert near.has_failed


MALFORMED = [
    b"",
    header(STATUS)[:-1],
    header(STATUS) + b"x",
    header(END),
    header(END) + b"x",
    header(END) + b"\x03\xe8\xff",
    header(END) + b"\x03\xe8" + bytes(124),
    header(1),
    header(4),
    header(0x40),
    header(0x80 | STATUS),
]


@requirement("hub/reliable:nonsense")
@pytest.mark.parametrize("packet", MALFORMED, ids=bytes.hex)
def test_a_malformed_packet_is_counted_and_ignored(near, packet):
    near.receive(packet)
    assert near.malformed == 1
    assert not near.has_failed
    assert not near.needs_ticks
    assert near.packets() == []


IMPOSSIBLE = {
    "acknowledges what was not sent": header(STATUS, expected=2),
    "opens more than was taken": header(STATUS, expected=1, credit=LIMIT + HEADER_BYTES + 2),
    "opens less than at first": header(STATUS, credit=LIMIT - 1),
    "is far ahead": header(2, number=LIMIT // HEADER_BYTES + 2),
    "is more than the window": header(2) + bytes(WINDOW + 1),
}


@requirement("hub/reliable:nonsense")
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_peer_that_breaks_the_rules_fails_the_channel(near, name):
    near.send(b"a")
    near.packets()
    near.receive(IMPOSSIBLE[name])
    assert near.has_failed
    assert near.malformed == 0
    assert near.messages() == []
    assert near.packets() == []


@requirement("hub/reliable:nonsense")
@pytest.mark.parametrize(
    "packet",
    [
        header(STATUS, expected=1, credit=LIMIT + HEADER_BYTES + 1),
        header(2, number=LIMIT // HEADER_BYTES + 1),
        header(2) + bytes(WINDOW),
    ],
    ids=["all was taken", "just possible", "a whole window"],
)
def test_a_peer_may_go_to_the_limits(near, packet):
    near.send(b"a")
    near.packets()
    near.receive(packet)
    assert not near.has_failed


@requirement("hub/reliable:nonsense")
@pytest.mark.parametrize("kind", [2, END])
def test_nothing_may_come_after_the_end(near, kind):
    near.receive(header(END) + b"\x03\xe8")
    near.receive(header(kind, number=1) + b"\x03\xe8")
    assert near.has_failed
    assert near.messages() == []


@requirement("hub/reliable:nonsense")
def test_an_end_amid_a_message_fails(near):
    near.receive(header(1) + b"half")
    near.receive(header(END, number=1) + b"\x03\xe8")
    assert near.has_failed
    assert near.messages() == []


@requirement("hub/reliable:nonsense")
def test_a_message_beyond_the_longest_fails():
    near, far = (
        channel(),
        ReliableChannel(window=WINDOW, fragment=FRAGMENT, patience=9, longest=WINDOW),
    )
    near.send(bytes(WINDOW))
    assert settle(near, far)[1] == [bytes(WINDOW)]
    near.send(bytes(WINDOW + 1))
    while near.needs_ticks and not far.has_failed:
        assert bring(near.packets(), far) == []
        bring(far.packets(), near)
        near.tick()
    assert far.has_failed
