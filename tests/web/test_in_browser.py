"""The page in a real browser."""

from __future__ import annotations

import json

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
        # What is typed before the prompt may still be read by the program that ends.
        await tab.until(f"/\\^C[^]*ready\\$ *$/.test({SCREEN}.trimEnd())", seconds=SECONDS)
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
        await tab.reload()
        await tab.until(f"{PANE}?._channel", seconds=SECONDS)
        await shows(tab, "before-2")
        await run(tab, "echo after-$((1+2))")
        await shows(tab, "after-3")
        assert tab.complaints == []


@requirement("web/terminals:window")
@pytest.mark.timeout(300)
async def test_a_flood_in_a_browser_is_drawn_and_interrupted(server, tab):
    async with browsing(place_of(server.url)) as browser:
        await open_page(tab, browser)
        await open_terminal(tab)
        await run(tab, "yes")
        # Far more than a window, or what xterm.js would queue, is drawn.
        await tab.run(
            f"window.lines = 0; {PANE}.terminal.onLineFeed(() => {{ window.lines += 1; }})"
        )
        await tab.until("window.lines > 500000", seconds=180.0)
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


@requirement("web/browser:layout")
async def test_tabs_and_splits_are_there_after_a_reload(server, tab):
    async with browsing(place_of(server.url)) as browser:
        await open_page(tab, browser)
        await open_terminal(tab)
        await tab.key("D", code="KeyD", number=68, modifiers=9)
        await tab.until("window.exec.panes.length === 2 && window.exec.panes[1]._channel")
        await tab.key("S", code="KeyS", number=83, modifiers=9)
        await tab.until("window.exec.panes.length === 3 && window.exec.panes[2]._channel")
        await tab.key("T", code="KeyT", number=84, modifiers=9)
        await tab.until("window.exec.tabs.all.length === 2 && window.exec.panes[3]._channel")
        await tab.key("ArrowLeft", code="ArrowLeft", number=37, modifiers=9)
        layouts = "JSON.stringify(window.exec.tabs.all.map((view) => view.layout))"
        before = await tab.run(layouts)
        assert before.startswith('[["row",0.5,') and '["column",0.5,' in before
        await tab.reload()
        await tab.until(f"window.exec?.panes.length === 4 && {layouts} === {json.dumps(before)}")
        await tab.until("window.exec.tabs.current === window.exec.tabs.all[0]")
        # A phone shows the panes below one another, and a row of keys.
        await tab.size(390, 780, is_phone=True)
        await tab.run("document.body.classList.add('has-keys')")
        keys = "document.querySelector('.keys')"
        await tab.until(f"{keys}.offsetHeight > 0 && {keys}.offsetWidth <= 390")
        assert await tab.run("document.documentElement.scrollWidth") <= 390
        tops = "window.exec.tabs.current.panes.map((pane) => pane.element.offsetTop)"
        await tab.until(f"new Set({tops}).size > 1")
        assert tab.complaints == []


@requirement("web/access:sign-out")
async def test_a_tab_whose_session_has_ended_says_so_and_takes_a_new_link(server, tab):
    async with browsing(place_of(server.url)) as browser:
        await open_page(tab, browser)
        await tab.run("import('/assets/app/session.js').then(({ signOut }) => signOut())")
        await tab.until("document.body.innerText.includes('Not signed in')", seconds=SECONDS)
        # It is the same address, so the browser does not load the page again by itself.
        await tab.open(browser.page.new_link())
        await tab.until("document.querySelector('.welcome .button') !== null", seconds=SECONDS)
        assert await tab.run("location.href") == f"{browser.origin}/"
