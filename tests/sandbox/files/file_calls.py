"""Every file method, as one call about one path."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exec_server.sandbox.backends import HERE
from tests.support.files import encoded, uri
from tests.support.leaks import children
from tests.support.servers import ServerProcess, start_server
from tests.support.wire import Wire

OK = "ok"
WALK = {"maxDepth": 3, "maxDirectories": 99, "maxEntries": 99, "followDirectorySymlinks": False}

# For every module of tests of sandboxed file calls.
MARKS = [
    pytest.mark.one_loop,
    pytest.mark.skipif(
        not HERE.bubblewrap_report.works, reason=f"{HERE.bubblewrap_report.obstacle}"
    ),
]


def of_file(path: Path, source: Path) -> dict[str, dict[str, Any]]:
    """The methods that look at or change a file at *path*; *source* is copied there."""
    here = {"path": uri(path)}
    data = {**here, "dataBase64": encoded(b"new")}
    return {
        "fs/readFile": here,
        "fs/getMetadata": here,
        "fs/lstat": here,
        "fs/canonicalize": here,
        "fs/open": {**here, "handleId": "read"},
        "fs/writeFile": data,
        "fs/writeFile atomic": {**data, "atomic": True},
        "fs/writeFile nofollow": {**data, "followSymlinks": False},
        "fs/append": data,
        "fs/setPermissions": {**here, "mode": 0o600},
        "fs/open replace": {**here, "handleId": "write", "mode": "replace"},
        "fs/open update": {**here, "handleId": "update", "mode": "update"},
        "fs/copy": {"sourcePath": uri(source), "destinationPath": uri(path), "recursive": False},
        "fs/rename": {"sourcePath": uri(path), "destinationPath": uri(f"{path}-renamed")},
        "fs/remove": {**here, "force": False},
    }


def of_directory(path: Path) -> dict[str, dict[str, Any]]:
    """The methods that look at or change a directory at *path*."""
    return {
        "fs/readDirectory": {"path": uri(path)},
        "fs/walk": {"path": uri(path), "options": WALK},
        "fs/createDirectory": {"path": uri(path / "new"), "recursive": False},
        "fs/writeFile": {"path": uri(path / "new-file"), "dataBase64": ""},
        "fs/symlink": {"path": uri(path / "new-link"), "link": {"target": "/nowhere"}},
    }


async def outcome(wire: Wire, name: str, params: dict[str, Any], sandbox: Any) -> Any:
    """OK, or the code of the error with the system's own error number if it names one."""
    method = name.partition(" ")[0]
    answer = await wire.answer(await wire.request(method, {**params, "sandbox": sandbox}))
    if "error" not in answer:
        if method == "fs/open":
            await wire.call("fs/close", {"handleId": params["handleId"]})
        return OK
    error = answer["error"]
    number = error["message"].partition("(os error ")[2].partition(")")[0]
    return (error["code"], int(number)) if number else error["code"]


@contextlib.contextmanager
def confining_server(*options: str) -> Iterator[ServerProcess]:
    with start_server(*options, env={"ESCAPE_SECRET": "only the server knows"}) as running:
        yield running


def helpers(pid: int) -> set[int]:
    """The helpers below *pid*, without the processes that confine them."""
    found = {pid} if is_helper(pid) else set()
    return found.union(*map(helpers, children(pid)))


def is_helper(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        name = Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return False
    return b"files.confined.helper_main" in words and name.startswith("python")
