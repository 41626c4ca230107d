"""A browser for the tests that need one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.chromium import CHROMIUM, Tab, chromium


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    """One tab of a real browser."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    async with chromium(tmp_path / "profile") as opened:
        yield opened
