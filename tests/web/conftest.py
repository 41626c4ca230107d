"""A browser for the tests that need one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.chromium import CHROMIUM, Chromium, Tab


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without login files: a terminal of the page is a login shell, which runs them.

    Those of the person who runs the tests may take a minute (`pyenv init` waits that long for a
    lock, which a shell that was killed leaves behind), and what they print is not known.
    """
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    return folder


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
