"""The page in a real browser."""

from __future__ import annotations

import pytest

from tests.requirements import requirement
from tests.support.browser_page import (
    PANE,
    SCREEN,
    SECONDS,
    check_names,
    open_page,
    open_terminal,
    printed,
    run,
    shows,
)
from tests.support.page import browsing, place_of

pytestmark = [pytest.mark.one_loop, pytest.mark.timeout(180)]


@requirement(
    "web/browser:works", "web/browser:size", "web/browser:clipboard", "web/browser:accessible"
)
async def test_a_terminal_in_a_browser(server, tab):
    async with browsing(place_of(server.url)) as browser:
        await open_page(tab, browser)
        # All that is loaded before a terminal is opened, xterm.js included.
        await tab.until("window.exec._terminals.then(() => true)", seconds=SECONDS)
        assert 0 < tab.received_bytes <= 150_000
        assert await tab.run("location.href") == f"{browser.origin}/"
        assert await tab.run("document.cookie") == ""
        await open_terminal(tab)
        await run(tab, "echo $((6*7))x; stty size")
        await shows(tab, "42x")
        columns, rows = await tab.run(f"[{PANE}.terminal.cols, {PANE}.terminal.rows]")
        await shows(tab, f"{rows} {columns}")
        await check_names(tab)

        # Titles are text; the clipboard cannot be read, and writing it is asked about.
        await run(tab, printed("\\033]2;<b>title</b>\\007"))
        await tab.until(
            "document.querySelector('.pane-name').textContent === '<b>title</b>'", seconds=SECONDS
        )
        await run(tab, printed("\\033]52;c;?\\007") + "; cat -v")
        await run(tab, "typed")
        await shows(tab, "typed\ntyped")
        assert "52;c" not in (await tab.run(SCREEN)).partition("cat -v\n")[2]
        await tab.control("c")
        await run(tab, printed("\\033]52;c;aGVsbG8=\\007"))
        await tab.until(
            "[...document.querySelectorAll('.notice .button')].some(b => b.textContent === 'Copy')",
            seconds=SECONDS,
        )
        await tab.run(
            "window.opened = []; window.open = (url) => { window.opened.push(url); };"
            "import('/assets/app/terminal_guard.js').then(({ openLink }) => {"
            "  for (const url of ['javascript:alert(1)', 'file:///etc/passwd', 'data:text/html,x',"
            "    'http://a.example/', 'nonsense']) openLink(null, url); })"
        )
        assert await tab.run("window.opened") == ["http://a.example/"]

        # A reload shows the same screen again.
        await run(tab, "clear; echo before-$((1+1))")
        await shows(tab, "before-2")
        await tab.send("Page.reload")
        await tab.until(f"{PANE}?._channel", seconds=SECONDS)
        await shows(tab, "before-2")
        await run(tab, "echo after-$((1+2))")
        await shows(tab, "after-3")
        assert tab.complaints == []


@requirement("web/terminals:window")
async def test_a_flood_in_a_browser_is_drawn_and_interrupted(server, tab):
    async with browsing(place_of(server.url)) as browser:
        await open_page(tab, browser)
        await open_terminal(tab)
        await run(tab, "yes")
        # Far more than a window, or what xterm.js would queue, is drawn.
        await tab.run(
            f"window.lines = 0; {PANE}.terminal.onLineFeed(() => {{ window.lines += 1; }})"
        )
        await tab.until("window.lines > 500000", seconds=SECONDS)
        await tab.control("c")
        await tab.until(
            f"{SCREEN}.trimEnd().endsWith('ready$')",
            seconds=SECONDS,
        )
        await tab.run("gc()")
        used = await tab.run("performance.memory.usedJSHeapSize")
        assert used < 100_000_000
        assert await tab.run(f"{PANE}._undrawn") == 0
        assert tab.complaints == []
