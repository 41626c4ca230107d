"""How a command ended and what it used, in words for a person and in facts for a program."""

from __future__ import annotations

import msgspec
from msgspec import UnsetType

from exec_server.cli.log_setup import print_note
from exec_server.cli.process.own_terminal.connection_notices import say
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.client.process.watched_process import WatchedProcess
from exec_server.protocol.ends import EndedBy, EndReport, Usage

# A program that ends by one of these has made a mistake; no one has to have sent it.
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGSYS", "SIGTRAP")
# The keys and the closing of a terminal send these; its user knows.
_OF_A_TERMINAL = ("SIGINT", "SIGQUIT", "SIGHUP")
# What a command did that has reached a limit, and how the limit is written.
_REACHED = {
    "memory": ("used more memory than its limit", "memory=SIZE"),
    "pids": ("had more processes than its limit", "pids=COUNT"),
    "cpuSeconds": ("used more processor time than its limit", "cpuSeconds=SECONDS"),
    "wall": ("ran longer than its limit", "wall=SECONDS"),
    "outputBytes": ("printed more than its limit", "outputBytes=SIZE"),
    "disk": ("wrote more to disks than its limit", "disk=SIZE"),
}
_DENIED = (
    "the sandbox has probably refused something to the command; the options --sandbox and --net "
    "say what it may do"
)


def end_line(end: EndReport | UnsetType | None) -> str | None:
    """One line about an end that a person should know of; None for an ordinary one."""
    if not end or end.cause == "exited":
        return None
    match end.cause:
        case "limit":
            did, limit = _REACHED.get(end.limit or "", (f"reached its limit {end.limit}", ""))
            return f"the command was ended: it {did}; see --limit {limit}".rstrip()
        case "memory":
            did, limit = _REACHED["memory"]
            return f"the command was ended: it {did}; see --limit {limit}"
        case "outerMemory":
            return (
                "the kernel ended the command: memory was exhausted outside of its own limit, on "
                "the machine or in a group around the server"
            )
        case "terminated":
            return f"{_who(end.by) or 'another program'} ended the command"
        case "signal" if end.signal in _FAULTS and (end.by is None or end.by.kind != "process"):
            return f"the command crashed: {end.signal}"
        case "signal":
            return f"the command was ended by {end.signal}{_sender(end.by)}"
        case "sandbox":
            return f"the command was ended because of its sandbox: {end.evidence}"
        case "lost":
            return f"lost ({end.evidence}): the exit status is unknown"
    return f"it is not known why the command ended: {end.evidence}"


def short_end(end: EndReport | UnsetType | None) -> str | None:
    """A word or two for a table; None for an ordinary end."""
    if not end or end.cause in ("exited", "lost"):
        return None
    words = {
        "memory": "memory limit",
        "outerMemory": "out of memory",
        "limit": f"limit {end.limit}",
    }
    if end.cause == "signal":
        return end.signal
    return words.get(end.cause, end.cause)


def report_facts(
    end: EndReport | UnsetType | None, usage: Usage | UnsetType | None
) -> dict[str, object]:
    """The facts for output in JSON; none if the server does not tell them."""
    facts: dict[str, object] = {}
    if end:
        facts["end"] = msgspec.to_builtins(end)
    if usage:
        facts["usage"] = msgspec.to_builtins(usage)
    return facts


def tell_end(
    process: RemoteProcess | WatchedProcess,
    *,
    is_known: bool = False,
    knows_denials: bool = False,
) -> None:
    """Print one line about the end of *process*, if it was not an ordinary one.

    *is_known* says that the user has ended it, and knows; *knows_denials* that it was said what the
    sandbox refused.
    """
    end = process.end
    if end is None or is_known or process.lost is not None:
        return
    if end.cause == "sandbox" or (process.is_terminal and end.signal in _OF_A_TERMINAL):
        # The output of a command that the sandbox has ended says so already.
        return
    line = end_line(end)
    if line is None and process.sandbox_denied and not knows_denials:
        line = _DENIED
    if line is not None:
        say(line)


def stats_text(usage: Usage | None) -> str:
    """What a command used, a line for each value that is known."""
    if usage is None:
        return "the server does not tell what the command used"
    largest = "" if usage.source != "rusage" else " (the largest process)"
    values = (
        ("wall", _seconds(usage.wall)),
        ("cpu", _seconds(usage.cpu)),
        ("memory", _bytes(usage.peak_memory, largest, at_most=usage.peak_memory_at_most)),
        ("read", _bytes(usage.read, " from disks")),
        ("written", _bytes(usage.written, " to disks")),
        ("processes", None if usage.processes is None else str(usage.processes)),
    )
    return "\n".join(f"{name:<10}{value}" for name, value in values if value is not None)


def print_stats(usage: Usage | None) -> None:
    print_note(stats_text(usage))


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f} s"


def _bytes(value: int | None, what: str, *, at_most: bool = False) -> str | None:
    if value is None:
        return None
    # Few commands are asked what they used.
    from exec_server.cli.files.progress_bar import size

    return f"{'at most ' if at_most else ''}{size(value)}{what}"


def _sender(by: EndedBy | None) -> str:
    if by is None:
        return "; who sent it is not known"
    return ", which it sent itself" if by.kind == "self" else f", which {_who(by)} sent"


def _who(by: EndedBy | None) -> str | None:
    if by is None:
        return None
    if by.kind == "client":
        return "a client" if by.principal is None else f"a client of {by.principal}"
    if by.kind == "process":
        return f"process {by.pid}" if by.exe is None else f"process {by.pid} ({by.exe})"
    return f"the {by.kind}"
