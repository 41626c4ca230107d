"""Whether a server can limit what a process uses."""

from __future__ import annotations

import logging

from exec_server.client.client_session import ClientSession
from exec_server.errors import MethodNotFound
from exec_server.protocol.resources import ResourceLimits

logger = logging.getLogger(__name__)

_CAPABILITY = "processLimits"


async def knows_limits(session: ClientSession, asked: ResourceLimits) -> bool:
    """False if the server knows no limits. Raises MethodNotFound if *asked* requires them."""
    if session.has_announced(_CAPABILITY) or await session.offers(_CAPABILITY):
        return True
    text = f"the server does not offer {_CAPABILITY}: it cannot limit what a process uses"
    if asked.require:
        raise MethodNotFound(text)
    logger.warning("%s; the process is started without limits", text)
    return False
