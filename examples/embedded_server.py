"""A server and its client in one program.

python examples/embedded_server.py
"""

import asyncio

import exec_server


async def main() -> None:
    async with (
        exec_server.serve("ws://127.0.0.1:0") as server,
        exec_server.connect(server.url) as client,
    ):
        done = await client.run(["sort"], input=b"pear\napple\n")
        print(done.stdout.decode(), end="")

        try:
            await client.run(["sleep", "60"], timeout=0.1)
        except exec_server.CommandTimeout as exc:
            print(exc)
    # The server ends, and with it everything that it has started.


if __name__ == "__main__":
    asyncio.run(main())
