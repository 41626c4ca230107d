"""Run a block of Python of a document: ``python run_python.py FILE``.

A block that awaits at its top has the names ``client`` and ``box``, a client of the page's server.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import sys
from pathlib import Path
from typing import Any

import exec_server


async def awaiting(source: str, name: str, names: dict[str, Any]) -> None:
    code = compile(source, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with exec_server.connect("ws://127.0.0.1:8765") as client:
        names.update(client=client, box=client, exec_server=exec_server, asyncio=asyncio, os=os)
        names["url"] = "ws://127.0.0.1:8765"
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result


def main(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    if "asyncio.run(" in source:
        exec(compile(source, path.name, "exec"), names)
    else:
        asyncio.run(awaiting(source, path.name, names))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
