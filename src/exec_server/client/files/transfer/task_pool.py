"""Run many small jobs with a bounded number of tasks, and jobs in threads to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Args = TypeVarTuple("Args")


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


async def to_its_end(work: Callable[[*Args], T], *args: *Args) -> T:
    """As asyncio.to_thread, but a caller that is cancelled waits for the thread first.

    The caller closes descriptors that the thread uses; another file could get their numbers.
    """
    job = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.gather(job, return_exceptions=True)
        raise
