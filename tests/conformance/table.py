"""The kit's part of docs/compatibility.md: how servers and clients fare, release by release.

    python -m tests.conformance.table [ROW...]

Each row is run by `exec-server conformance`, and its results are kept in build/conformance. Rows
that are not named, or whose release is not installed, stay as they were.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.executors import running_registry
from tests.interop.versions import older_binary
from tests.support.servers import OURS, ROOT, codex_home, reference_binary, start_server

PINNED = "0.166.0"
# Releases on npm, and the dialect that each speaks.
OLDER = {"0.160.0": "newest", "0.150.0": "newest", "0.135.0": "first", "0.120.0": "first"}
PAGE = ROOT / "docs" / "compatibility.md"
KEPT = ROOT / "build" / "conformance"
BEGIN, END = "<!-- conformance, made by `make conformance-table` -->", "<!-- end of conformance -->"
_PATIENCE = "60"
_HEAD = """\
## Conformance of servers

Made by `make conformance-table`; do not edit. Each row is a run of the
[conformance kit](conformance.md). *differs*: the release is known to do something else, and the
reason is below. *skipped*: extensions of this project that the server does not announce, methods
that did not exist yet, and malformed messages through the relay, which end a stream instead.
"""
_CLIENTS = """
## Conformance of clients

The same with `exec-server conformance --client`: what a client does when events are repeated,
reordered or late, and when its connection, its session or its process is lost.
"""


class Row(NamedTuple):
    title: str
    # Nothing for ours, or the release of Codex.
    release: str = ""
    is_remote: bool = False
    # The command of a client.
    client: str = ""

    @property
    def file(self) -> Path:
        return KEPT / f"{self.title.replace(' ', '_').replace(',', '')}.json"


_CODEX_CLIENT = f"{sys.executable} -m tests.conformance.codex_client {{url}}"
ROWS = [
    Row("ours"),
    Row("ours, relay", is_remote=True),
    Row(f"Codex {PINNED}", PINNED),
    Row(f"Codex {PINNED}, relay", PINNED, is_remote=True),
    *(Row(f"Codex {release}", release) for release in OLDER),
    Row("exec-server run", client=" ".join([*OURS, "run", "{url}", "--", "true"])),
    Row(f"Codex {PINNED} client", PINNED, client=_CODEX_CLIENT),
]


def main(words: list[str]) -> int:
    KEPT.mkdir(parents=True, exist_ok=True)
    for row in ROWS:
        if words and row.title not in words:
            continue
        with contextlib.ExitStack() as stack:
            found = _run(row, stack)
        if found is not None:
            row.file.write_text(json.dumps(found, indent=1))
            print(f"{row.title}: {_counts(found)}", flush=True)
    written = with_part(PAGE.read_text(encoding="utf-8"), "\n".join(_part()))
    PAGE.write_text(written, encoding="utf-8")
    failed = [row.title for row in ROWS if row.file.exists() and _counts(_kept(row))["failed"]]
    if failed:
        print(f"checks failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def with_part(page: str, part: str) -> str:
    """The page, with *part* at its end instead of what was there."""
    before = page.partition(BEGIN)[0].rstrip("\n")
    return f"{before}\n\n{BEGIN}\n{part}\n{END}\n"


def _run(row: Row, stack: contextlib.ExitStack) -> Any:
    binary = older_binary(row.release) if row.release in OLDER else reference_binary()
    if row.release and binary is None:
        print(f"{row.title}: not installed", file=sys.stderr)
        return None
    if row.client:
        return _kit("--client", row.client)
    command = [str(binary), "exec-server"] if row.release else OURS
    home = stack.enter_context(codex_home())
    env = {"CODEX_HOME": str(home), "HOME": str(home)}
    if row.is_remote:
        return _kit(*stack.enter_context(_behind_a_registry(command, env)))
    running = stack.enter_context(start_server(command=command, env=env))
    return _kit("--dialect", OLDER.get(row.release, "newest"), running.url)


@contextlib.contextmanager
def _behind_a_registry(command: list[str], env: dict[str, str]) -> Iterator[list[str]]:
    name = f"env-{uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory() as folder, running_registry(Path(folder)) as registry:
        token = Path(folder) / "token"
        token.write_text(registry.harness)
        url = registry.url.replace("ws:", "http:")
        words = [*command, "--remote", url, "--environment-id", name]
        secrets = {**os.environ, **env, "CODEX_API_KEY": registry.enrol}
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, env=secrets) as process:
            try:
                options = ["--token-file", str(token), f"noise+{url}/{name}"]
                _wait_until_online(options)
                yield options
            finally:
                process.terminate()


def _wait_until_online(options: list[str]) -> None:
    for _ in range(60):
        words = [*OURS, "conformance", "--check", "noise.handshake", *options]
        if subprocess.run(words, capture_output=True, timeout=120, check=False).returncode == 0:
            return
        time.sleep(1)
    raise TimeoutError("the executor does not come online")


def _kit(*words: str) -> Any:
    command = [*OURS, "conformance", "-o", "json", "--timeout", _PATIENCE, *words]
    done = subprocess.run(command, capture_output=True, timeout=1800, check=False, cwd=ROOT)
    return json.loads(done.stdout)


# The page.


def _kept(row: Row) -> Any:
    return json.loads(row.file.read_text())


def _counts(found: Any) -> Counter[str]:
    return Counter(each["verdict"] for each in found["checks"])


def _part() -> Iterator[str]:
    shown = [row for row in ROWS if row.file.exists()]
    yield _HEAD
    yield "| server | dialect | passed | differs | skipped | failed |\n|---|---|---|---|---|---|"
    for row in shown:
        if not row.client:
            yield _line(row, OLDER.get(row.release, "newest"))
    yield from _reasons([row for row in shown if not row.client])
    yield _CLIENTS
    yield "| client | name | passed | differs | skipped | failed |\n|---|---|---|---|---|---|"
    for row in shown:
        if row.client:
            yield _line(row, _kept(row)["version"])
    yield from _reasons([row for row in shown if row.client])


def _line(row: Row, second: str) -> str:
    counts = _counts(_kept(row))
    verdicts = ("passed", "deviation", "skipped", "failed")
    return f"| {' | '.join([row.title, second, *(str(counts[each]) for each in verdicts)])} |"


def _reasons(rows: list[Row]) -> Iterator[str]:
    """What differs, and where."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        for each in _kept(row)["checks"]:
            if each["verdict"] in ("deviation", "failed"):
                reason = each["seen"].rpartition(" (")[2].rstrip(")")
                if each["verdict"] == "failed":
                    reason = f"**failed**: {each['seen'][:120]}"
                found.setdefault((each["id"], each["requirement"], reason), []).append(row.title)
    if not found:
        return
    yield "\n| check | requirement | differs | reason |\n|---|---|---|---|"
    for (check_id, requirement, reason), titles in sorted(found.items()):
        cells = (f"`{check_id}`", requirement, ", ".join(titles), reason.replace("|", "\\|"))
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
