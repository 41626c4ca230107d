"""The `envPolicy` of `process/start`: which variables a child inherits from the server."""

from __future__ import annotations

from typing import Literal

import msgspec


class EnvPolicy(msgspec.Struct, rename="camel", frozen=True):
    """Patterns match whole names in any case; ``*`` is any text and ``?`` one character."""

    inherit: Literal["all", "core", "none"]
    # False leaves out variables whose names look like those of credentials.
    ignore_default_excludes: bool
    exclude: list[str]
    set: dict[str, str]
    # If this is not empty, only variables that match are kept, also of those in `set`.
    include_only: list[str]
