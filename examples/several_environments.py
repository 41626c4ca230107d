"""Use several machines at once, by the names of `environments.toml`.

python examples/several_environments.py [FOLDER]

The file is in FOLDER, by default `~/.codex`; for example:

    [[environments]]
    id = "build-box"
    program = "ssh"
    args = ["build-box", "exec-server", "--listen", "stdio"]
"""

import asyncio
import sys
from pathlib import Path

import exec_server


async def main(folder: Path | None) -> None:
    async with exec_server.environments(folder) as manager:
        for facts in manager.describe():
            print(f"{facts.name}: {facts.kind}{' (default)' if facts.is_default else ''}")

        async def greet(name: str) -> str:
            # A client is connected on first use, and shared by all callers of the same name.
            box = await manager.client(name)
            done = await box.run(["sh", "-c", f"echo {name} says hello"], check=True)
            return done.stdout.decode().strip()

        for line in await asyncio.gather(*map(greet, manager.names)):
            print(line)
        for name in manager.names:
            print(name, "is", (await manager.status(name)).state)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if sys.argv[1:] else None))
