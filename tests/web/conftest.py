"""A browser for the tests that need one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.chromium import CHROMIUM, Chromium, Tab


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A real browser, which all tests of a module share."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: neither `chromium` nor `chromium-browser` is found")
    browser = Chromium(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
async def tab(chromium: Chromium) -> AsyncIterator[Tab]:
    """One tab of the browser, with cookies and storage of its own."""
    async with chromium.tab() as opened:
        yield opened
