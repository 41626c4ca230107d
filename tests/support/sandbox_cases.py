"""Sandbox contexts: those that the reference accepts, and those that it refuses."""

from __future__ import annotations

from typing import Any

ROOT_READ = {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}
DISABLED = {"type": "disabled"}


def managed(*entries: Any, network: str = "restricted", **members: Any) -> dict[str, Any]:
    files = {"type": "restricted", "entries": list(entries), **members}
    return {"type": "managed", "file_system": files, "network": network}


def context(permissions: Any = None, **members: Any) -> dict[str, Any]:
    """A context of today's dialect; read-only unless something else is said."""
    profile = managed(ROOT_READ) if permissions is None else permissions
    return {"permissions": profile, "windowsSandboxLevel": "disabled", **members}


def entry(path: Any, access: Any = "read", **members: Any) -> dict[str, Any]:
    return {"path": path, "access": access, **members}


def at(path: Any) -> dict[str, Any]:
    return {"type": "path", "path": path}


def glob(pattern: Any) -> dict[str, Any]:
    return {"type": "glob_pattern", "pattern": pattern}


def special(kind: Any, **members: Any) -> dict[str, Any]:
    return {"type": "special", "value": {"kind": kind, **members}}


HERE = "file:///tmp"
FOREIGN = "file://elsewhere/x"
PROJECT = managed(ROOT_READ, entry(special("project_roots"), "write"))

# Accepted for a file request and a start alike, where the reads need no helper.
ACCEPTED: list[Any] = [
    context(),
    context(DISABLED),
    context({"type": "disabled", "network": 1}),
    context({"type": "external", "network": "restricted"}),
    context({"type": "external", "network": "enabled"}),
    context({"type": "managed", "file_system": {"type": "unrestricted"}, "network": "enabled"}),
    context(managed(ROOT_READ, network="enabled")),
    context(managed(ROOT_READ, glob_scan_max_depth=1)),
    context(managed(ROOT_READ, glob_scan_max_depth=(1 << 64) - 1)),
    context(managed(ROOT_READ, glob_scan_max_depth=None)),
    context(managed(ROOT_READ, unknown=1)),
    context(managed({**ROOT_READ, "missing_path_behavior": "skip"})),
    context(managed({**ROOT_READ, "missing_path_behavior": None})),
    context(managed({**ROOT_READ, "unknown": 1})),
    context(managed(ROOT_READ, entry(at(HERE), "write"))),
    context(managed(ROOT_READ, entry(special("unknown", path="x")))),
    context(managed(ROOT_READ, entry(special("unknown", path="x", subpath="y"), "deny"))),
    context(managed(ROOT_READ, entry(special("tmpdir"), "write"))),
    context(managed(ROOT_READ, entry(special("slash_tmp"), "write"))),
    context(managed(ROOT_READ, entry(special("minimal")))),
    context(managed(ROOT_READ, entry(glob("/x/*"), "read"))),
    context(PROJECT, cwd=HERE),
    context(PROJECT, cwd=HERE, workspaceRoots=[HERE]),
    context(PROJECT, cwd=HERE, policyContext={}),
    context(PROJECT, policyContext={"cwd": HERE, "workspaceRoots": [HERE]}),
    context(managed(ROOT_READ, entry(special("project_roots", subpath=None), "write")), cwd=HERE),
    context(
        managed(ROOT_READ, entry(special("current_working_directory", subpath="x"), "write")),
        cwd=HERE,
    ),
    context(cwd=None),
    context(cwd="file:///no/such"),
    context(useLegacyLandlock=False),
    context(windowsSandboxProxySettingsMode="preserve"),
    context(windowsSandboxProxySettingsMode=None),
    context(sandboxOverride="noOverride"),
    context(sandboxOverride="bypassSandboxFirstAttempt"),
    context(userHomeDir=None),
    context(userHomeDir=FOREIGN),
    context(temporaryDirectories=None),
    context(temporaryDirectories=[HERE]),
    context(policyContext=None),
    context(policyContext={}),
    context(policyContext={"cwd": None, "workspaceRoots": []}),
    context(windowsSandboxPrivateDesktop=1),
    context(unknown=1),
    {**context(), "windowsSandboxLevel": "elevated"},
    {**context(), "windowsSandboxLevel": "restricted-token"},
]

# Refused with -32602 for both, and a part of the text.
REFUSED: list[tuple[Any, str]] = [
    ({}, "missing field `permissions`"),
    (1, ""),
    ("x", ""),
    (True, ""),
    ([], ""),
    (context({}), "missing field `type`"),
    ({"permissions": None, "windowsSandboxLevel": "disabled"}, ""),
    (context("disabled"), ""),
    (
        context({"type": "x"}),
        "unknown variant `x`, expected one of `managed`, `disabled`, `external`",
    ),
    (context({"type": 1}), ""),
    (context({"type": "managed"}), "missing field `file_system`"),
    (context({"type": "external"}), "missing field `network`"),
    (
        context({"type": "external", "network": "x"}),
        "unknown variant `x`, expected `restricted` or `enabled`",
    ),
    (
        context({"type": "managed", "file_system": {"type": "unrestricted"}}),
        "missing field `network`",
    ),
    (
        context({"type": "managed", "file_system": {}, "network": "enabled"}),
        "missing field `type`",
    ),
    (
        context({"type": "managed", "file_system": {"type": "x"}, "network": "enabled"}),
        "unknown variant `x`, expected `restricted` or `unrestricted`",
    ),
    (
        context({"type": "managed", "file_system": {"type": "restricted"}, "network": "enabled"}),
        "missing field `entries`",
    ),
    (context(managed(1)), ""),
    (context(managed({})), "missing field `path`"),
    (context(managed({"path": at(HERE)})), "missing field `access`"),
    (
        context(managed(entry(at(HERE), "Read"))),
        "unknown variant `Read`, expected one of `read`, `write`, `deny`, `none`",
    ),
    (context(managed(entry(at(HERE), None))), ""),
    (context(managed(entry({}))), "missing field `type`"),
    (
        context(managed(entry({"type": "x"}))),
        "unknown variant `x`, expected one of `path`, `glob_pattern`, `special`",
    ),
    (context(managed(entry({"type": "path"}))), "missing field `path`"),
    (context(managed(entry(at(1)))), ""),
    (context(managed(entry(at("")))), "invalid URI: relative URL without a base"),
    (context(managed(entry(at("tmp")))), "invalid URI: relative URL without a base"),
    (context(managed(entry(at("http://x/")))), "unsupported path URI scheme `http`"),
    (context(managed(entry(at("file:///a?b")))), "query parameters are not allowed"),
    (context(managed(entry({"type": "glob_pattern"}))), "missing field `pattern`"),
    (context(managed(entry(glob(1)))), ""),
    (context(managed(entry({"type": "special"}))), "missing field `value`"),
    (context(managed(entry({"type": "special", "value": {}}))), "missing field `kind`"),
    (context(managed(entry({"type": "special", "value": "root"}))), ""),
    (
        context(managed(entry(special("x")))),
        "unknown variant `x`, expected one of `root`, `minimal`, `current_working_directory`, "
        "`project_roots`, `tmpdir`, `slash_tmp`, `unknown`",
    ),
    (context(managed(entry(special("unknown")))), "missing field `path`"),
    (context(managed(entry(special("project_roots", subpath=1)))), ""),
    *((context(managed(ROOT_READ, glob_scan_max_depth=n)), "") for n in (0, -1, 1.0, "1", 1 << 64)),
    (
        context(managed({**ROOT_READ, "missing_path_behavior": "x"})),
        "unknown variant `x`, expected `skip`",
    ),
    (context(cwd=1), ""),
    (context(cwd="tmp"), "invalid URI: relative URL without a base"),
    (context(workspaceRoots=None), ""),
    (context(workspaceRoots=[1]), ""),
    (context(useLegacyLandlock=None), ""),
    (context(useLegacyLandlock=1), ""),
    (
        context(windowsSandboxProxySettingsMode="x"),
        "unknown variant `x`, expected `reconcile` or `preserve`",
    ),
    (context(sandboxOverride="x"), "unknown variant `x`, expected one of `noOverride`, "),
    (context(sandboxOverride=None), ""),
    (context(userHomeDir="x"), "invalid URI: relative URL without a base"),
    (context(temporaryDirectories=[1]), ""),
    (context(policyContext=1), ""),
    (context(policyContext={"cwd": 1}), ""),
    (context(policyContext={"workspaceRoots": None}), ""),
    (
        {**context(), "windowsSandboxLevel": "x"},
        "unknown variant `x`, expected one of `disabled`, `restricted-token`, `elevated`, `mxc`",
    ),
    ({**context(), "windowsSandboxLevel": None}, ""),
]

# What only resolving them tells: the codes of a file request that changes something, of one that
# only looks, and of a start; None is no error of the shape.
JUDGED: list[tuple[Any, int | None, int | None, int | None]] = [
    (context(PROJECT), -32602, -32602, None),
    (context(PROJECT, workspaceRoots=[HERE]), -32602, -32602, None),
    (context(PROJECT, policyContext={}), -32602, -32602, None),
    (context(managed(ROOT_READ, entry(glob("x"), "read"))), -32602, -32602, None),
    (context(managed(ROOT_READ, entry(at(FOREIGN)))), -32600, -32600, -32602),
    (context(managed(ROOT_READ, entry(at("file:///C:/x"), "deny"))), -32600, -32600, -32602),
    (context(cwd=FOREIGN), -32600, None, -32602),
    (context(workspaceRoots=[FOREIGN]), -32600, None, -32602),
    (context(DISABLED, cwd=FOREIGN), None, None, -32602),
    (context(DISABLED, workspaceRoots=[FOREIGN]), None, None, -32602),
    (context(managed(entry(special("root"), "write")), cwd=FOREIGN), None, None, -32602),
    (context(cwd=HERE, policyContext={"cwd": FOREIGN}), -32600, None, -32602),
    ({**context(), "windowsSandboxLevel": "mxc"}, -32600, None, -32602),
    ({**context(DISABLED), "windowsSandboxLevel": "mxc"}, None, None, -32602),
]
