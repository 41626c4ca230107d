"""A real headless Chromium, driven by its own protocol over a WebSocket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.servers import tied

# A browser takes long to start, and to answer, on a busy machine.
PATIENCE = 60.0

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --mute-audio "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--disable-dev-shm-usage --remote-debugging-port=0 --js-flags=--expose-gc"
).split()


class Tab:
    """One page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        # Violations of the content policy, exceptions and errors of the console.
        self.complaints: list[str] = []
        self.received_bytes = 0
        self._reading = asyncio.create_task(self._read())

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._socket.close()

    async def _read(self) -> None:
        async for message in self._socket:
            facts = json.loads(message.data)
            if "id" in facts:
                answer = self._answers.pop(facts["id"], None)
                if answer is not None and not answer.done():
                    answer.set_result(facts)
            else:
                self._note(facts["method"], facts["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(str(details.get("exception", details)))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(str(params["entry"]))
        elif method == "Network.loadingFinished":
            self.received_bytes += int(params["encodedDataLength"])

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE):
            facts = await answer
        assert "error" not in facts, (method, facts["error"])
        result: dict[str, Any] = facts["result"]
        return result

    async def begin(self) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.send(f"{domain}.enable")

    async def size(self, width: int, height: int, *, is_phone: bool = False) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if is_phone else 1,
            mobile=is_phone,
        )
        await self.send("Emulation.setTouchEmulationEnabled", enabled=is_phone)

    async def scheme(self, name: str) -> None:
        """What the system prefers: "dark" or "light"."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)

    async def reload(self) -> None:
        """Load the page again; the old one, which may answer for a while, is gone afterwards."""
        await self.run("window.isOld = true")
        await self.send("Page.reload")
        await self.until("window.isOld !== true && document.readyState === 'complete'")

    async def run(self, script: str) -> Any:
        """The value of an expression, which may be a promise."""
        found = await self.send(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, condition: str, *, seconds: float = PATIENCE) -> Any:
        """Wait until an expression is true; the page is asked again and again."""
        value = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    with contextlib.suppress(AssertionError):
                        if value := await self.run(condition):
                            return value
                    await asyncio.sleep(0.05)
        except TimeoutError:
            text = await self.run("document.body.innerText")
            raise AssertionError(f"never true: {condition}\n{text}\n{self.complaints}") from None

    async def click(self, selector: str) -> None:
        await self.until(f"document.querySelector({json.dumps(selector)}) !== null")
        await self.run(f"document.querySelector({json.dumps(selector)}).click()")

    async def type(self, text: str) -> None:
        await self.send("Input.insertText", text=text)

    async def key(self, key: str, *, code: str, number: int, modifiers: int = 0) -> None:
        """Press and release a key; modifiers are 1 for Alt, 2 for Ctrl, 8 for Shift."""
        text = "\r" if key == "Enter" else ""
        common = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        kind = "keyDown" if text else "rawKeyDown"
        more = {"text": text} if text else {}
        await self.send("Input.dispatchKeyEvent", type=kind, modifiers=modifiers, **common, **more)
        await self.send("Input.dispatchKeyEvent", type="keyUp", modifiers=modifiers, **common)

    async def enter(self) -> None:
        await self.key("Enter", code="Enter", number=13)

    async def control(self, letter: str) -> None:
        upper = letter.upper()
        await self.key(letter, code=f"Key{upper}", number=ord(upper), modifiers=2)

    async def picture(self, path: Path) -> None:
        found = await self.send("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))


class Chromium:
    """One browser for many tests; each has tabs with cookies and storage of its own."""

    def __init__(self, folder: Path) -> None:
        """Starts it, with its profile in *folder*. Use `close` in the end."""
        assert CHROMIUM is not None
        self._process = subprocess.Popen(
            [*tied("TERM"), CHROMIUM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._address = ""
        self._listens = threading.Event()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        if not self._listens.wait(PATIENCE) or not self._address:
            self.close()
            raise AssertionError("chromium does not start")

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if b"DevTools listening on" in line:
                self._address = line.split()[-1].decode()
                self._listens.set()
        self._listens.set()

    def close(self) -> None:
        """Chromium ends its helpers itself when it is asked; the group gets SIGKILL if it hangs."""
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reading.join(PATIENCE)
        assert self._process.stderr is not None
        self._process.stderr.close()

    @contextlib.asynccontextmanager
    async def tab(self) -> AsyncIterator[Tab]:
        """A new tab, which shares nothing with those of other tests."""
        host = self._address.split("/")[2]
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(self._address, max_msg_size=0) as socket,
        ):
            browser = Tab(socket)
            try:
                context = await browser.send("Target.createBrowserContext")
                made = await browser.send("Target.createTarget", url="about:blank", **context)
                url = f"ws://{host}/devtools/page/{made['targetId']}"
                async with session.ws_connect(url, max_msg_size=0) as own:
                    tab = Tab(own)
                    try:
                        await tab.begin()
                        yield tab
                    finally:
                        await tab.close()
                await browser.send("Target.disposeBrowserContext", **context)
            finally:
                await browser.close()
