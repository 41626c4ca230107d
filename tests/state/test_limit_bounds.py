"""What a process may use, between the defaults and the maximum of a server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exec_server.protocol.limit_words import LIMIT_NAMES
from exec_server.state.limit_bounds import bounded
from tests.requirements import requirement

values = st.integers(1, 1 << 80) | st.floats(0.001, 1e300)
limits = st.dictionaries(st.sampled_from(LIMIT_NAMES), values)


@requirement("limits:server")
def test_a_default_holds_unless_the_request_says_otherwise():
    found = bounded({"pids": 9}, default={"pids": 5, "memory": 7}, maximum={})
    assert found == ({"pids": 9, "memory": 7}, ())


@requirement("limits:server")
def test_nothing_is_beyond_the_maximum():
    found = bounded({"pids": 9, "memory": 3}, default={}, maximum={"pids": 5, "wall": 60})
    assert found == ({"pids": 5, "memory": 3, "wall": 60.0}, ("pids",))


@requirement("limits:server")
@given(limits, limits, limits)
def test_every_limit_of_the_maximum_holds_and_none_is_lost(asked, default, maximum):
    found = bounded(asked, default=default, maximum=maximum)
    assert found.values.keys() == asked.keys() | default.keys() | maximum.keys()
    for name, value in found.values.items():
        assert value <= maximum.get(name, value)
        assert value <= asked.get(name, default.get(name, value))
    assert set(found.lowered) <= asked.keys() & maximum.keys()


@given(limits, limits)
def test_what_was_bounded_once_stays_as_it_is(asked, maximum):
    once = bounded(asked, default={}, maximum=maximum).values
    assert bounded(once, default={}, maximum=maximum) == (once, ())
