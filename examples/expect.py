"""Drive a shell as `expect` would: wait for a prompt, type, wait, read what the screen shows.

python examples/expect.py ws://127.0.0.1:41181
"""

import asyncio
import sys

import exec_server


async def main(url: str) -> None:
    async with exec_server.connect(url) as box:
        options = {"tty": True, "screen": True, "shell_integration": True}
        async with await box.start(["bash", "--norc"], **options) as shell:
            await shell.wait_for(prompt=True)
            await shell.send_keys("echo $((6 * 7))", "enter")
            await shell.wait_for(prompt=True)
            command = await shell.last_command()
            print("status:", command.exit_code, "output:", command.output)
            await shell.send_keys("cat", "enter", "hello", "enter")
            await shell.wait_for(regex="^hello$")
            await shell.send_keys("ctrl-c")
            await shell.wait_for(prompt=True)
            print("rows in use:", len((await shell.screen()).text.splitlines()) > 3)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
