"""What a child may inherit from the server's environment, as `process/start` asks for it."""

from __future__ import annotations

from typing import Literal

import msgspec


class EnvPolicy(msgspec.Struct, rename="camel", frozen=True):
    """Patterns match whole names without case; ``*`` is any run and ``?`` one character."""

    inherit: Literal["all", "core", "none"]
    # Otherwise names that look like a credential's are not inherited.
    ignore_default_excludes: bool
    exclude: list[str]
    set: dict[str, str]
    # When not empty, only names that match are kept, those of `set` included.
    include_only: list[str]
