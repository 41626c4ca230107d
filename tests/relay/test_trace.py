"""Requests show their trace, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.relay.frame import Trace
from exec_server.relay.trace import trace_of
from tests.requirements import requirement

CONTEXT = b'{"traceparent":"00-a-b-01","tracestate":"k=v"}'


@requirement("relay/trace:copied")
@pytest.mark.parametrize(
    ("message", "trace"),
    [
        (b'{"id":1,"method":"m","trace":%s}' % CONTEXT, Trace("00-a-b-01", "k=v")),
        (b'{"id":"a","method":"m","trace":{"traceparent":"p"}}', Trace("p", None)),
        (b'{"id":1,"method":"m","trace":{"traceparent":"p","tracestate":null}}', Trace("p", None)),
        (b'{"id":1,"method":"m"}', None),
        (b'{"id":1,"method":"m","params":{"trace":%s}}' % CONTEXT, None),
        (b'{"id":1,"method":"m","trace":null}', None),
        (b'{"id":1,"method":"m","trace":{"tracestate":"k=v"}}', None),
        (b'{"id":1,"method":"m","trace":{"traceparent":7}}', None),
        (b'{"id":1,"result":{},"trace":%s}' % CONTEXT, None),
        (b'{"method":"m","trace":%s}' % CONTEXT, None),
        (b'"trace"', None),
        (b'{"trace"', None),
    ],
)
def test_the_trace_of_a_request(message, trace):
    assert trace_of(message) == trace


@given(st.binary(max_size=50))
def test_arbitrary_bytes_have_none(data):
    assert trace_of(data + b'"trace"') is None
