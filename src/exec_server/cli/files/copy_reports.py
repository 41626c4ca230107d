"""What `cp`, `mv` and `sync` say about a copy."""

from __future__ import annotations

from exec_server.cli.files.file_command import complain, reason, warn
from exec_server.cli.files.progress_bar import duration, size
from exec_server.cli.files.targets import Target
from exec_server.client.files.transfer.result import TransferResult


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
