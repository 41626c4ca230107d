"""Why a process ended and what it used, concluded from its status, from facts and from orders.

PURE: nothing here asks the system. A cause is told only if the evidence supports it; where two
causes would leave the same evidence, it is `unknown`, with the reason.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from exec_server.protocol.ends import Cause, EndedBy, EndReport, Usage

# Signals that the keeper sends when it ends everything.
_OF_A_STOP = (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
_LAST_SIGNAL = 64
# Signals by which the kernel itself ends a process that has reached a limit.
_OF_LIMITS = (signal.SIGXCPU, signal.SIGXFSZ)


class Order(msgspec.Struct, frozen=True):
    """A signal that was sent through this server."""

    signum: int
    by: EndedBy
    # True if it was the request to end the process, and not one for this signal.
    ends: bool = False

    def described(self) -> dict[str, Any]:
        """Plain values, which `order_of` understands."""
        by = self.by
        return {
            "signal": int(self.signum),
            "ends": self.ends,
            "kind": by.kind,
            "principal": by.principal,
            "session": by.session_id,
        }


def order_of(told: Mapping[str, Any]) -> Order:
    by = EndedBy(told["kind"], principal=told["principal"], session_id=told["session"])
    return Order(told["signal"], by, told["ends"])


class Ending(msgspec.Struct, frozen=True):
    """Everything that is known about the end of a process."""

    # As wait(2) gives it; None if it is unknown and stays so.
    status: int | None
    # What the keeper has found out, see exit_facts.py, and what the limits of the process tell.
    facts: Mapping[str, Any] = {}
    orders: Sequence[Order] = ()
    # Why the process is lost, why its command was not run, and why the keeper has killed it.
    lost: str | None = None
    refusal: str | None = None
    reason: str | None = None
    # True for a command in bubblewrap, whose status does not tell signals from exit codes.
    is_wrapped: bool = False


def end_report(ending: Ending) -> EndReport:
    """Why a process ended."""
    if ending.status is None or ending.lost is not None:
        return EndReport("lost", evidence=ending.lost or "its exit status is unknown")
    facts = ending.facts
    if ending.refusal is not None or facts.get("not_run"):
        why = _clean(ending.refusal) if ending.refusal else "the sandbox was not as planned"
        text = f"the command did not run: {why}"
        return EndReport("sandbox", by=EndedBy("server"), evidence=text)
    status = facts.get("status", ending.status) if ending.is_wrapped else ending.status
    if os.WIFSIGNALED(status):
        return _signalled(ending, os.WTERMSIG(status))
    code = os.WEXITSTATUS(status)
    if ending.is_wrapped and "status" not in facts and 128 < code <= 128 + _LAST_SIGNAL:
        return _undecided(ending, code)
    return _returned(ending, code)


def usage_of(facts: Mapping[str, Any]) -> Usage:
    """What a process and its descendants used."""
    group = facts.get("group")
    is_of_group = "peak_memory" in facts
    return Usage(
        wall=facts.get("wall"),
        cpu=facts.get("cpu"),
        peak_memory=facts.get("peak_memory", facts.get("max_rss")),
        read=facts.get("read"),
        written=facts.get("written"),
        processes=facts.get("processes"),
        source=group if group is not None and is_of_group else "rusage",
        peak_memory_at_most=not is_of_group and facts.get("is_rss_at_most", False),
    )


def signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def _returned(ending: Ending, code: int) -> EndReport:
    text = f"the program returned {code}"
    killed = _killed_for_memory(ending.facts)
    if killed is None:
        return EndReport("exited", evidence=text)
    cause, how = killed
    if code == 0 or ending.orders or cause is None:
        # It has got over that, or another reason is as likely.
        return EndReport("exited", evidence=f"{text}; {how}")
    return EndReport(
        cause,
        by=EndedBy("kernel"),
        limit="memory" if cause == "memory" else None,
        evidence=f"{how}; {text}",
    )


def _undecided(ending: Ending, code: int) -> EndReport:
    """bubblewrap has returned 128 + N, for a signal inside or for a program that returned it."""
    name = signal_name(code - 128)
    limit = ending.facts.get("limit")
    if limit is not None:
        return _of_limit(limit, code - 128)
    text = (
        f"the sandbox returned {code}, which stands for {name} and for a program that returned "
        f"{code}; this kernel does not tell which"
    )
    killed = _killed_for_memory(ending.facts)
    return EndReport("unknown", evidence=text if killed is None else f"{text}; {killed[1]}")


def _signalled(ending: Ending, signum: int) -> EndReport:
    facts, name = ending.facts, signal_name(signum)
    killed = _killed_for_memory(facts) if signum == signal.SIGKILL else None
    limit = facts.get("limit")
    if limit == "memory" and killed is not None and killed[0] == "memory":
        return _of_memory(*killed, name)
    if limit is not None:
        return _of_limit(limit, signum)
    if (unsure := facts.get("limit_or_signal")) is not None and not ending.orders:
        text = f"{name} ended it: it reached its limit {unsure}, or a program sent that signal"
        return EndReport("unknown", signal=name, evidence=text)
    if ending.reason is not None:
        by = EndedBy("server")
        return EndReport("sandbox", signal=name, by=by, evidence=_clean(ending.reason))
    sender: dict[str, Any] = facts.get("sender") or {"kind": None}
    is_killed = signum == signal.SIGKILL and facts.get("oom_killed")
    kind: Any = "kernel" if is_killed else sender["kind"]
    if kind in ("process", "self"):
        by = EndedBy(kind, pid=sender.get("pid"), exe=sender.get("exe"))
        return EndReport("signal", signal=name, by=by, evidence="the kernel tells who sent it")
    if kind == "kin":
        text = (
            f"process {sender.get('pid')} sent {name}; it has ended, and whether the command had "
            "started it is not known"
        )
        return EndReport("signal", signal=name, evidence=text)
    orders = [order for order in ending.orders if order.signum == signum]
    if killed is not None and (kind == "kernel" or not orders):
        return _of_memory(*killed, name)
    if killed is not None and kind is None:
        text = f"{killed[1]}, and {_told(orders[-1].by)} sent {name}: either may have ended it"
        return EndReport("unknown", signal=name, evidence=text)
    if kind == "kernel":
        by = EndedBy("kernel")
        return EndReport("signal", signal=name, by=by, evidence="the kernel itself sent it")
    if kind == "keeper" and not orders:
        text = "the server ended it"
        return EndReport("terminated", signal=name, by=EndedBy("server"), evidence=text)
    return _of_ours(orders, signum, is_stopped=bool(facts.get("stopped")))


def _of_ours(orders: Sequence[Order], signum: int, *, is_stopped: bool) -> EndReport:
    """A signal that this server has sent, or whose sender is unknown."""
    name = signal_name(signum)
    if orders:
        # The request to end it counts, also if another client has signalled it.
        order = next((order for order in orders if order.ends), orders[-1])
        if order.ends:
            text = f"{_told(order.by)} asked for its end"
            return EndReport("terminated", signal=name, by=order.by, evidence=text)
        text = f"{_told(order.by)} sent {name}"
        return EndReport("signal", signal=name, by=order.by, evidence=text)
    if is_stopped and signum in _OF_A_STOP:
        text = "the server was stopped, and its jobs with it"
        return EndReport("terminated", signal=name, by=EndedBy("server"), evidence=text)
    text = f"{name} ended it; who sent it is not known: the system does not tell this server"
    return EndReport("signal", signal=name, evidence=text)


def _of_limit(limit: str, signum: int) -> EndReport:
    by = EndedBy("kernel" if signum in _OF_LIMITS else "server")
    text = f"the {by.kind} ended it, because it reached its limit {limit}"
    return EndReport("limit", signal=signal_name(signum), by=by, limit=limit, evidence=text)


def _of_memory(cause: Cause | None, how: str, name: str) -> EndReport:
    if cause is None:
        return EndReport("unknown", signal=name, by=EndedBy("kernel"), evidence=how)
    limit = "memory" if cause == "memory" else None
    return EndReport(cause, signal=name, by=EndedBy("kernel"), limit=limit, evidence=how)


def _killed_for_memory(facts: Mapping[str, Any]) -> tuple[Cause | None, str] | None:
    """Whose memory was exhausted when the kernel killed processes; None if it has killed none.

    The kernel counts `oom` in the group whose limit was reached, and `oom_kill` in the group of the
    process that it killed.
    """
    count = facts.get("oom_kill") or int(bool(facts.get("oom_killed")))
    own, outer = bool(facts.get("oom")), bool(facts.get("oom_outer"))
    if not count and not outer:
        return None
    processes = "a process" if count in (0, 1) else f"{count} processes"
    done = f"the kernel killed {processes} of the command"
    if own and outer:
        return None, f"{done}: its own memory limit was reached, and that of a group around it"
    if own:
        return "memory", f"{done}, because its own memory limit was reached"
    return "outerMemory", f"{done}, because memory was exhausted outside of its own limit"


def _clean(text: str) -> str:
    """A path in *text* may have bytes that no message can carry."""
    return text.encode("utf-8", "replace").decode()


def _told(by: EndedBy) -> str:
    if by.kind != "client":
        return "the server"
    return "a client" if by.principal is None else f"a client of {by.principal}"
