"""OpenTelemetry spans: one for each call, and one for each process.

Spans are made only if the program has imported `opentelemetry.trace`. This package does not import
it by itself, so without it tracing costs one look at `sys.modules`. Attributes say what was called
and how it ended; arguments, paths and messages, which may contain secrets, are left out.
"""

from __future__ import annotations

import contextlib
import posixpath
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any
from weakref import finalize

import msgspec

from exec_server.errors import RpcError
from exec_server.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from exec_server.protocol.process import StartParams

_API = "opentelemetry.trace"
_PROCESS_ID = "exec_server.process.id"
_OFF: AbstractContextManager[None] = nullcontext()

# The provider that was used last, and its tracer.
_cached: tuple[object, Tracer] | None = None


def _tracer() -> Tracer | None:
    global _cached
    api = sys.modules.get(_API)
    if api is None:
        return None
    provider = api.get_tracer_provider()
    if _cached is None or _cached[0] is not provider:
        _cached = provider, api.get_tracer("exec_server", VERSION, provider)
    return _cached[1]


# Calls.


def calling(method: str, params: object) -> AbstractContextManager[bytes | None]:
    """A span around one call; the block gets the `trace` member of the request."""
    tracer = _tracer()
    return _OFF if tracer is None else _calling(tracer, method, params)


@contextlib.contextmanager
def _calling(tracer: Tracer, method: str, params: object) -> Iterator[bytes | None]:
    from opentelemetry.trace import SpanKind

    attributes = {"rpc.system": "jsonrpc", "rpc.method": method}
    process_id = getattr(params, "process_id", None)
    if process_id is not None:
        attributes[_PROCESS_ID] = process_id
    with tracer.start_as_current_span(
        method,
        kind=SpanKind.CLIENT,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield _context()
        except BaseException as exc:
            _fail(span, exc)
            raise


def _context() -> bytes | None:
    """The current span as a W3C Trace Context; None if there is none."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return msgspec.json.encode(carrier) if carrier else None


def _fail(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", type(error).__name__)
    if isinstance(error, RpcError):
        span.set_attribute("rpc.jsonrpc.error_code", error.code)
    span.set_status(StatusCode.ERROR)


# Processes.


class ProcessSpan:
    """The span from the start of a process to its end, or to the end of its handle."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def current(self) -> AbstractContextManager[Any]:
        """Calls inside of the block belong to this span."""
        from opentelemetry.trace import use_span

        return use_span(self._span, record_exception=False, set_status_on_exception=False)

    def closed(self, exit_code: int | None) -> None:
        if exit_code is not None and self._span.is_recording():
            self._span.set_attribute("process.exit.code", exit_code)
        self.end()

    def failed(self, error: BaseException) -> None:
        if self._span.is_recording():
            _fail(self._span, error)
        self.end()

    def end(self) -> None:
        if self._span.is_recording():
            self._span.end()


def starting(params: StartParams, handle: object) -> ProcessSpan | None:
    """The span of a process that is about to start, for *handle*; None without tracing."""
    tracer = _tracer()
    if tracer is None:
        return None
    program = posixpath.basename(params.argv[0]) if params.argv else ""
    attributes: dict[str, str | bool] = {
        _PROCESS_ID: params.process_id,
        "process.executable.name": program,
        "process.interactive": params.tty,
    }
    span = ProcessSpan(tracer.start_span(f"process {program}".rstrip(), attributes=attributes))
    # When the handle is dropped, the end of the process is not received any more.
    finalize(handle, span.end)
    return span


def inside(span: ProcessSpan | None) -> AbstractContextManager[Any]:
    """Calls inside of the block belong to the span of a process."""
    return _OFF if span is None else span.current()
