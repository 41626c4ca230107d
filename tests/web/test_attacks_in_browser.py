"""Attacks by other sites, from pages of theirs in a real browser."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.requirements import requirement
from tests.support.browser_page import open_page
from tests.support.chromium import Tab
from tests.support.page import browsing, place_of

pytestmark = [pytest.mark.one_loop, pytest.mark.timeout(180)]

NOWHERE = place_of("ws://127.0.0.1:1")


@contextlib.asynccontextmanager
async def foreign_site() -> AsyncIterator[int]:
    """A site of another person on another port; every name below .localhost leads to it."""

    async def page(request: web.Request) -> web.Response:
        return web.Response(text="<h1>a foreign site</h1>", content_type="text/html")

    application = web.Application()
    application.router.add_get("/", page)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def foreign_page(tab: Tab, url: str) -> None:
    await tab.open(url)
    await tab.until("document.querySelector('h1')?.textContent === 'a foreign site'")


def request_of(method: str, url: str, more: str = "") -> str:
    return (
        f"fetch('{url}', {{ method: '{method}', credentials: 'include'{more} }})"
        ".then((answer) => answer.type + answer.status, () => 'refused')"
    )


@requirement("web/safety:attacks")
@pytest.mark.parametrize("name", ["evil.localhost", "127.0.0.1"])
async def test_a_foreign_page_reaches_nothing(tab, name):
    async with browsing(NOWHERE) as browser, foreign_site() as port:
        await open_page(tab, browser)
        await foreign_page(tab, f"http://{name}:{port}/")
        origin, socket = browser.origin, browser.origin.replace("http", "ws", 1) + "/socket"
        for method in ("GET", "POST", "DELETE", "PUT"):
            assert await tab.run(request_of(method, f"{origin}/session")) == "refused"
        # Without CORS the answer is closed to the script, and it is a refusal.
        blind = request_of("POST", f"{origin}/session", ", mode: 'no-cors', body: '{}'")
        assert await tab.run(blind) in ("opaque0", "refused")
        told = await tab.run(
            f"new Promise((resolve) => {{ const socket = new WebSocket('{socket}');"
            " socket.onopen = () => resolve('open'); socket.onclose = () => resolve('closed'); })"
        )
        assert told == "closed"
        for tag, path in (("script", "/assets/app/main.js"), ("img", "/assets/icon.svg")):
            told = await tab.run(
                f"new Promise((resolve) => {{ const made = document.createElement('{tag}');"
                " made.onload = () => resolve('loaded'); made.onerror = () => resolve('refused');"
                f" made.src = '{origin}{path}'; document.body.append(made); }})"
            )
            assert told == "refused", tag
        # The browser shows nothing in a frame, and says why.
        tab.complaints.clear()
        await tab.run(
            "new Promise((resolve) => { const frame = document.createElement('iframe');"
            f" frame.onload = resolve; frame.src = '{origin}/'; document.body.append(frame); }})"
        )
        async with asyncio.timeout(60):
            while not any("frame" in each.lower() for each in tab.complaints):
                await tab.run("new Promise((resolve) => setTimeout(resolve, 50))")


@requirement("web/safety:attacks")
async def test_a_name_of_a_foreign_site_that_leads_here_is_refused(tab):
    async with browsing(NOWHERE) as browser:
        await open_page(tab, browser)
        port = browser.origin.rpartition(":")[2]
        await tab.open(f"http://rebound.localhost:{port}/")
        await tab.until("document.body.textContent.includes('another name')")
        answer = await tab.run("fetch('/session').then((answer) => answer.status)")
        assert answer == 421
        told = await tab.run(
            "new Promise((resolve) => { const socket = new WebSocket('/socket');"
            " socket.onopen = () => resolve('open'); socket.onclose = () => resolve('closed'); })"
        )
        assert told == "closed"


@requirement("web/access:one-time-link")
async def test_a_link_that_was_used_lets_no_second_browser_in(chromium, tab):
    async with browsing(NOWHERE) as browser:
        link = browser.page.new_link()
        await tab.open(link)
        await tab.until("document.querySelector('.welcome .button') !== null")
        assert await tab.run("history.length") <= 2 and "#" not in await tab.run("location.href")
        async with chromium.tab() as other:
            await other.open(link)
            await other.until("document.querySelector('.sign-in .problem') !== null")
            assert "used already" in await other.run("document.body.innerText")
