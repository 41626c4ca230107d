"""Follow a process while it runs: read its output as it arrives, and answer it.

python examples/streaming.py ws://127.0.0.1:41181
"""

import asyncio
import sys
from collections.abc import AsyncIterator

import exec_server


async def count(box: exec_server.ExecServerClient) -> None:
    """Read each line of the output."""
    process = await box.start(["sh", "-c", "for n in 1 2 3; do echo line $n; done"])
    async for line in lines(process.stdout):
        print(line)
    print("status", await process.wait())


async def lines(output: exec_server.OutputView) -> AsyncIterator[str]:
    """The lines of an output, whose pieces may end in the middle of a line."""
    rest = b""
    async for piece in output:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode()
    if rest:
        yield rest.decode()


async def converse(box: exec_server.ExecServerClient) -> None:
    """Write to a process and read its answers."""
    process = await box.start(["cat"], stdin=True)
    for word in (b"ping", b"pong"):
        await process.write(word)
        print((await anext(process)).data.decode())
    await process.close_stdin()
    print("status", await process.wait())


async def main(url: str) -> None:
    async with exec_server.connect(url) as box:
        await count(box)
        await converse(box)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
