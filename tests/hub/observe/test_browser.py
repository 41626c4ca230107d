"""The status page as a real browser shows it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.hub.conftest import bring_online
from tests.requirements import requirement
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop

FACTS = {
    "version": "0.1.0",
    "platform": "linux x86_64",
    "sandbox": "bubblewrap",
    "labels": {"zone": "b", "note": "<script>document.title='run'</script>"},
}


@pytest.fixture
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium is not installed")
    return found


async def browse(chromium: str, profile: Path, *words: str) -> bytes:
    """The output of a headless browser for a page."""
    options = (
        "--headless --no-sandbox --disable-gpu --disable-background-networking "
        "--disable-component-update --disable-sync --no-first-run --disable-dev-shm-usage"
    )
    process = await asyncio.create_subprocess_exec(
        chromium,
        *options.split(),
        f"--user-data-dir={profile}",
        *words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(3 * PATIENCE):
            shown, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    return shown


@requirement("hub/page:browser")
async def test_a_browser_shows_the_page_to_an_observer_and_runs_nothing(
    visitor, chromium, tmp_path
):
    pair = await bring_online(visitor)
    await visitor.register("asleep", pair.enrolment, facts=FACTS)
    _, secret = await visitor.token("observe")
    url = visitor.hub.url.replace("http://", f"http://observer:{secret}@") + "/"
    screenshot = tmp_path / "page.png"
    words = (f"--screenshot={screenshot}", "--window-size=1100,500", "--dump-dom", url)
    text = (await browse(chromium, tmp_path / "profile", *words)).decode()
    assert "1 of 2 environments online" in text
    assert "<title>exec-server registry</title>" in text
    # The label is shown as text. A script would not have run either.
    assert "&lt;script&gt;" in text and "<script" not in text
    assert screenshot.read_bytes().startswith(b"\x89PNG")


@requirement("hub/page:browser")
async def test_a_browser_without_a_token_sees_nothing(pair, chromium, tmp_path):
    text = (await browse(chromium, tmp_path, "--dump-dom", f"{pair.visitor.hub.url}/")).decode()
    assert "online" not in text and pair.name not in text
