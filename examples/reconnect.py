"""A session outlives its connections, and even the program that began it.

python examples/reconnect.py ws://127.0.0.1:41181
"""

import asyncio
import sys

import exec_server

COUNT = "for n in 1 2 3 4; do echo $n; read go; done"


async def begin(url: str) -> str:
    """Start a process, read some of its output and leave; the token says where we stopped."""
    async with exec_server.connect(url, on_state=lambda state: print("first:", state)) as box:
        process = await box.start(["sh", "-c", COUNT], stdin=True, process_id="counter")
        for _ in range(2):
            print("first:", (await anext(process)).data)
            await process.write(b"\n")
        return box.session_token()


async def go_on(url: str, token: str) -> None:
    """Continue, in any program, before the server forgets the session after 30 seconds."""
    async with exec_server.connect(url, session_token=token) as box:
        process = await box.attach("counter")
        # No byte is missing, and none comes twice.
        for _ in range(2):
            print("second:", (await anext(process)).data)
            await process.write(b"\n")
        print("second: status", await process.wait())


async def main(url: str) -> None:
    token = await begin(url)
    await go_on(url, token)

    # After a lost connection the error says whether the request may have been carried out.
    try:
        async with exec_server.connect("ws://127.0.0.1:1", connect_timeout=1):
            pass
    except exec_server.ConnectionClosed as exc:
        print("may have run:", exc.may_have_run, "worth a retry:", exc.retryable)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
