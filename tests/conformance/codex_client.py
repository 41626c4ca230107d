"""Codex as a client under test: its own program, driven by a scripted model.

    python -m tests.conformance.codex_client URL

It starts one command at the server, prints what the model is told of it, and ends with the
command's exit status, or with 1 if there is none.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from pathlib import Path

from tests.support.codex import codex, model, turn
from tests.support.servers import reference_binary


async def run(url: str, home: Path) -> int:
    binary = reference_binary()
    if binary is None:
        print("the reference is not installed", file=sys.stderr)
        return 1
    async with (
        model("true", home) as scripted,
        codex(binary, "app-server", home=home, CODEX_EXEC_SERVER_URL=url) as process,
    ):
        await turn(process, str(home))
        told = await scripted.output()
    print(told)
    found = re.search(r"exited with code (-?\d+)", told)
    return int(found.group(1)) if found else 1


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="codex-client-") as home:
        return asyncio.run(run(sys.argv[1], Path(home)))


if __name__ == "__main__":
    sys.exit(main())
