"""The cause of an end: never one that the evidence does not support."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.process.end_report import Ending, Order, end_report, order_of, usage_of
from exec_server.protocol import process
from exec_server.protocol.ends import EndedBy, EndReport, Usage
from tests.requirements import requirement

CLIENT = EndedBy("client", principal="token", session_id="s")
KILL, TERM, SEGV = int(signal.SIGKILL), int(signal.SIGTERM), int(signal.SIGSEGV)
TERMINATE = Order(KILL, CLIENT, ends=True)
STRANGER = {"kind": "process", "pid": 7, "exe": "/usr/bin/kill"}
OWN_OOM = {"oom": 1, "oom_kill": 1, "oom_max": 4, "group": "cgroup2"}
OUTER_OOM = {"oom": 0, "oom_kill": 1, "oom_max": 0, "group": "cgroup2"}


def told(ending: Ending) -> tuple[str, str | None, str | None]:
    """Cause, signal, and the kind of who has ended it."""
    end = end_report(ending)
    return end.cause, end.signal, None if end.by is None else end.by.kind


# Facts made by hand, in place of machines that would make them.
WAYS: list[tuple[str, Ending, tuple[str, str | None, str | None]]] = [
    ("exit 0", Ending(0), ("exited", None, None)),
    ("exit 137", Ending(137 << 8), ("exited", None, None)),
    ("exit 124", Ending(124 << 8), ("exited", None, None)),
    (
        "abort, self",
        Ending(6, {"sender": {"kind": "self", "pid": 3}}),
        ("signal", "SIGABRT", "self"),
    ),
    ("segfault with a core", Ending(SEGV | 0x80), ("signal", "SIGSEGV", None)),
    ("own memory", Ending(KILL, OWN_OOM), ("memory", "SIGKILL", "kernel")),
    ("a grandchild's memory", Ending(109 << 8, OWN_OOM), ("memory", None, "kernel")),
    ("a grandchild's memory, outer", Ending(1 << 8, OUTER_OOM), ("outerMemory", None, "kernel")),
    ("a grandchild's memory, got over", Ending(0, OWN_OOM), ("exited", None, None)),
    ("outer memory", Ending(KILL, OUTER_OOM), ("outerMemory", "SIGKILL", "kernel")),
    ("outer memory, told", Ending(KILL, {"oom_outer": True}), ("outerMemory", "SIGKILL", "kernel")),
    ("both", Ending(KILL, OWN_OOM | {"oom_outer": 1}), ("unknown", "SIGKILL", "kernel")),
    ("the kernel's log", Ending(KILL, {"oom_killed": True}), ("outerMemory", "SIGKILL", "kernel")),
    ("memory, or a client", Ending(KILL, OWN_OOM, [TERMINATE]), ("unknown", "SIGKILL", None)),
    (
        "memory, and then a client",
        Ending(KILL, OWN_OOM | {"oom_killed": True}, [TERMINATE]),
        ("memory", "SIGKILL", "kernel"),
    ),
    ("a client", Ending(KILL, {}, [TERMINATE]), ("terminated", "SIGKILL", "client")),
    ("a client's signal", Ending(TERM, {}, [Order(TERM, CLIENT)]), ("signal", "SIGTERM", "client")),
    ("another signal", Ending(KILL, {}, [Order(TERM, CLIENT)]), ("signal", "SIGKILL", None)),
    ("a stranger", Ending(KILL, {"sender": STRANGER}), ("signal", "SIGKILL", "process")),
    (
        "a stranger before the client",
        Ending(KILL, {"sender": STRANGER}, [TERMINATE]),
        ("signal", "SIGKILL", "process"),
    ),
    (
        "one that may be its own",
        Ending(KILL, {"sender": {"kind": "kin", "pid": 7}}, [TERMINATE]),
        ("signal", "SIGKILL", None),
    ),
    ("a limit, or itself", Ending(25, {"limit_or_signal": "disk"}), ("unknown", "SIGXFSZ", None)),
    (
        "a limit, or a client",
        Ending(25, {"limit_or_signal": "disk"}, [Order(25, CLIENT)]),
        ("signal", "SIGXFSZ", "client"),
    ),
    ("an unknown sender", Ending(KILL), ("signal", "SIGKILL", None)),
    ("a limit", Ending(KILL, {"limit": "wall"}), ("limit", "SIGKILL", "server")),
    (
        "its limit, by the kernel",
        Ending(24, {"limit": "cpuSeconds"}),
        ("limit", "SIGXCPU", "kernel"),
    ),
    ("watched memory", Ending(KILL, {"limit": "memory"}), ("limit", "SIGKILL", "server")),
    (
        "own memory, as the limits tell it",
        Ending(KILL, OWN_OOM | {"limit": "memory"}, [TERMINATE]),
        ("memory", "SIGKILL", "kernel"),
    ),
    (
        "a grandchild's memory, as the limits tell it",
        Ending(1 << 8, OWN_OOM | {"limit": "memory"}),
        ("memory", None, "kernel"),
    ),
    ("before the limit", Ending(0, {"limit": "wall"}), ("exited", None, None)),
    ("the server's stop", Ending(TERM, {"stopped": True}), ("terminated", "SIGTERM", "server")),
    (
        "the keeper",
        Ending(KILL, {"sender": {"kind": "keeper"}}),
        ("terminated", "SIGKILL", "server"),
    ),
    ("at the stop, by itself", Ending(SEGV, {"stopped": True}), ("signal", "SIGSEGV", None)),
    ("a lost wall", Ending(KILL, reason="a mount is gone"), ("sandbox", "SIGKILL", "server")),
    ("a refused start", Ending(101 << 8, refusal="no backend"), ("sandbox", None, "server")),
    ("not as planned", Ending(101 << 8, {"not_run": True}), ("sandbox", None, "server")),
    ("the keeper died", Ending(None, lost="the keeper died"), ("lost", None, None)),
    ("bubblewrap, undecided", Ending(139 << 8, is_wrapped=True), ("unknown", None, None)),
    ("bubblewrap, low", Ending(124 << 8, is_wrapped=True), ("exited", None, None)),
    (
        "bubblewrap, a signal",
        Ending(139 << 8, {"status": SEGV}, is_wrapped=True),
        ("signal", "SIGSEGV", None),
    ),
    (
        "bubblewrap, a code",
        Ending(139 << 8, {"status": 139 << 8}, is_wrapped=True),
        ("exited", None, None),
    ),
]


@requirement("ends:causes")
@pytest.mark.parametrize(
    ("ending", "expected"), [way[1:] for way in WAYS], ids=[w[0] for w in WAYS]
)
def test_a_cause_follows_from_the_evidence(ending, expected):
    assert told(ending) == expected


@requirement("ends:causes")
def test_the_client_that_ended_a_process_is_named():
    assert end_report(Ending(KILL, {}, [TERMINATE])).by == CLIENT
    assert order_of(TERMINATE.described()) == TERMINATE
    assert end_report(Ending(KILL, {"sender": STRANGER})).by == EndedBy(
        "process", pid=7, exe="/usr/bin/kill"
    )


counts = st.integers(0, 3)
KINDS = ("kernel", "keeper", "self", "process", "kin")
senders = st.sampled_from([{"kind": k, "pid": 7} for k in KINDS])
all_facts = st.fixed_dictionaries(
    {},
    optional={
        "oom": counts,
        "oom_kill": counts,
        "oom_max": counts,
        "oom_outer": counts,
        "oom_killed": st.just(True),
        "limit": st.sampled_from(["wall", "outputBytes", "memory"]),
        "limit_or_signal": st.just("disk"),
        "sender": senders,
        "stopped": st.just(True),
        "not_run": st.just(True),
        "status": st.one_of(st.integers(1, 31), st.integers(0, 255).map(lambda code: code << 8)),
    },
)
orders = st.lists(
    st.builds(
        Order,
        st.sampled_from([KILL, TERM, int(signal.SIGINT)]),
        st.sampled_from([CLIENT, EndedBy("server")]),
        st.booleans(),
    ),
    max_size=3,
)
texts = st.one_of(st.none(), st.just("why"))
endings = st.builds(
    Ending,
    st.one_of(st.integers(1, 31), st.integers(0, 255).map(lambda code: code << 8), st.none()),
    all_facts,
    orders,
    texts,
    texts,
    texts,
    st.booleans(),
)


def supported(ending: Ending, end: EndReport) -> bool:
    """True if the evidence says what *end* says."""
    facts: Any = ending.facts
    status = ending.status
    if ending.is_wrapped and status is not None:
        status = facts.get("status", status)
    signum = None if status is None or not status & 0x7F else status & 0x7F
    is_undecided = (
        ending.is_wrapped and "status" not in facts and 128 < (status or 0) >> 8 <= 128 + 64
    )
    is_killed = facts.get("oom_kill") or facts.get("oom_killed") or facts.get("oom_outer")
    has_succeeded = status == 0
    match end.cause:
        case "lost":
            return ending.status is None or ending.lost is not None
        case "exited":
            return signum is None and not is_undecided
        case "sandbox":
            return bool(ending.refusal or facts.get("not_run") or (ending.reason and signum))
        case "limit":
            return end.limit == facts.get("limit") and (signum is not None or is_undecided)
        case "memory":
            return bool(is_killed and facts.get("oom")) and not has_succeeded
        case "outerMemory":
            return bool(is_killed) and not facts.get("oom") and not has_succeeded
        case "terminated" | "signal":
            return signum is not None and sent(ending, end, signum)
    return bool(end.evidence)


def sent(ending: Ending, end: EndReport, signum: int) -> bool:
    assert end.signal == signal.Signals(signum).name
    sender = ending.facts.get("sender", {}).get("kind")
    kind = None if end.by is None else end.by.kind
    is_ours = ending.facts.get("stopped") or sender == "keeper"
    if end.cause == "terminated" and kind == "server" and is_ours:
        return True
    if kind in ("client", "server"):
        ends = end.cause == "terminated"
        return any((o.signum, o.by, o.ends) == (signum, end.by, ends) for o in ending.orders)
    return kind is None or kind == sender


@requirement("ends:never-a-wrong-cause")
@given(endings)
def test_no_cause_without_its_evidence(ending):
    end = end_report(ending)
    assert supported(ending, end), end
    assert end.evidence
    # The event that is put together by hand is what the generic encoder would write.
    event = process.ExitedEvent("p", 3, 0, end=end, usage=Usage(wall=1.0))
    text = process.EventTexts("p").exited(
        3, exit_code=0, sandbox_denied=False, end=end, usage=Usage(wall=1.0)
    )
    assert msgspec.json.decode(text)["params"] == msgspec.to_builtins(event)


@requirement("ends:usage")
def test_usage_says_where_it_comes_from():
    own = {"wall": 1.5, "cpu": 0.5, "max_rss": 4096, "read": 512, "written": 0}
    assert usage_of(own) == Usage(1.5, 0.5, 4096, 512, 0, source="rusage")
    bound = own | {"is_rss_at_most": True}
    assert usage_of(bound) == Usage(
        1.5, 0.5, 4096, 512, 0, source="rusage", peak_memory_at_most=True
    )
    group = bound | {"group": "cgroup2", "peak_memory": 8192, "processes": 3}
    assert usage_of(group) == Usage(1.5, 0.5, 8192, 512, 0, 3, "cgroup2")


def test_a_path_that_is_no_text_can_be_told():
    end = end_report(Ending(101 << 8, refusal="cannot open /\udcff"))
    assert msgspec.json.decode(msgspec.json.encode(end), type=EndReport).cause == "sandbox"
