"""Small timings behind docs/decisions.md: codecs, base64, and what an import costs.

    python bench/choices.py

Alternatives that are not installed are left out.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import subprocess
import sys
import timeit
from collections.abc import Callable

import msgspec
import pybase64

SMALL = (
    b'{"id":1000,"method":"process/write","params":'
    b'{"processId":"p12","chunk":"eXl5eXl5eXl5eQ==","writeId":"w12"}}'
)
BLOCK = os.urandom(64 * 1024)
BLOCK_BASE64 = base64.b64encode(BLOCK)
IMPORTS = "asyncio uvloop picows msgspec json argparse click typer aiohttp httpx".split()
STARTS = 7


def microseconds(call: Callable[[], object], *, rounds: int) -> float:
    """The best of five runs, per call."""
    return min(timeit.repeat(call, number=rounds, repeat=5)) / rounds * 1e6


def import_milliseconds(module: str) -> float:
    """The best of several fresh interpreters."""
    code = (
        "import time; t = time.perf_counter(); "
        f"import {module}; print((time.perf_counter() - t) * 1e3)"
    )
    runs = [subprocess.check_output([sys.executable, "-c", code]) for _ in range(STARTS)]
    return min(map(float, runs))


def main() -> None:
    tree = json.loads(SMALL)
    rows = {
        "decode a small request, msgspec": lambda: msgspec.json.decode(SMALL),
        "decode a small request, json": lambda: json.loads(SMALL),
        "encode it, msgspec": lambda: msgspec.json.encode(tree),
        "encode it, json": lambda: json.dumps(tree, separators=(",", ":")),
    }
    for name, call in rows.items():
        print(f"{name:40} {microseconds(call, rounds=20_000):8.2f} us")
    blocks = {
        "base64 of 64 KiB, pybase64": lambda: pybase64.b64encode(BLOCK),
        "base64 of 64 KiB, base64": lambda: base64.b64encode(BLOCK),
        "and back, pybase64, validated": lambda: pybase64.b64decode(BLOCK_BASE64, validate=True),
        "and back, base64, validated": lambda: base64.b64decode(BLOCK_BASE64, validate=True),
    }
    for name, call in blocks.items():
        print(f"{name:40} {microseconds(call, rounds=200):8.2f} us")
    for module in IMPORTS:
        if importlib.util.find_spec(module):
            print(f"import {module:33} {import_milliseconds(module):8.1f} ms")


if __name__ == "__main__":
    main()
