"""Values that the telemetry of a registry and its exporter share."""

from __future__ import annotations

import msgspec


class RequestInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of a request."""

    operation: str
    method: str
    scheme: str
    route: str
    role: str
    environment_id: str


class ExportedSignals(msgspec.Struct, frozen=True):
    """What is to be sent to a collector."""

    traces: bool
    metrics: bool
