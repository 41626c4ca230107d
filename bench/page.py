"""The page in a real Chromium: how soon it can be used, and how fast files move.

    make page-bench ARGS='--megabytes 256 --rounds 3'

The server, the page and the browser are programs of their own on this machine. Times are those of
the browser's own clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tests.support.browser_page import SECONDS
from tests.support.chromium import CHROMIUM, Chromium, Tab

_PROGRAM = [sys.executable, "-m", "exec_server"]
_MB = 1e6
_MIB = 1 << 20
# Notes when the first view is there, and when its button would do something.
_WATCH = """
new MutationObserver((_, watch) => {
  if (document.querySelector(".welcome .button") === null) return;
  window.usableAfter = performance.now();
  watch.disconnect();
}).observe(document, { childList: true, subtree: true });
"""

_UPLOADED = """new Promise((resolve) => {
  const look = () => document.querySelectorAll(".uploads li[data-over=good]").length > %d
    ? resolve(performance.now() - window.begun)
    : setTimeout(look, 5);
  look();
})"""
_DOWNLOAD = """(async () => {
  const begun = performance.now();
  const place = [...window.exec.places.keys()][0];
  const reader = (await fetch(await window.exec.ticketUrl(place, %s))).body.getReader();
  let size = 0;
  for (let each; !(each = await reader.read()).done; size += each.value.length);
  return [performance.now() - begun, size];
})()"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=256, help="size of the file [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="[default: %(default)s]")
    options = parser.parse_args()
    if CHROMIUM is None:
        raise SystemExit("chromium is not installed: neither `chromium` nor `chromium-browser`")
    with tempfile.TemporaryDirectory(prefix="bench-page-") as folder:
        asyncio.run(_measure(Path(folder), options.megabytes * _MIB, options.rounds))


async def _measure(folder: Path, size: int, rounds: int) -> None:
    (folder / "home").mkdir()
    (folder / "file").write_bytes(os.urandom(_MIB) * (size // _MIB))
    environment = {**os.environ, "HOME": str(folder / "home"), "CODEX_HOME": str(folder)}
    with (
        _running(environment, "--listen", "ws://127.0.0.1:0") as server,
        _running(environment, "web", "--listen", "127.0.0.1:0", server) as link,
    ):
        browser = Chromium(folder / "profile")
        try:
            print(f"load average {os.getloadavg()[0]:.1f}")
            await _loads(browser, link, folder, size, rounds)
        finally:
            browser.close()


async def _loads(browser: Chromium, url: str, folder: Path, size: int, rounds: int) -> None:
    async with browser.tab() as tab:
        await tab.size(1200, 800)
        await tab.send("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
        times = []
        for number in range(rounds):
            await (tab.open(url) if not number else tab.reload())
            times.append(await tab.until("window.usableAfter", seconds=SECONDS))
            if not number:
                print(f"first load: usable after {times[0]:.0f} ms and {tab.received_bytes} bytes")
        if times[1:]:
            print(f"later loads: usable after {statistics.median(times[1:]):.0f} ms")
        await _files(tab, folder, size, rounds)


async def _files(tab: Tab, folder: Path, size: int, rounds: int) -> None:
    await tab.run("window.exec.openFiles([...window.exec.places.keys()][0])")
    await tab.until("document.querySelector('input[type=file]') !== null")
    for number in range(rounds):
        # Another name each time, since a file that is there is asked about.
        source = folder / f"file{number}"
        os.link(folder / "file", source)
        there = folder / "home" / source.name
        took = await _upload(tab, source, number)
        assert there.stat().st_size == size
        print(f"upload: {size / took * 1000 / _MB:.0f} MB/s")
        took, received = await tab.run(_DOWNLOAD % json.dumps(str(there)))
        assert received == size
        print(f"download: {size / took * 1000 / _MB:.0f} MB/s")
        there.unlink()


async def _upload(tab: Tab, source: Path, before: int) -> float:
    """Choose a file on the page; milliseconds until the upload is over, the one after *before*."""
    root = (await tab.send("DOM.getDocument"))["root"]["nodeId"]
    found = await tab.send("DOM.querySelector", nodeId=root, selector="input[type=file]")
    await tab.run("window.begun = performance.now()")
    await tab.send("DOM.setFileInputFiles", files=[str(source)], nodeId=found["nodeId"])
    took: float = await tab.run(_UPLOADED % before)
    return took


@contextmanager
def _running(environment: dict[str, str], *words: str) -> Iterator[str]:
    """A program of ours; the block gets the first line that it prints."""
    process = subprocess.Popen(
        [*_PROGRAM, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=10)


if __name__ == "__main__":
    main()
