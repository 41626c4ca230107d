"""Let the event loop do what it has to, without waiting for time to pass."""

from __future__ import annotations

import asyncio


async def turn() -> None:
    """Everything that is ready now has had its turn."""
    loop = asyncio.get_running_loop()
    passed = loop.create_future()
    loop.call_soon(passed.set_result, None)
    await passed
