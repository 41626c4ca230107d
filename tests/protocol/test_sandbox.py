"""The shapes of `sandbox`: every dialect, what decodes, what does not, and what is sent."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import InvalidParams
from exec_server.protocol import fs, permissions, process
from exec_server.protocol.method import Method
from exec_server.protocol.paths import PathUri
from exec_server.protocol.sandbox import (
    SandboxContext,
    as_context,
    decoded,
    decoded_policy,
    read_only,
    workspace_write,
)
from exec_server.rpc import boundary
from tests.requirements import requirement
from tests.support.sandbox_cases import ACCEPTED, REFUSED, ROOT_READ, context, managed

STARTED: dict[str, Any] = {"processId": "p", "argv": ["x"], "cwd": "/", "env": {}, "tty": False}


def profile(wire: Any) -> Any:
    """The intent of a context, as JSON."""
    encoded = msgspec.json.encode(decoded(wire).intent.permissions, enc_hook=lambda path: path.text)
    return msgspec.json.decode(encoded)


@pytest.mark.parametrize("wire", ACCEPTED)
@requirement("sandbox:grammar")
def test_what_the_reference_accepts_decodes(wire):
    assert decoded(wire).wire == wire


@pytest.mark.parametrize(("wire", "text"), REFUSED)
@requirement("sandbox:grammar", "sandbox:never-ignored")
def test_what_breaks_the_grammar_is_named(wire, text):
    with pytest.raises(InvalidParams) as refused:
        decoded(wire)
    assert text in str(refused.value)


@requirement("sandbox:unknown-members")
def test_unknown_members_are_ignored_everywhere():
    path = {"type": "special", "value": {"kind": "root", "new": 1}, "new": 1}
    entry = {"path": path, "access": "read", "new": 1}
    files = {"type": "restricted", "entries": [entry], "new": 1}
    wire = {
        "permissions": {"type": "managed", "file_system": files, "network": "enabled", "new": 1},
        "windowsSandboxLevel": "disabled",
        "policyContext": {"new": 1},
        "new": [1],
    }
    assert profile(wire) == managed(ROOT_READ, network="enabled")


@requirement("sandbox:native-paths")
def test_native_paths_are_as_good_as_uris():
    def paths(root: str) -> SandboxContext:
        entry = {"path": {"type": "path", "path": f"{root}/a b"}, "access": "read"}
        return decoded(context(managed(entry), cwd=f"{root}/c", workspaceRoots=[f"{root}/w"]))

    native, uris = paths("").intent, paths("file://").intent
    assert native.cwd is not None
    assert uris.cwd is not None
    assert native.cwd.native == uris.cwd.native == b"/c"
    assert isinstance(native.permissions, permissions.Managed)
    assert isinstance(native.permissions.file_system, permissions.Restricted)
    place = native.permissions.file_system.entries[0].path
    assert isinstance(place, permissions.AtPath)
    assert place.path.native == b"/a b"


@requirement("sandbox:legacy-shapes")
def test_the_windows_level_is_optional():
    assert decoded({"permissions": {"type": "disabled"}}).intent.windows_sandbox_level == "disabled"


def special(kind: str, access: str, **members: Any) -> dict[str, Any]:
    return {"path": {"type": "special", "value": {"kind": kind, **members}}, "access": access}


def path_entry(path: str, access: str) -> dict[str, Any]:
    return {"path": {"type": "path", "path": path}, "access": access}


def protected(name: str) -> dict[str, Any]:
    return {**special("project_roots", "read", subpath=name), "missing_path_behavior": "skip"}


PROTECTED = [protected(name) for name in (".git", ".agents", ".codex", ".aws")]
SOME_READS = {"type": "restricted", "readable_roots": ["/r"]}
TMP = [special("slash_tmp", "write"), special("tmpdir", "write")]
PROJECT = special("project_roots", "write")

PROJECTIONS: list[tuple[Any, Any]] = [
    ({"type": "danger-full-access"}, {"type": "disabled"}),
    ({"type": "external-sandbox"}, {"type": "external", "network": "restricted"}),
    (
        {"type": "external-sandbox", "network_access": "enabled"},
        {"type": "external", "network": "enabled"},
    ),
    ({"type": "read-only"}, managed(ROOT_READ)),
    ({"type": "read-only", "network_access": True}, managed(ROOT_READ, network="enabled")),
    ({"type": "read-only", "access": {"type": "full-access"}}, managed(ROOT_READ)),
    (
        {"type": "read-only", "access": SOME_READS},
        managed(
            special("project_roots", "read"), special("minimal", "read"), path_entry("/r", "read")
        ),
    ),
    (
        {"type": "read-only", "access": {**SOME_READS, "include_platform_defaults": False}},
        managed(special("project_roots", "read"), path_entry("/r", "read")),
    ),
    ({"type": "workspace-write"}, managed(ROOT_READ, PROJECT, *TMP, *PROTECTED)),
    (
        {
            "type": "workspace-write",
            "writable_roots": ["/x", "/y"],
            "network_access": True,
            "exclude_tmpdir_env_var": True,
        },
        managed(
            *(ROOT_READ, PROJECT, TMP[0], path_entry("/x", "write"), path_entry("/y", "write")),
            *PROTECTED,
            network="enabled",
        ),
    ),
    (
        {"type": "workspace-write", "exclude_slash_tmp": True, "read_only_access": SOME_READS},
        managed(
            *(special("project_roots", "read"), special("minimal", "read")),
            *(path_entry("/r", "read"), PROJECT, TMP[1], *PROTECTED),
        ),
    ),
]


@pytest.mark.parametrize(("policy", "expected"), PROJECTIONS)
@requirement("sandbox:projection", "sandbox:legacy-shapes")
def test_a_legacy_policy_is_projected(policy, expected):
    assert profile({"sandboxPolicy": policy}) == expected


@requirement("sandbox:legacy-shapes")
def test_the_root_of_a_legacy_policy_is_its_working_directory():
    policy = {"type": "workspace-write"}
    intent = decoded({"sandboxPolicy": policy, "sandboxPolicyCwd": "/w"}).intent
    assert intent.cwd == PathUri("/w")
    assert intent.workspace_roots is None
    assert intent.has_cwd
    assert not decoded({"sandboxPolicy": policy}).intent.has_cwd


@requirement("sandbox:legacy-shapes")
def test_a_legacy_file_policy_that_restricts_takes_the_place_of_the_entries():
    files = {"kind": "restricted", "entries": [path_entry("/s", "none")]}
    wire = {"sandboxPolicy": {"type": "read-only"}, "fileSystemSandboxPolicy": files}
    assert profile(wire) == managed(path_entry("/s", "none"))
    wire["sandboxPolicy"] = {"type": "danger-full-access"}
    assert profile(wire) == managed(path_entry("/s", "none"), network="enabled")
    wire = {"sandboxPolicy": {"type": "read-only"}, "fileSystemSandboxPolicy": {"kind": "x"}}
    with pytest.raises(InvalidParams):
        decoded(wire)


@pytest.mark.parametrize("kind", ["unrestricted", "external-sandbox"])
@requirement("sandbox:legacy-shapes")
def test_a_legacy_file_policy_never_widens(kind):
    wire = {"sandboxPolicy": {"type": "read-only"}, "fileSystemSandboxPolicy": {"kind": kind}}
    assert profile(wire) == managed(ROOT_READ)


CONFINED = [
    method
    for method in vars(fs).values()
    if isinstance(method, Method) and issubclass(method.params, fs.Confined)
]


@requirement("sandbox:never-ignored", "sandbox:legacy-shapes")
def test_every_request_with_a_sandbox_takes_that_of_the_first_revisions():
    old = {"sandboxPolicy": {"type": "read-only"}}
    assert len(CONFINED) == 16
    for shape in (method.params for method in CONFINED):
        names = {field.encode_name for field in msgspec.structs.fields(shape)}
        assert {"sandbox", "sandboxPolicy"} <= names
    params = boundary.decode_params(fs.GetMetadataParams, {"path": "/a", **old})
    assert params.sandbox == SandboxContext(old)
    assert params.sandbox_policy is None
    assert boundary.decode_params(process.StartParams, {**STARTED, **old}).sandbox == params.sandbox


@pytest.mark.parametrize("wire", [1, "x", {}, {"type": "x"}, {"type": "read-only", "access": 1}])
@requirement("sandbox:never-ignored")
def test_a_sandbox_of_the_first_revisions_is_checked(wire):
    with pytest.raises(InvalidParams):
        boundary.decode_params(fs.GetMetadataParams, {"path": "/a", "sandboxPolicy": wire})
    with pytest.raises(InvalidParams):
        boundary.decode_params(process.StartParams, {**STARTED, "sandboxPolicy": wire})


@requirement("sandbox:grammar")
def test_equal_contexts_are_one_object_while_they_are_remembered():
    assert decoded(context()) is decoded(context())
    assert decoded(context(long="x" * 20_000)) is not decoded(context(long="x" * 20_000))
    assert decoded(context()) == SandboxContext(context())
    assert decoded(context()) != decoded(context(unknown=1))
    assert len({SandboxContext(context()), decoded(context())}) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
@requirement("sandbox:never-ignored")
def test_anything_else_is_refused_and_nothing_breaks(value):
    for wire in (value, {"permissions": value}, {"sandboxPolicy": value}, context(managed(value))):
        with pytest.raises(InvalidParams):
            decoded(wire)
    with pytest.raises(InvalidParams):
        decoded_policy(value)


@requirement("sandbox:constructors")
def test_read_only_is_the_reference_s_own():
    assert read_only().wire == context(managed(ROOT_READ))
    assert read_only(network=True).wire["permissions"]["network"] == "enabled"


@requirement("sandbox:constructors")
def test_workspace_write_is_the_legacy_policy_projected():
    made = workspace_write(["/w", b"/v"], writable_roots=[PurePosixPath("/x y")])
    policy = {"type": "workspace-write", "writable_roots": ["file:///x%20y"]}
    assert profile(made.wire) == profile({"sandboxPolicy": policy})
    assert made.wire["workspaceRoots"] == ["file:///w", "file:///v"]
    assert made.wire["cwd"] == "file:///w"


@requirement("sandbox:constructors")
def test_workspace_write_without_temporary_directories_and_with_metadata():
    made = workspace_write(["/w"], writable_roots=["/x"], exclude_tmp=True, protect_metadata=False)
    entries = made.wire["permissions"]["file_system"]["entries"]
    assert entries[:3] == [ROOT_READ, PROJECT, path_entry("file:///x", "write")]
    assert special("project_roots", "write", subpath=".git") in entries
    assert path_entry("file:///x/.aws", "write") in entries
    # The names are protected again inside of such a directory.
    assert special("project_roots", "write", subpath=".git/.git") in entries
    assert len(entries) == 3 + 2 * (4 + 4 * 4)
    assert decoded(made.wire) == made


@requirement("sandbox:constructors")
def test_a_relative_root_is_refused():
    with pytest.raises(ValueError, match=r"^not an absolute path: 'w'$"):
        workspace_write(["w"])


@requirement("sandbox:constructors")
def test_contexts_are_sent_as_they_are_and_dicts_unchecked():
    for sandbox in (read_only(), {"anything": 1}):
        params = fs.GetMetadataParams(PathUri("/a"), sandbox=as_context(sandbox))
        sent = msgspec.json.decode(boundary.encode(params))
        assert sent["sandbox"] == (sandbox if isinstance(sandbox, dict) else sandbox.wire)
        assert sent.keys() == {"path", "sandbox"}
    assert as_context(None) is None
