"""Numbers of the wire: unsigned 64-bit integers."""

from __future__ import annotations

from typing import Annotated

import msgspec

U64_MAX = (1 << 64) - 1
# msgspec's own bounds end at 63 bits, so a shape also calls `fits_u64` in its `__post_init__`.
Count = Annotated[int, msgspec.Meta(ge=0)]


def fits_u64(*values: int | None) -> bool:
    """True if every value that is given has at most 64 bits."""
    for value in values:
        if value is not None and value > U64_MAX:
            return False
    return True
