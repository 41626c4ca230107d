"""Write ids already accepted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exec_server.limits import DEFAULT_LIMITS
from exec_server.state.write_ids import WriteIds
from tests.requirements import requirement


@given(st.lists(st.text(max_size=2), unique=True, max_size=30), st.integers(1, 10))
@requirement("process/write:remembered-ids")
def test_exactly_the_newest_ids_are_remembered(ids, capacity):
    remembered = WriteIds(capacity=capacity)
    for write_id in ids:
        remembered.add(write_id)
    assert [write_id for write_id in ids if write_id in remembered] == ids[-capacity:]


@requirement("process/write:remembered-ids")
def test_four_thousand_and_ninety_six_are_remembered():
    remembered = WriteIds(capacity=DEFAULT_LIMITS.remembered_write_ids)
    for number in range(4097):
        remembered.add(str(number))
    assert "0" not in remembered
    assert "1" in remembered
    assert "4096" in remembered
