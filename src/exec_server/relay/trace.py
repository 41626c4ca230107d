"""The trace context of a request, which its sender copies out of what it encrypts."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Struct, UnsetType

from exec_server.relay.frame import Trace


class _TraceContext(Struct):
    traceparent: str
    tracestate: str | None = None


class _TracedRequest(Struct):
    id: msgspec.Raw
    method: str
    trace: _TraceContext | UnsetType | None = UNSET


_decoder = msgspec.json.Decoder(_TracedRequest)


def trace_of(message: bytes) -> Trace | None:
    """The trace of a JSON-RPC request; None for all other messages and for a malformed trace."""
    # Nearly all messages have none, and this is the cheapest way to know.
    if b'"trace"' not in message:
        return None
    try:
        context = _decoder.decode(message).trace
    except msgspec.DecodeError:
        return None
    if not isinstance(context, _TraceContext):
        return None
    return Trace(context.traceparent, context.tracestate)
