"""Where a release of the reference is known to differ from a requirement, and why."""

from __future__ import annotations

# The version of a server that tells none and is spoken to in the first dialect (Codex before
# 0.140).
FIRST = "first"

_ENDED = "the first releases end the connection"
_SANDBOX = "the first releases do not tell the kind of sandbox"
_WRITE_ID = "the first releases have no writeId"

# By the id of the check: the versions that differ, as prefixes of `executorVersion` or, for
# clients, of their names, and why.
DEVIATIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "envelope.repeated-key": ((FIRST,), _ENDED),
    "envelope.null-id": ((FIRST,), _ENDED),
    "envelope.fraction-id": ((FIRST,), _ENDED),
    "start.answer": ((FIRST,), _SANDBOX),
    "start.bad-cwd": ((FIRST,), "the first releases have paths, not URIs"),
    "start.cwd": ((FIRST,), "the first releases have paths, not URIs"),
    "output.binary": ((FIRST,), "the first releases have no input on pipes"),
    "exit.signal": ((FIRST,), "the first releases report -1 for a signal"),
    "exit.not-denied": ((FIRST,), "the first releases do not tell denials"),
    "read.all": ((FIRST,), "the first releases do not count the exit and the close"),
    "read.cursor": ((FIRST,), "the first releases have no input on pipes"),
    "write.stdin": ((FIRST,), "the first releases have no input on pipes"),
    "write.once": ((FIRST,), _WRITE_ID),
    "write.base64": ((FIRST,), _WRITE_ID),
    "terminate.running": ((FIRST,), "the first releases report -1 for a signal"),
    "policy.inherit": ((FIRST,), "the first releases ignore the policy"),
    "sandbox.read-only": ((FIRST,), _SANDBOX),
    "sandbox.writable": ((FIRST,), _SANDBOX),
    "sandbox.closed": ((FIRST,), _SANDBOX),
    "sandbox.protected": ((FIRST,), _SANDBOX),
    "sandbox.network": ((FIRST,), _SANDBOX),
    "sandbox.files": ((FIRST,), _SANDBOX),
    "session.events": ((FIRST,), _WRITE_ID),
    "client.large-output": (
        ("codex-environment",),
        "Codex shows its model the beginning and the end of long output",
    ),
    "session.attached": ((FIRST,), "the first releases answer -32600"),
}


def deviation(check_id: str, version: str) -> str | None:
    """Why a server of this version may fail the check; None if it may not."""
    versions, reason = DEVIATIONS.get(check_id, ((), ""))
    return reason if any(version.startswith(each) for each in versions) else None
