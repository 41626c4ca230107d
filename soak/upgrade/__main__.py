"""Run older releases against this one, both ways: ``make upgrade-check``.

The checks are those of docs/upgrading.md. The status is 1 if one of them fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

from exec_server.version import VERSION
from soak.upgrade import checks
from soak.upgrade.releases import OLD, ROOT, Release, UpgradeBroken, installed

PAGE = ROOT / "docs" / "upgrading.md"
Check = tuple[str, Callable[[Path], None]]


def planned(first: Release, middle: Release, new: Release) -> Iterator[Check]:
    """All checks, each with what it shows."""
    for old in (first, middle):
        for client, server in ((old, new), (new, old)):
            yield (
                f"client {client}, server {server}",
                partial(checks.client_and_server, client, server),
            )
    for starter, reader, server in ((first, new, new), (new, new, first), (first, new, first)):
        yield (
            f"detached by client {starter}, read by client {reader}, server {server}",
            partial(checks.detached, starter, reader, server),
        )
    for node, executor, harness in product((first, new), repeat=3):
        if len({node, executor, harness}) == 2:
            yield (
                f"registry {node}, executor {executor}, harness {harness}",
                partial(checks.registry, node, executor, harness),
            )
    for old in (first, middle):
        yield (
            f"file of registry {old}, opened by {new}",
            partial(checks.registry_state, old, new),
        )
    for client in (middle, new):
        yield (
            f"job and keeper of server {middle}, adopted by {new}, client {client}",
            partial(checks.durable, middle, new, client),
        )
    yield (
        f"job and keeper of server {new}, adopted by {new} after a restart",
        partial(checks.durable, new, new, new),
    )


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make upgrade-check", description=__doc__)
    parser.add_argument("--only", default="", help="only the checks with this text in their name")
    parser.add_argument("--write", action="store_true", help="write the results to the page")
    options = parser.parse_args(words)
    failed = 0
    rows = ["| | |", "|---|---|"]
    with tempfile.TemporaryDirectory(prefix="upgrade-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        first, middle = (installed(name, commit, scratch) for name, commit in OLD.items())
        new = installed(VERSION, None, scratch)
        for number, (shown, check) in enumerate(planned(first, middle, new)):
            if options.only not in shown:
                continue
            folder = scratch / str(number)
            folder.mkdir()
            try:
                check(folder)
            except UpgradeBroken as problem:
                failed += 1
                rows.append(f"| {shown} | **fails** |")
                print(f"FAILED  {shown}\n        {problem}", flush=True)
            else:
                rows.append(f"| {shown} | works |")
                print(f"ok      {shown}", flush=True)
    if options.write:
        head, mark, rest = PAGE.read_text(encoding="utf-8").partition("<!-- upgrade-check -->\n")
        _, end, tail = rest.partition("<!-- end -->")
        PAGE.write_text(head + mark + "\n".join(rows) + "\n" + end + tail, encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
