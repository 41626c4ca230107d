"""The trace that a request to the registry or an upgrade belongs to, as headers."""

from __future__ import annotations

import sys


def trace_headers() -> dict[str, str]:
    """The current span as W3C Trace Context has it; nothing when there is none.

    Whoever collects spans has imported `opentelemetry.trace`; we never do it for others.
    """
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier
