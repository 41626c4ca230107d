"""What an agent does for a watch: it waits for notices and prints what has changed."""

from __future__ import annotations

import json
import os
import select
import stat
import time
from typing import Any

from exec_server.files.agents.change_batch import ChangeBatch
from exec_server.files.agents.watched_tree import TooManyDirectories, WatchedTree
from exec_server.state.ignore_rules import IgnoreRules

# How long changes are collected before they are reported: a program that writes a file in ten
# steps causes one report.
_SECONDS = 0.05


def watch(request: dict[str, Any]) -> None:
    """Watch as *request* says; the first line says that it has begun, or why not."""
    try:
        tree, batch = _begin(request)
    except OSError as exc:
        _say({"failed": exc.strerror or str(exc), "errno": exc.errno or 0})
        return
    except TooManyDirectories as exc:
        _say({"failed": str(exc), "errno": 0})
        return
    _say({"ready": True})
    try:
        while not tree.is_gone:
            _collect(tree, batch)
            for message in batch.take():
                _say(message)
        _say({"ended": "the watched directory is gone"})
    except TooManyDirectories as exc:
        _say({"ended": str(exc)})


def _begin(request: dict[str, Any]) -> tuple[WatchedTree, ChangeBatch]:
    root, only = os.fsencode(request["path"]), None
    if not stat.S_ISDIR(os.stat(root).st_mode):
        root, only = os.path.split(root)
    else:
        # The path that was asked for may lead through links. What it leads to now is watched.
        root = os.path.realpath(root) if os.path.islink(root) else root
    batch = ChangeBatch(root, only=only)
    tree = WatchedTree(
        root,
        recursive=request["recursive"] and only is None,
        ignore=IgnoreRules(request["ignore"]),
        most=request["mostDirectories"],
        batch=batch,
    )
    tree.begin()
    return tree, batch


def _collect(tree: WatchedTree, batch: ChangeBatch) -> None:
    """Wait for a notice, and take those that come soon after it."""
    _wait(tree.queue, None)
    deadline = time.monotonic() + _SECONDS
    tree.read()
    while not batch.is_large and not tree.is_gone:
        left = deadline - time.monotonic()
        if left <= 0 or not _wait(tree.queue, left):
            return
        tree.read()


def _wait(queue: int, seconds: float | None) -> bool:
    """True if there is a notice."""
    poll = select.poll()
    poll.register(queue, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def _say(message: dict[str, Any]) -> None:
    view = memoryview(json.dumps(message).encode() + b"\n")
    while view:
        view = view[os.write(1, view) :]
