"""docs/architecture.md says what the code says."""

from __future__ import annotations

from tests.requirements import requirement
from tests.support.architecture import PAGE, rewritten, unknown_hops


@requirement("house/map:generated")
def test_the_tree_and_the_permissions_on_the_page_are_those_of_the_code():
    page = PAGE.read_text(encoding="utf-8")
    assert rewritten(page) == page, "run `make map`"


@requirement("house/map:flows")
def test_the_flows_name_what_there_is():
    unknown = list(unknown_hops(PAGE.read_text(encoding="utf-8")))
    assert not unknown, "flows of docs/architecture.md:\n  " + "\n  ".join(unknown)


def test_a_hop_that_does_not_exist_is_found():
    page = """
## Five flows
    rpc/peer.py  Peer.message_received   is there
    rpc/peer.py  Peer.nothing            is not
    rpc/none.py  nothing                 is not
    """
    assert list(unknown_hops(page)) == [
        "rpc/peer.py has no Peer.nothing",
        "rpc/none.py does not exist",
    ]
