"""Run a command on a server and follow another one while it runs.

Start a server in one terminal with `exec-server`, then pass the URL that it prints:

    python examples/quickstart.py ws://127.0.0.1:41181
"""

import asyncio
import sys

import exec_server


async def main(url: str) -> None:
    async with exec_server.connect(url) as client:
        # Run a command to its end.
        done = await client.run(["uname", "-s"], check=True, timeout=10)
        print("the server runs", done.stdout.decode().strip())

        # Talk to a process while it runs: read its output, answer it, wait for its exit status.
        process = await client.start(
            ["sh", "-c", 'echo "who is there?"; read name; echo "hello $name" >&2; exit 3'],
            stdin=True,
        )
        async for chunk in process:
            print(f"{chunk.stream}: {chunk.data.decode()}", end="")
            if chunk.stream == "stdout":
                await process.write(b"world\n")
        print("it ended with", await process.wait())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
