"""The current trace as headers, for requests to the registry and for upgrades."""

from __future__ import annotations

import sys


def trace_headers() -> dict[str, str]:
    """Return the headers of W3C Trace Context for the current span; none if there is no span.

    A program that collects spans has imported `opentelemetry.trace`; otherwise it is not imported.
    """
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier
