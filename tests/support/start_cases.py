"""Parameters of process/start, right and wrong, for us alone and beside the reference."""

from __future__ import annotations

from typing import Any

POLICY: dict[str, Any] = {
    "inherit": "core",
    "ignoreDefaultExcludes": False,
    "exclude": [],
    "set": {},
    "includeOnly": [],
}
SHELL = {"name": "bash", "path": "/bin/bash"}
REQUIRED = ["processId", "argv", "cwd", "env", "tty"]

# Each of them is refused with -32602.
WRONG: list[dict[str, Any]] = [
    {"processId": 1},
    {"processId": None},
    {"argv": "true"},
    {"argv": [1]},
    {"argv": None},
    {"argv": ["true", None]},
    {"argv": {}},
    {"argv": []},
    {"cwd": None},
    {"cwd": 1},
    {"cwd": ["file:///tmp"]},
    {"env": None},
    {"env": []},
    {"env": {"A": 1}},
    {"env": {"A": None}},
    {"env": [["A", "b"]]},
    {"tty": None},
    {"tty": 0},
    {"tty": "false"},
    {"pipeStdin": None},
    {"pipeStdin": 1},
    {"arg0": 1},
    {"arg0": ["x"]},
    {"envPolicy": {}},
    {"envPolicy": "core"},
    *({"envPolicy": {k: v for k, v in POLICY.items() if k != gone}} for gone in POLICY),
    {"envPolicy": {**POLICY, "inherit": "ALL"}},
    {"envPolicy": {**POLICY, "inherit": None}},
    {"envPolicy": {**POLICY, "exclude": None}},
    {"envPolicy": {**POLICY, "exclude": [1]}},
    {"envPolicy": {**POLICY, "set": {"A": 1}}},
    {"envPolicy": {**POLICY, "ignoreDefaultExcludes": "no"}},
    {"metadata": 1},
    {"metadata": {"toolCallId": 1}},
    {"metadata": {"threadId": 1}},
    {"metadata": {"threadId": "no UUID"}},
    {"shellSnapshot": {}},
    {"shellSnapshot": {"scopeId": "s"}},
    {"shellSnapshot": {"scopeId": "", "shell": SHELL}},
    {"shellSnapshot": {"scopeId": "x" * 257, "shell": SHELL}},
    {"shellSnapshot": {"scopeId": "é" * 129, "shell": SHELL}},
    {"shellSnapshot": {"scopeId": "s", "shell": {"name": "bash"}}},
    {
        "shellSnapshot": {"scopeId": "s", "shell": {"name": "fish", "path": "/bin/fish"}},
        "argv": ["/bin/fish", "-lc", "true"],
    },
    {"sandbox": {}},
    {"sandbox": 1},
    {"enforceManagedNetwork": None},
    {"enforceManagedNetwork": 1},
    {"managedNetwork": 1},
    {"managedNetwork": "x"},
    {"networkProxy": {}},
    {"networkProxy": 1},
]

# Each of them is accepted, for a program that exists.
ACCEPTED: list[dict[str, Any]] = [
    {"processId": ""},
    {"processId": "x" * 300_000},
    {"processId": "é\u0000\n😀"},
    {"arg0": None},
    {"arg0": ""},
    {"envPolicy": None},
    {"metadata": None},
    {"metadata": {}},
    {"metadata": {"toolCallId": None}},
    {"metadata": {"unknown": 1}},
    {"metadata": {"threadId": "6F9619FF-8B86-D011-B42D-00CF4FC964FF"}},
    {"shellSnapshot": None},
    {"shellSnapshot": {"scopeId": "x" * 256, "shell": {"name": "fish", "path": "/bin/fish"}}},
    {"shellSnapshot": {"scopeId": "s", "shell": SHELL}},
    {"sandbox": None},
    {"enforceManagedNetwork": False},
    {"enforceManagedNetwork": True},
    {"managedNetwork": None},
    {"managedNetwork": {}},
    {"networkProxy": None},
    {"unknown": {"a": [1]}, "process_id": 1},
    {"pipeStdin": True},
    {"pipeStdin": True, "tty": True},
]

# Two faults each, in the order of the checks; "taken" is in use. The code is that of the first.
TWO_FAULTS: list[tuple[dict[str, Any], int]] = [
    ({"argv": [], "cwd": "http://x/"}, -32602),
    ({"argv": [], "cwd": "file:///C:/x"}, -32602),
    ({"argv": [], "shellSnapshot": {"scopeId": "", "shell": SHELL}}, -32602),
    ({"argv": [], "processId": "taken"}, -32602),
    ({"argv": [1], "processId": "taken"}, -32602),
    ({"argv": ["/no/such"], "cwd": "file:///C:/x"}, -32602),
    ({"argv": ["/no/such"], "processId": "taken"}, -32600),
    ({"argv": ["a\0b"], "processId": "taken"}, -32600),
    ({"argv": ["true"], "processId": "taken", "cwd": "file:///no/such"}, -32600),
]

# Each of them is refused with -32603: the operating system will not start it.
SPAWN_FAILURES: list[dict[str, Any]] = [
    {"argv": ["/no/such/program"]},
    {"argv": ["no-such-program"]},
    {"argv": [""]},
    {"argv": ["/"]},
    {"argv": ["/etc/passwd"]},
    {"argv": ["/etc/passwd/x"]},
    {"argv": ["true", "a\0b"]},
    {"argv": ["a\0b"]},
    {"argv": ["true"], "env": {"A": "a\0b"}},
    {"argv": ["true"], "env": {"A\0": "b"}},
    {"argv": ["true"], "arg0": "a\0b"},
    {"argv": ["true"], "env": {"PATH": "/no/such"}},
    {"argv": ["true"], "env": {"PATH": ""}},
    {"argv": ["true", "x" * 200_000]},
    {"argv": ["true"], "cwd": "file:///no/such"},
    {"argv": ["true"], "cwd": "file:///etc/passwd"},
    {"argv": ["bin/true"], "cwd": "file:///tmp"},
]


def name_of(params: Any) -> str:
    """A short name of a test for *params*."""
    return repr(params)[:60]
