"""Copy a tree to a server, and from there back to here.

python examples/copy_tree.py ws://127.0.0.1:41181 FOLDER
"""

import asyncio
import sys
import tempfile
import uuid

import exec_server


async def main(url: str, folder: str) -> None:
    async with exec_server.connect(url) as client:
        there = client.fs.path(f"/tmp/copy-of-{uuid.uuid4().hex}")
        sent = await client.fs.upload(folder, there)
        print(f"{sent.files} files, {sent.bytes} bytes went to {there}")

        with tempfile.TemporaryDirectory() as back:
            got = await client.fs.download(there, f"{back}/tree", verify="hash")
            print(f"{got.files} files came back the same")

        await client.fs.remove(there, recursive=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
