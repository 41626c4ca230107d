"""Run many small jobs with a bounded number of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def each(items: Iterable[T], work: Callable[[T], Awaitable[None]], *, width: int) -> None:
    """Await *work* for every item, *width* at a time; the first error cancels the rest."""
    rest = iter(items)

    async def take() -> None:
        for item in rest:
            await work(item)

    tasks = [asyncio.create_task(take()) for _ in range(width)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
