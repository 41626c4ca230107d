"""Pictures of terminals for watchers, from the models of their screens."""

from __future__ import annotations

import logging
from collections.abc import Callable

from exec_server.errors import RpcError
from exec_server.process.child import Child
from exec_server.screens.screen_tap import ScreenDump
from exec_server.screens.screens import Screens

logger = logging.getLogger(__name__)


class ScreenPictures:
    """Paints the screens of processes. The models are made with the first picture."""

    def __init__(self, screens: Callable[[], Screens]) -> None:
        self._screens = screens

    async def paint(self, child: Child) -> ScreenDump | None:
        """The screen of *child*; None if there can be no model of it."""
        try:
            return await self._screens().dump(child)
        except RpcError as exc:
            logger.warning("no picture of process %.64r: %s", child.process_id, exc.message)
            return None


def version_of(child: Child) -> int | None:
    """The version of the screen of *child*: what `process/screen` would answer now."""
    if not child.is_tty:
        return None
    resizes = len(child.sizes) - 1 + child.sizes_dropped
    return child.log.next_seq - 1 + resizes
