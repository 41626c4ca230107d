"""The names that we use of picows. All other modules take them from here."""

from __future__ import annotations

from exec_server.transport import lean_picows

# Without this, the imports below load the whole package.
lean_picows.load()

from picows.common import WSError, WSUpgradeResponseWithListener  # noqa: E402
from picows.picows import (  # type: ignore[attr-defined] # noqa: E402
    WSAutoPingStrategy,
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSProtocol,
    WSTransport,
)

__all__ = [
    "WSAutoPingStrategy",
    "WSCloseCode",
    "WSError",
    "WSFrame",
    "WSListener",
    "WSMsgType",
    "WSProtocol",
    "WSTransport",
    "WSUpgradeResponseWithListener",
]
