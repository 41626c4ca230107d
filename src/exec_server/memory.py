"""How the C library treats memory that was freed."""

from __future__ import annotations

from functools import cache


@cache
def keep_freed_memory(size: int) -> None:
    """Let glibc keep freed blocks of up to *size* bytes for the next use.

    By default glibc takes a large block from the kernel and gives it back when it is freed, so
    that every use faults its pages in again. Freeing one block of *size* bytes raises that limit
    to *size*, and lets twice as much stay free. The block is never touched, so it costs nothing.
    """
    bytes(size)
