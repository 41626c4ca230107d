"""Build on another machine: send a folder, run its build, and fetch the result.

python examples/upload_build_download.py ws://127.0.0.1:41181 FOLDER COMMAND... OUTPUT

FOLDER is sent, COMMAND runs in its copy, and OUTPUT, a path in FOLDER, is fetched back.
"""

import asyncio
import sys
import uuid
from pathlib import Path

import exec_server


async def build(
    box: exec_server.ExecServerClient, folder: Path, command: list[str], output: str
) -> int:
    there = box.fs.path(f"/tmp/build-{uuid.uuid4().hex}")
    try:
        sent = await box.fs.upload(folder, there)
        print(f"sent {sent.files} files")

        process = await box.start(command, cwd=str(there))
        async for chunk in process:
            print(chunk.data.decode(errors="replace"), end="")
        status = await process.wait()
        if status == 0:
            got = await box.fs.download(there / output, folder / output, verify="hash")
            print(f"fetched {got.bytes} bytes")
        return status
    finally:
        await box.fs.remove(there, recursive=True, force=True)


async def main(url: str, folder: str, *words: str) -> int:
    *command, output = words
    async with exec_server.connect(url) as box:
        return await build(box, Path(folder), command, output)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
