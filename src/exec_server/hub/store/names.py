"""Names of environments: which are allowed, and which patterns match them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from exec_server.limits import Limits

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PATTERN = re.compile(r"[A-Za-z0-9._*?-]+")


def is_name(environment_id: str, *, limits: Limits) -> bool:
    """True if an environment may have this name. A name passes through URLs unchanged."""
    return bool(_NAME.fullmatch(environment_id)) and len(environment_id) <= limits.hub_name_bytes


def is_pattern(pattern: str) -> bool:
    """True if *pattern*, which may contain `*` and `?`, can match a name."""
    return bool(_PATTERN.fullmatch(pattern))


def fits(environment_id: str, patterns: Iterable[str]) -> bool:
    """True if one of the patterns matches the name."""
    return any(fnmatchcase(environment_id, pattern) for pattern in patterns)
