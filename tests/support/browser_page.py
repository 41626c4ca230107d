"""What tests do on the page in a real browser."""

from __future__ import annotations

import json
import shlex

from tests.support.chromium import Tab
from tests.support.page import Browser

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


async def open_page(tab: Tab, browser: Browser) -> None:
    """Sign in, and wait for the front page."""
    await tab.size(1200, 800)
    await tab.open(browser.page.new_link())
    await tab.until("document.querySelector('.welcome .button') !== null", seconds=SECONDS)
