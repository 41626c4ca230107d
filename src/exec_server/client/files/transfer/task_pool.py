"""Run many small jobs with a bounded number of tasks, and jobs in threads to their end."""

from __future__ import annotations

import asyncio
import contextlib
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


async def to_its_end(
    work: Callable[[*Args], T], *args: *Args, undo: Callable[[T], object] | None = None
) -> T:
    """As asyncio.to_thread, but a caller that is cancelled waits for the thread first.

    The caller closes descriptors that the thread uses; another file could get their numbers. If
    *work* opens something that the cancelled caller does not get, *undo* closes it.
    """
    job = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        while not job.done():
            # It may be cancelled once more meanwhile.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({job})
        if not job.cancelled() and job.exception() is None and undo is not None:
            undo(job.result())
        raise
