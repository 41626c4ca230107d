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


class TelemetrySource(msgspec.Struct, frozen=True):
    """The program that exports."""

    # The name of the service, and the beginning of the names of its metrics.
    service: str
    scope: str


REGISTRY = TelemetrySource("exec-server-registry", "exec_server.registry")
SERVER = TelemetrySource("exec-server", "exec_server.server")
