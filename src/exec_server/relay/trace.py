"""The trace context of a request, which the sender copies into the unencrypted frame."""

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
    """Return the trace of a JSON-RPC request; None for other messages and a malformed trace."""
    # Nearly all messages have no trace, and this is the cheapest test for one.
    if b'"trace"' not in message:
        return None
    try:
        context = _decoder.decode(message).trace
    except msgspec.DecodeError:
        return None
    if not isinstance(context, _TraceContext):
        return None
    return Trace(context.traceparent, context.tracestate)
