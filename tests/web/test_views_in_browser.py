"""Views of the page in a real browser, also with hostile names and content."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from exec_server.recording.cast_format import CastHeader
from exec_server.recording.cast_writer import CastWriter
from tests.requirements import requirement
from tests.support.browser_page import PANE, check_names, open_page, open_terminal, run, shows
from tests.support.fault_proxy import fault_proxy
from tests.support.page import LOOPBACK, browsing, place_of

pytestmark = [pytest.mark.one_loop, pytest.mark.timeout(180)]

NOWHERE = place_of("ws://127.0.0.1:1")
# If any of this becomes HTML, a script of it runs or an element appears.
HOSTILE = "<img src=x onerror=window.hacked=1><b class=hacked>x</b>"
UNHARMED = "window.hacked === undefined && document.querySelector('.hacked, img') === null"
PLAYER = "window.exec.tabs.current.player"
PLAYED = f"""(() => {{
  const buffer = {PLAYER}.terminal.buffer.active;
  const line = (_, at) => buffer.getLine(at).translateToString(true);
  return Array.from({{ length: buffer.length }}, line).join("\\n").trimEnd();
}})()"""


def record(folder: Path) -> None:
    header = CastHeader(columns=70, rows=8, command=HOSTILE, title=HOSTILE, owner=HOSTILE)
    writer = CastWriter(folder / "20260101T000000-demo.cast", header)
    writer.output(0.0, b"begin\r\n")
    writer.mark(1.0, HOSTILE)
    writer.output(2.0, f"\x1b]0;{HOSTILE}\x07\x1b]52;c;aGVsbG8=\x07middle\r\n".encode())
    writer.output(60.0, b"\x1b[6n\x1b[cafter a pause\r\n")
    writer.resized(60.5, 50, 6)
    writer.output(61.0, b"finish\r\n")
    writer.close(61.0)


@requirement("web/browser:server-away")
async def test_a_terminal_tells_that_its_server_is_away(server, tab):
    state = f"{PANE}._state"
    async with fault_proxy(server.url) as proxy, browsing(place_of(proxy.url)) as browser:
        await open_page(tab, browser)
        await open_terminal(tab)
        await run(tab, "echo first-$((1+1))")
        await shows(tab, "first-2")
        assert await tab.run(f"{state}.hidden")
        proxy.is_down = True
        proxy.cut()
        await tab.until(f"!{state}.hidden && {state}.textContent.startsWith('reconnecting')")
        proxy.is_down = False
        await tab.until(f"{state}.hidden")
        await run(tab, "echo later-$((2+2))")
        await shows(tab, "later-4")


@requirement("web/browser:recordings", "web/browser:harmless")
async def test_a_recording_is_found_and_played_with_keys(tab, tmp_path):
    record(tmp_path)
    options = msgspec.structs.replace(LOOPBACK, recordings=str(tmp_path))
    async with browsing(NOWHERE, options=options) as browser:
        await open_page(tab, browser)
        await tab.run("window.exec.openRecordings()")
        await tab.until("document.querySelector('.recordings tbody .link') !== null")
        assert HOSTILE in await tab.run("document.querySelector('.recordings tbody').textContent")
        await tab.run("document.querySelector('.recordings input[type=search]').focus()")
        await tab.type("MID+le")
        await tab.enter()
        await tab.until("document.querySelector('.recordings tbody').textContent.includes('0:02')")
        await tab.click(".recordings tbody .link")
        # The moment that was found, with its row selected.
        await tab.until(f"{PLAYER}?.terminal.getSelection().trim() === 'middle'")
        assert await tab.run(PLAYED) == "begin\nmiddle"
        assert await tab.run(f"{PLAYER}._mark.textContent") == HOSTILE
        await tab.key("ArrowLeft", code="ArrowLeft", number=37)
        await tab.until(f"{PLAYED} === 'begin' && {PLAYER}.time === 0")
        await tab.key("5", code="Digit5", number=53)
        await tab.until(f"{PLAYER}.time === 30.5 && {PLAYED} === 'begin\\nmiddle'")
        # The pause of a minute is shortened, and the recorded sizes are kept.
        await tab.key("9", code="Digit9", number=57)
        await tab.run(f"{PLAYER}.play()")
        await tab.until(f"!{PLAYER}.isPlaying && {PLAYER}.time === {PLAYER}.duration")
        assert await tab.run(PLAYED) == "begin\nmiddle\nafter a pause\nfinish"
        assert await tab.run(f"[{PLAYER}.terminal.cols, {PLAYER}.terminal.rows]") == [50, 6]
        slider = "document.querySelector('.player input[type=range]')"
        assert await tab.run(f"{slider}.getAttribute('aria-valuetext')") == "1:01 / 1:01"
        await check_names(tab)
        assert await tab.run("document.querySelectorAll('.notice').length") == 0
        assert await tab.run(UNHARMED) and tab.complaints == []


@requirement("web/browser:going-back")
async def test_a_person_goes_back_in_a_terminal_and_returns(server, tab):
    async with browsing(place_of(server.url)) as browser:
        await open_page(tab, browser)
        await open_terminal(tab)
        await run(tab, "echo before-$((1+1)); read x; clear; echo after-$((1+2))")
        await shows(tab, "before-2")
        then = await tab.run(
            f"{PANE}.app.link.call('recording.open', {{ id: {PANE}.facts.id }})"
            ".then((facts) => facts.duration)"
        )
        await tab.enter()
        await shows(tab, "after-3")
        await tab.key("H", code="KeyH", number=72, modifiers=9)
        await tab.until(f"{PANE}._player?.duration > 0")
        rows = (
            f"Array.from({{ length: {PANE}._player.terminal.rows }}, (_, at) =>"
            f" {PANE}._player.terminal.buffer.active.getLine(at)?.translateToString(true)).join()"
        )
        await tab.until(f"{rows}.includes('after-3')")
        await tab.run(f"{PANE}._player.seek({then})")
        await tab.until(f"{rows}.includes('before-2') && !{rows}.includes('after-3')")
        # What is typed there does not reach the program.
        await tab.type("x")
        await tab.key("Escape", code="Escape", number=27)
        await tab.until(f"{PANE}._player === null")
        await run(tab, "echo live-$((2+2))")
        await shows(tab, "live-4")
        assert tab.complaints == []


@requirement("web/browser:harmless")
async def test_names_of_files_processes_and_ports_are_only_text(server, tab, tmp_path):
    (tmp_path / HOSTILE.replace("/", "|")).write_text(HOSTILE)
    async with browsing(place_of(server.url, name=HOSTILE)) as browser:
        await open_page(tab, browser)
        assert HOSTILE in await tab.run("document.querySelector('.welcome h1').textContent")
        await tab.run("window.exec.openFiles('p0')")
        await tab.until("window.exec.tabs.current?.kind === 'files'")
        await tab.run(f"window.exec.tabs.current.go({json.dumps(str(tmp_path))})")
        await tab.until("document.querySelector('.files tbody').textContent.includes('<img')")
        await tab.click(".files tbody tr:nth-child(2) .entry")
        await tab.until(f"document.querySelector('.editor')?.value === {json.dumps(HOSTILE)}")
        line = f"exec -a {json.dumps(HOSTILE)} sleep 600"
        await tab.run(
            "window.exec.link.call('process.start', { place: 'p0', terminal: false, line:"
            f" {json.dumps(line)}, columns: 80, rows: 24 }})"
        )
        await tab.run("window.exec.openProcesses('p0')")
        await tab.until("document.querySelector('.view .command')?.textContent.includes('<img')")
        await tab.run("window.exec.openPorts('p0')")
        await tab.until("document.querySelector('.ports .empty').textContent !== ''")
        await tab.run("window.exec.openOverview('p0')")
        await tab.until("document.querySelector('.overview h1') !== null")
        await check_names(tab)
        assert await tab.run(UNHARMED) and tab.complaints == []
