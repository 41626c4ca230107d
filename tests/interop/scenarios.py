"""The decorator that makes a test a row of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pytest

from tests.interop.columns import WAYS, Scenario, Way

T = TypeVar("T", bound=Callable[..., Any])


def scenario(
    title: str,
    *,
    ways: tuple[Way, ...] = WAYS,
    is_old: bool = False,
    fails: Mapping[str, str] | None = None,
) -> Callable[[T], T]:
    """Try the test with every server and way; *fails* names known failures of others, and why."""
    row = Scenario(title, ways, is_old, dict(fails or {}))

    def mark(function: T) -> T:
        marked: T = pytest.mark.one_loop(pytest.mark.scenario(row)(function))
        return marked

    return mark
