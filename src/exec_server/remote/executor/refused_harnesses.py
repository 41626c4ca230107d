"""The record of harnesses whose key an executor has refused: lines of the log, and audit events.

A harness, or a registry that lies, may try again all the time. So the rate is bounded, and the next
record tells how many were left out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from exec_server.audit.audit_file import AuditLines
from exec_server.audit.event import AuditEvent
from exec_server.limits import DEFAULT_LIMITS, Limits

logger = logging.getLogger(__name__)


class RefusedHarnesses:
    """The refusals of one environment; also in the file *lines*, if there is one."""

    def __init__(
        self,
        environment_id: str,
        *,
        lines: AuditLines | None = None,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._environment_id = environment_id
        self._lines = lines
        self._clock = clock
        self._each = limits.relay_refusal_seconds
        self._most = float(limits.relay_refusal_records)
        self._allowed = self._most
        self._refilled_at = clock()
        self._left_out = 0

    def note(self, fingerprint: str, stream_id: str, why: str) -> None:
        """Record a refusal, or count it if there were too many just now."""
        now = self._clock()
        since, self._refilled_at = max(now - self._refilled_at, 0.0), now
        self._allowed = min(self._most, self._allowed + since / self._each)
        if self._allowed < 1:
            self._left_out += 1
            return
        self._allowed -= 1
        self._write_left_out()
        logger.warning(
            "a harness with the key %s is refused on stream %.64s: %s", fingerprint, stream_id, why
        )
        self._write("harness refused", f"{fingerprint}: {why}")

    def close(self) -> None:
        """Record how many were left out since the last record; the file stays open."""
        self._write_left_out()

    def _write_left_out(self) -> None:
        count, self._left_out = self._left_out, 0
        if count:
            logger.warning("%d more harnesses were refused", count)
            self._write("harnesses refused", f"{count} more")

    def _write(self, name: str, detail: str) -> None:
        if self._lines is not None:
            self._lines.write_event(
                AuditEvent(
                    at=self._clock(),
                    name=name,
                    environment_id=self._environment_id,
                    detail=detail,
                )
            )
