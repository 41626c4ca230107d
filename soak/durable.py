"""Kill a server with durable jobs again and again: ``python soak/durable.py --help``.

Jobs print on pipes and terminals and echo what is typed, while their server is killed at random
moments, mostly by SIGKILL. At the end every byte has come once and in order, every command has run
once, every exit status is right, and the keeper holds no more than at the start.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the packages are found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tests.support.endurance import Endurance


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="[default: %(default)s]")
    parser.add_argument("--jobs", type=int, default=20, help="[default: %(default)s]")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="[default: the time]")
    options = parser.parse_args(words)
    print(f"{options.kills} kills, {options.jobs} jobs, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        asyncio.run(_run(Path(folder), options))
        print(f"nothing was lost in {time.monotonic() - began:.0f} s")
    return 0


async def _run(folder: Path, options: argparse.Namespace) -> None:
    endurance = Endurance(folder, jobs=options.jobs, kills=options.kills, seed=options.seed)
    await endurance.run()
    print(", ".join(f"{name}: {value}" for name, value in endurance.facts.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
