"""The ranges of names that a token may see."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from exec_server.hub.store.names import fits
from exec_server.hub.store.ranges import spans
from tests.requirements import requirement

names = st.text("-.09AZ_az", min_size=1, max_size=5)
patterns = st.lists(st.text("-.0A_a*?", min_size=1, max_size=4), max_size=6)


@requirement("hub/listing:patterns")
def test_what_begins_like_no_pattern_is_not_looked_at():
    assert spans([]) == []
    found = [(span.first, span.last) for span in spans(["c", "build-*", "a-?", "build-1", "a*"])]
    assert found == [("a", "a~"), ("build-", "build-~"), ("c", "c")]
    assert [(span.first, span.last) for span in spans(["x", "*-1"])] == [("", "~")]


@requirement("hub/listing:patterns")
@given(patterns, names)
def test_every_name_that_fits_is_in_one_span_with_its_patterns(patterns, name):
    found = spans(patterns)
    inside = [span for span in found if span.first <= name <= span.last]
    assert len(inside) <= 1
    assert fits(name, patterns) == any(fits(name, span.patterns) for span in inside)
    assert all(one.last < other.first for one, other in pairwise(found))
