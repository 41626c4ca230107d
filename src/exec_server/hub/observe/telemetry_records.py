"""Values that `telemetry.py` and `otlp.py` share."""

from __future__ import annotations

import msgspec


class RequestInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a request that are exported."""

    operation: str
    method: str
    scheme: str
    route: str
    role: str
    environment_id: str


class ExportedSignals(msgspec.Struct, frozen=True):
    """The signals that a collector gets."""

    traces: bool
    metrics: bool
