"""Payloads come out by number, each once, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import RelayError
from exec_server.limits import Limits
from exec_server.relay.reorder import Reorder
from tests.requirements import requirement


def received(reorder: Reorder, *seqs: int) -> list[bytes]:
    return [bytes(ready) for seq in seqs for ready in reorder.receive(seq, b"%d" % seq)]


@requirement("relay/reorder:window")
@given(st.integers(1, 65).flatmap(lambda count: st.permutations(range(count))))
def test_any_order_inside_the_window_delivers_the_sequence(order):
    reorder = Reorder()
    assert received(reorder, *order) == [b"%d" % seq for seq in sorted(order)]
    assert reorder.held_bytes == 0


@requirement("relay/reorder:window")
def test_64_ahead_pass_and_65_do_not():
    reorder = Reorder()
    received(reorder, 0, 1, 66)
    with pytest.raises(RelayError):
        received(reorder, 67)


@requirement("relay/reorder:window")
def test_one_mebibyte_waits_and_not_a_byte_more():
    reorder = Reorder()
    for seq in range(1, 17):
        reorder.receive(seq, bytes(65_536))
    assert reorder.held_bytes == 2**20
    with pytest.raises(RelayError):
        reorder.receive(17, b"x")
    # The missing frame is always accepted.
    assert len(reorder.receive(0, bytes(65_536))) == 17


@requirement("relay/reorder:first-copy-wins")
def test_the_first_copy_wins():
    reorder = Reorder()
    assert reorder.receive(1, b"first") == ()
    assert reorder.receive(1, b"second") == ()
    assert list(reorder.receive(0, b"zero")) == [b"zero", b"first"]
    assert reorder.receive(0, b"again") == () == reorder.receive(1, b"again")


@requirement("relay/reorder:first-copy-wins", "relay/reorder:window")
@given(st.lists(st.integers(0, 12), max_size=60), st.integers(1, 12), st.integers(1, 20))
def test_whatever_comes_the_result_is_a_prefix(seqs, frames, size):
    limits = Limits(relay_reorder_frames=frames, relay_reorder_bytes=size)
    reorder = Reorder(limits=limits)
    out: list[bytes] = []
    for seq in seqs:
        try:
            out += map(bytes, reorder.receive(seq, b"%d" % seq))
        except RelayError:
            break
        assert reorder.held_bytes <= size
    assert out == [b"%d" % seq for seq in range(len(out))]
