"""What a program does with the client library; it uses only what 0.1.0 has.

    python probe.py URL

It is run by the Python of each release, so it imports nothing of this folder.
"""

from __future__ import annotations

import asyncio
import os
import sys

import exec_server


async def main(url: str) -> None:
    async with exec_server.connect(url) as box:
        done = await box.run(["sh", "-c", "cat; echo problem >&2; exit 3"], input=b"input")
        assert (done.stdout, done.stderr) == (b"input", b"problem\n"), done
        assert done.returncode == 3, done

        terminal = await box.start(["cat"], tty=True)
        await terminal.write(b"typed\n")
        shown = b""
        async for chunk in terminal:
            shown += chunk.data
            if b"typed" in shown:
                break
        await terminal.terminate()

        path = os.path.join(os.environ["HOME"], f"probed-{os.getpid()}")
        content = os.urandom(3_000_000)
        await box.fs.write_bytes(path, content)
        assert await box.fs.read_bytes(path) == content
        await box.fs.remove(path)
    print("ok")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
