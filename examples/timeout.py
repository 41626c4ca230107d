"""Set time limits: for a command, for a wait, and for every call.

python examples/timeout.py ws://127.0.0.1:41181
"""

import asyncio
import sys

import exec_server


async def main(url: str) -> None:
    # This is the deadline of each call that has no deadline of its own.
    async with exec_server.connect(url, call_timeout=10) as box:
        try:
            await box.run(["sh", "-c", "echo so far; exec sleep 60"], timeout=0.5)
        except exec_server.CommandTimeout as exc:
            # The command was killed, and its output so far is kept.
            print("too slow, but said", exc.stdout)

        process = await box.start(["sleep", "60"])
        try:
            async with asyncio.timeout(0.1):
                await process.wait()
        except TimeoutError:
            # The process runs on; only the wait has ended.
            print("still running:", process.returncode is None)
        print("killed:", await process.terminate(), await process.wait())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
