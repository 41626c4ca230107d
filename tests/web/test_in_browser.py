"""The page in a real browser."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.requirements import requirement
from tests.support.chromium import Tab
from tests.support.page import browsing, place_of

pytestmark = [pytest.mark.one_loop, pytest.mark.timeout(180)]

# A browser takes seconds to start on a busy machine.
SECONDS = 60.0
PANE = "window.exec.currentPane"
SCREEN = f"""(() => {{
  const buffer = {PANE}?.terminal.buffer.active;
  if (!buffer) return "";
  const line = (_, at) => buffer.getLine(at).translateToString(true);
  return Array.from({{ length: buffer.length }}, line).join("\\n");
}})()"""


async def shows(tab: Tab, text: str) -> None:
    await tab.until(f"{SCREEN}.includes({json.dumps(text)})", seconds=SECONDS)


async def open_terminal(tab: Tab) -> None:
    """A terminal with a plain shell, whose prompt is `ready$`."""
    await tab.click(".welcome .button.primary")
    await tab.until(f"{PANE}?.facts.processId && {PANE}._channel !== null", seconds=SECONDS)
    await run(tab, "PS1=rea'dy$ ' exec sh")
    await shows(tab, "ready$")


async def run(tab: Tab, line: str) -> None:
    await tab.run(f"{PANE}.focus()")
    await tab.type(line)
    await tab.enter()


def printed(sequence: str) -> str:
    return f"printf {shlex.quote(sequence)}"


async def check_names(tab: Tab) -> None:
    """Everything that can be pressed or filled has a name for those who do not see it."""
    await tab.send("Accessibility.enable")
    nodes = (await tab.send("Accessibility.getFullAXTree"))["nodes"]
    roles = {"button", "tab", "textbox", "searchbox", "checkbox", "link", "menuitem", "combobox"}
    wanted = [node for node in nodes if node.get("role", {}).get("value") in roles]
    nameless = [node for node in wanted if not node.get("name", {}).get("value")]
    assert wanted and not nameless, nameless
    found = {node.get("role", {}).get("value") for node in nodes}
    assert {"main", "navigation", "tablist", "tab", "tabpanel"} <= found


@requirement(
    "web/browser:works", "web/browser:size", "web/browser:clipboard", "web/browser:accessible"
)
async def test_a_terminal_in_a_browser(server, tab):
    async with browsing(place_of(server.url)) as browser:
        await tab.size(1200, 800)
        await tab.open(browser.page.new_link())
        await tab.until("document.querySelector('.welcome .button') !== null", seconds=SECONDS)
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
        await tab.size(1200, 800)
        await tab.open(browser.page.new_link())
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
