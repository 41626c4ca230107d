"""What `cp`, `mv` and `sync` say about a copy."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from exec_server.cli.files.file_command import complain, reason, warn
from exec_server.cli.files.progress_bar import duration, size
from exec_server.cli.files.targets import Target
from exec_server.client.files.transfer.result import TransferResult
from exec_server.client.files.transfer.transfer_plan import TransferPlan


def tell_result(result: TransferResult) -> None:
    """Warn of what was left out or not kept."""
    for path, text in result.skipped:
        warn(f"{path}: skipped, because it {text}" if text.startswith("is ") else f"{path}: {text}")
    if result.not_kept:
        lost = ", ".join(sorted(result.not_kept))
        warn(f"not preserved, because the server cannot set them: {lost}")


def told_problems(result: TransferResult, source: Target, destination: Target | None = None) -> str:
    """Print each problem; returns the sentence for all of them."""
    for problem in result.problems:
        shown = str(source.below(problem.path))
        if problem.path == ".":
            shown = f"{source}: cannot be copied" + (f" to {destination}" if destination else "")
        complain(f"{shown}: {reason(Exception(problem.text))}")
    count = len(result.problems)
    return f"not everything was copied ({count} {'problem' if count == 1 else 'problems'})"


def summary(result: TransferResult, seconds: float) -> str:
    """The line at the end."""
    files = f"{result.files} {'file' if result.files == 1 else 'files'}"
    kept = f", {result.kept} already there" if result.kept else ""
    removed = f", {result.removed} removed" if result.removed else ""
    sent = result.bytes - result.resumed_bytes - result.matched_bytes
    saved = f" ({size(sent)} sent)" if result.matched_bytes else ""
    rate = f"{size(sent / seconds)}/s" if seconds > 0 else ""
    return (
        f"copied {files}{kept}{removed}: {size(result.bytes)}{saved} in {duration(seconds)}, {rate}"
    )


def result_facts(result: TransferResult) -> dict[str, Any]:
    """The result of a copy for programs."""
    return {
        "files": result.files,
        "bytes": result.bytes,
        "links": result.links,
        "directories": result.directories,
        "kept": result.kept,
        "removed": result.removed,
        "sentBytes": result.bytes - result.matched_bytes - result.resumed_bytes,
        "skipped": [{"path": path, "text": text} for path, text in result.skipped],
    }


class PlannedStep(NamedTuple):
    """One thing that a copy would do."""

    action: str
    path: str
    size: int
    is_directory: bool

    @property
    def facts(self) -> dict[str, Any]:
        return {"action": self.action, "path": self.path, "size": self.size}


def planned_steps(plan: TransferPlan) -> list[PlannedStep]:
    """What a copy would do, in the order of paths, and what it would remove."""
    new = [copy for copy in plan.directories if copy.replaces is None]
    copies = sorted([*new, *plan.files, *plan.links], key=lambda copy: copy.entry.path)
    steps = [
        PlannedStep(
            "create" if copy.replaces is None else "update",
            shown_path(copy.entry.path),
            copy.entry.size,
            copy.entry.kind == "directory",
        )
        for copy in copies
    ]
    return steps + [
        PlannedStep("delete", shown_path(entry.path), entry.size, entry.kind == "directory")
        for entry in plan.extra
    ]


def shown_path(path: bytes) -> str:
    return os.fsdecode(path) or "."
