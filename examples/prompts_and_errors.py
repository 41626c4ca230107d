"""Talk to a prompt, read lines, leave a server running, and catch errors as for local files.

python examples/prompts_and_errors.py ws://127.0.0.1:41181
"""

import asyncio
import sys

import exec_server


async def main(url: str) -> None:
    # Without a block, as in a notebook.
    box = await exec_server.open(url)

    # The end of the block ends the process, and everything that it has started.
    command = ["sh", "-c", "printf 'name? '; read name; echo hello $name"]
    async with await box.start(command, tty=True, text=True) as process:
        print(repr(await process.read_until("? ")))
        await process.write("Ada\n")
        print([line.strip() async for line in process.lines()][-1])

    # The command ends although the process in the background holds its output open.
    done = await box.run(["sh", "-c", "sleep 60 & echo up"], drain=0.2)
    print(done.text().strip(), "- left something behind:", done.has_background)
    await box.terminate(done.process_id)

    # Of a long output the beginning and the end are kept.
    print((await box.run(["seq", "1000"], max_output=8)).text())

    killed = await box.run(["sh", "-c", "kill -TERM $$"])
    print("ended by", killed.signal.name if killed.signal else "nothing")

    try:
        await box.fs.read_text("/no/such/file")
    except FileNotFoundError as exc:
        print("missing:", exc.filename)
    for start in ({"argv": ["no-such-program"]}, {"argv": ["ls"], "cwd": "/no/such/folder"}):
        try:
            await box.run(**start)
        except exec_server.RpcError as exc:
            print("missing", exc.kind, exc.path)

    await box.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
