"""The lease on the input of a process."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exec_server.state.lease import Lease
from tests.requirements import requirement

SEATS = ("owner", "ann", "bob", "bot")
PEOPLE = {"ann", "bob"}
steps = st.lists(
    st.tuples(st.sampled_from(("take", "offer", "give back", "leave")), st.sampled_from(SEATS))
)


@requirement("sharing/lease:rules")
@given(steps)
def test_the_epoch_grows_with_each_change_and_never_otherwise(steps):
    lease, present = Lease("owner"), {*SEATS}
    for step, who in steps:
        if who not in present:
            continue
        holder, epoch, offered = lease.holder, lease.epoch, lease.offered
        if step == "take":
            outcome = lease.take(who, is_person=who in PEOPLE, holder_is_person=holder in PEOPLE)
            may = who in PEOPLE or holder not in PEOPLE or offered in ("", who)
            assert (lease.holder == who) == (may or holder == who)
            assert (outcome == "person drives") == (lease.holder != who)
        elif step == "offer" and who == holder:
            lease.offer("bot")
        elif step == "give back" and who == holder:
            assert lease.give_back() == (who != "owner")
        elif step == "leave" and who != "owner":
            present.discard(who)
            lease.leave(who)
        assert lease.holder in present
        assert lease.epoch == epoch + (lease.holder != holder)


@requirement("sharing/lease:rules")
def test_it_goes_back_to_the_one_before():
    lease = Lease("owner", epoch=7)
    for who in ("bot", "ann"):
        lease.take(who, is_person=who == "ann", holder_is_person=False)
    assert (lease.holder, lease.epoch) == ("ann", 9)
    assert lease.give_back()
    assert lease.holder == "bot"
    assert lease.leave("bot")
    assert (lease.holder, lease.epoch) == ("owner", 11)
    assert not lease.give_back()
