"""The log of refused requests, which a principal cannot flood."""

from __future__ import annotations

import logging
import time

from exec_server.access.principal import Principal
from exec_server.printable import printable
from exec_server.state.token_bucket import TokenBucket

logger = logging.getLogger(__name__)

# Lines per second of one principal, and as many at once.
_LINES = 5.0


class RefusalLines:
    """Logs refusals at `warning`; the line after many says how many were left out."""

    def __init__(self) -> None:
        self._buckets: dict[str, TokenBucket] = {}
        self._left_out: dict[str, int] = {}

    def refused(self, who: Principal, method: str, rule: str) -> None:
        now = time.monotonic()
        bucket = self._buckets.setdefault(who.name, TokenBucket(_LINES, now=now))
        if bucket.take(now):
            self._left_out[who.name] = self._left_out.get(who.name, 0) + 1
            return
        count = self._left_out.pop(who.name, 0)
        more = f" ({count} other refusals were not logged)" if count else ""
        name = printable(who.name)
        logger.warning("refused %s of principal %s: %s%s", method, name, printable(rule), more)
