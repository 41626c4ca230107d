"""Where a release of the reference is known to differ from a requirement, and why."""

from __future__ import annotations

# By the id of the check: the versions that differ, as prefixes of `executorVersion`, and why.
DEVIATIONS: dict[str, tuple[tuple[str, ...], str]] = {}


def deviation(check_id: str, version: str) -> str | None:
    """Why a server of this version may fail the check; None if it may not."""
    versions, reason = DEVIATIONS.get(check_id, ((), ""))
    return reason if any(version.startswith(each) for each in versions) else None
