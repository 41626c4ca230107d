"""A time limit that callers give, for waits of processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


async def within(seconds: float | None, awaiting: Awaitable[Result], missed: str) -> Result:
    """Wait for *awaiting*. Raises TimeoutError with *missed* after *seconds*, if they are given."""
    if seconds is None:
        return await awaiting
    timer = asyncio.timeout(seconds)
    try:
        async with timer:
            return await awaiting
    except TimeoutError:
        if not timer.expired():
            raise
        raise TimeoutError(f"{missed} within {seconds:g} s") from None
