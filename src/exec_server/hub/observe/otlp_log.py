"""Log messages of OpenTelemetry's library, once for each outage of the collector."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

_LIBRARY = "opentelemetry"
# An outage that does not end is logged again after this time.
_AGAIN_SECONDS = 3600.0


class Outages(logging.Handler):
    """Replaces all other handlers of the library's loggers until it is closed.

    It passes on one record of each logger, as a warning of ours, and then none until the outage is
    over.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._guard = threading.Lock()
        self._said_at: dict[str, float] = {}
        self._is_mute = False
        library = logging.getLogger(_LIBRARY)
        self._propagated = library.propagate
        library.propagate = False
        library.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        now = self._clock()
        with self._guard:
            said_at = self._said_at.get(record.name)
            if self._is_mute or (said_at is not None and now - said_at < _AGAIN_SECONDS):
                return
            self._said_at[record.name] = now
        logger.warning("telemetry: %s", record.getMessage(), exc_info=record.exc_info)

    def over(self, name: str) -> None:
        """The outage that the logger *name* reported is over."""
        with self._guard:
            was_out = self._said_at.pop(name, None) is not None
        if was_out:
            logger.info("telemetry: the collector answers again")

    def mute(self) -> None:
        """Drop all further records of the library."""
        self._is_mute = True

    def close(self) -> None:
        library = logging.getLogger(_LIBRARY)
        library.removeHandler(self)
        library.propagate = self._propagated
        super().close()
