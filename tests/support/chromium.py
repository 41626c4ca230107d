"""A real headless Chromium, driven by its own protocol over a WebSocket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

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
                    await asyncio.sleep(0.02)
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


@contextlib.asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Tab]:
    """A browser with one tab; its profile is in *folder*."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *_FLAGS,
        f"--user-data-dir={folder}",
        "about:blank",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    draining: asyncio.Task[bytes] | None = None
    try:
        async with asyncio.timeout(PATIENCE):
            while b"DevTools listening on" not in (line := await process.stderr.readline()):
                assert line, "chromium does not start"
        draining = asyncio.create_task(process.stderr.read())
        address = line.split()[-1].decode().split("/")[2]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{address}/json/list") as answer:
                [page] = [each for each in await answer.json() if each["type"] == "page"]
            socket = await session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)
            tab = Tab(socket)
            try:
                await tab.begin()
                yield tab
            finally:
                await tab.close()
    finally:
        await _end(process)
        if draining is not None:
            await draining


async def _end(process: asyncio.subprocess.Process) -> None:
    """Chromium ends its helpers itself when it is asked; the group gets SIGKILL if it hangs."""
    import os
    import signal

    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(PATIENCE):
            await process.wait()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
