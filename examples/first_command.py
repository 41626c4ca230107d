"""Run one command on a server, and print its output and its exit status.

python examples/first_command.py ws://127.0.0.1:41181
"""

import asyncio
import sys

import exec_server


async def main(url: str) -> None:
    async with exec_server.connect(url) as box:
        done = await box.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
        print("stdout:", done.stdout)
        print("stderr:", done.stderr)
        print("status:", done.returncode)

        # With check=True a failure raises an exception, which also has the output.
        try:
            await box.run(["ls", "/no/such/folder"], check=True)
        except exec_server.CommandFailed as exc:
            print("failed:", exc.returncode, "and said", len(exc.stderr) > 0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
