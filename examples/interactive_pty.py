"""Drive a program that wants a terminal: type, read the screen, resize, interrupt.

python examples/interactive_pty.py ws://127.0.0.1:41181
"""

import asyncio
import sys

import exec_server

CTRL_C = b"\x03"


async def until(process: exec_server.RemoteProcess, word: bytes) -> bytes:
    """Read what the terminal shows, until *word* is in it."""
    screen = b""
    async with asyncio.timeout(20):
        while word not in screen:
            screen += await anext(process.stdout)
    return screen


async def main(url: str) -> None:
    async with exec_server.connect(url) as box:
        shell = await box.start(["sh", "-i"], tty=True, rows=24, cols=80, env={"PS1": "ready> "})
        await until(shell, b"ready> ")

        await shell.write(b"stty size\n")
        print("size:", b"24 80" in await until(shell, b"\r\nready> "))

        await shell.resize(rows=50, cols=132)
        await shell.write(b"stty size\n")
        print("after resize:", b"50 132" in await until(shell, b"\r\nready> "))

        # When cat has answered it runs; the terminal turns Ctrl-C into a signal for it.
        await shell.write(b"cat\n")
        await shell.write(b"hello\n")
        await until(shell, b"hello\r\nhello\r\n")
        await shell.write(CTRL_C)
        await until(shell, b"ready> ")
        print("interrupted")

        await shell.write(b"exit 7\n")
        print("status:", await shell.wait())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
