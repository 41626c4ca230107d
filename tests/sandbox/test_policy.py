"""Contexts and the policies they mean, and what a policy gives: all without a file system."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from exec_server.errors import RpcError
from exec_server.protocol.sandbox import decoded, read_only, workspace_write
from exec_server.sandbox.model import Access, Glob, Policy, Rule
from exec_server.sandbox.policy import (
    MINIMAL_READS,
    access,
    is_full_read,
    is_full_write,
    is_within,
    resolve,
)
from tests.requirements import requirement
from tests.support.sandbox_cases import (
    DISABLED,
    FOREIGN,
    JUDGED,
    ROOT_READ,
    at,
    context,
    entry,
    glob,
    managed,
    special,
)

READ, WRITE, DENY = Access.READ, Access.WRITE, Access.DENY

NAMES = st.sampled_from([b"a", b"b", b"ab"])
PATHS = st.lists(NAMES, max_size=4).map(lambda names: b"/" + b"/".join(names))
ENTRIES = st.lists(st.tuples(PATHS, st.sampled_from(["read", "write", "deny"])), max_size=6)


def for_process(wire: Any, **given: Any) -> Policy:
    return resolve(decoded(wire), for_process=True, **given)


def rules(*entries: Any, **members: Any) -> set[tuple[bytes, Access]]:
    given = {name: members.pop(name) for name in ("cwd_", "tmpdir") if name in members}
    policy = for_process(
        context(managed(*entries), **members), cwd=given.get("cwd_"), tmpdir=given.get("tmpdir")
    )
    return {(rule.path, rule.access) for rule in policy.rules}


def policy_of(entries: Any) -> Policy:
    return for_process(
        context(managed(*(entry(at(path.decode()), kind) for path, kind in entries)))
    )


# The model.


@given(ENTRIES, st.randoms())
@requirement("policy:order")
def test_the_order_of_entries_does_not_matter(entries, random):
    shuffled = list(entries)
    random.shuffle(shuffled)
    assert policy_of(shuffled) == policy_of([*entries, *entries])


@given(ENTRIES, PATHS)
@requirement("policy:deepest-wins")
def test_the_deepest_entry_decides_and_the_more_careful_at_equal_depth(entries, path):
    strength = ["read", "write", "deny"].index
    holding = [(given.count(b"/") if given != b"/" else 0, strength(kind))
               for given, kind in entries if is_within(path, given)]  # fmt: skip
    expected = None if not holding else Access(max(holding)[1])
    policy = policy_of(entries)
    assume(policy.is_managed)
    assert access(policy, path) == expected


@given(ENTRIES, PATHS, PATHS, st.sampled_from(["read", "write", "deny"]))
@requirement("policy:deepest-wins")
def test_an_entry_elsewhere_changes_nothing(entries, path, elsewhere, kind):
    assume(not is_within(path, elsewhere))
    before, after = policy_of(entries), policy_of([*entries, (elsewhere, kind)])
    if before.is_managed and after.is_managed:
        assert access(after, path) == access(before, path)


@given(ENTRIES, PATHS)
@requirement("policy:full")
def test_what_is_full_gives_it_everywhere(entries, path):
    policy = policy_of(entries)
    if is_full_write(policy):
        assert access(policy, path) is WRITE
    if is_full_read(policy):
        assert access(policy, path) in (READ, WRITE)


@requirement("policy:deepest-wins")
def test_a_name_that_only_begins_alike_is_not_below():
    policy = policy_of([(b"/a", "read")])
    assert access(policy, b"/a") is access(policy, b"/a/b") is READ
    assert access(policy, b"/ab") is None


@requirement("policy:full")
def test_full_read_and_full_write():
    root_write = entry(special("root"), "write")
    read = for_process(context(managed(ROOT_READ, entry(at("/w"), "write"))))
    assert (is_full_read(read), is_full_write(read)) == (True, False)
    hidden = for_process(context(managed(ROOT_READ, entry(at("/s"), "none"))))
    assert (is_full_read(hidden), is_full_write(hidden)) == (False, False)
    globbed = for_process(context(managed(root_write, entry(glob("/x/*"), "deny"))))
    assert (is_full_read(globbed), is_full_write(globbed)) == (False, False)
    narrowed = for_process(context(managed(root_write, entry(at("/r"), "read"))))
    assert (is_full_read(narrowed), is_full_write(narrowed)) == (True, False)
    closed = for_process(context(managed(ROOT_READ, entry(special("root"), "deny"))))
    assert (is_full_read(closed), is_full_write(closed)) == (False, False)


@pytest.mark.parametrize(
    ("permissions", "network"),
    [
        (DISABLED, "enabled"),
        ({"type": "external", "network": "restricted"}, "restricted"),
        (
            {"type": "managed", "file_system": {"type": "unrestricted"}, "network": "enabled"},
            "enabled",
        ),
        (managed(entry(special("root"), "write")), "restricted"),
        (managed(entry(special("root"), "write"), entry(at("/a"), "write")), "restricted"),
        (
            managed(entry(special("root"), "write"), entry(special("unknown", path="x"), "deny")),
            "restricted",
        ),
    ],
)
@requirement("policy:full")
def test_profiles_that_do_not_restrict_files_have_no_rules(permissions, network):
    policy = for_process(context(permissions))
    assert policy == Policy(is_managed=False, network=network)
    assert access(policy, b"/x") is WRITE
    assert is_full_read(policy)
    assert is_full_write(policy)


# Kinds of entries.


@requirement("policy:entry-kinds")
def test_special_entries():
    assert rules(entry(special("root"))) == {(b"/", READ)}
    assert rules(entry(special("slash_tmp"), "write")) == {(b"/tmp", WRITE)}
    assert rules(entry(special("minimal"))) == {(path, READ) for path in MINIMAL_READS}
    assert rules(entry(special("minimal"), "write"), entry(special("minimal"), "deny")) == set()
    assert rules(entry(special("unknown", path="/x"), "write")) == set()


@requirement("policy:entry-kinds")
def test_tmpdir_is_what_was_given():
    wanted = entry(special("tmpdir"), "write")
    assert rules(wanted, tmpdir=b"/t/../u/") == {(b"/u", WRITE)}
    for unusable in (None, b"", b"relative"):
        assert rules(wanted, tmpdir=unusable) == set()


@requirement("policy:entry-kinds")
def test_project_roots_are_the_roots_and_never_the_working_directory():
    wanted = entry(special("project_roots"), "write")
    roots = ["file:///w", "/v/"]
    assert rules(wanted, workspaceRoots=roots) == {(b"/w", WRITE), (b"/v", WRITE)}
    assert rules(wanted, cwd="file:///w", cwd_=b"/c") == set()
    old = entry(special("current_working_directory", subpath="s"), "write")
    assert rules(old, workspaceRoots=roots) == {(b"/w/s", WRITE), (b"/v/s", WRITE)}


@pytest.mark.parametrize("subpath", ["/etc", "..", "a/../../b", "a\0b"])
@requirement("policy:entry-kinds")
def test_a_subpath_that_leads_out_of_its_root_gives_nothing(subpath):
    for kind in ("read", "write"):
        wanted = entry(special("project_roots", subpath=subpath), kind)
        assert rules(wanted, workspaceRoots=["/w"]) == set()


@requirement("policy:entry-kinds")
def test_a_subpath_that_leads_out_of_its_root_is_denied_all_the_same():
    wanted = [entry(special("project_roots", subpath=path), "deny") for path in ("/etc", "../b")]
    assert rules(*wanted, workspaceRoots=["/w"]) == {(b"/etc", DENY), (b"/b", DENY)}


@requirement("policy:entry-kinds")
def test_a_subpath_is_normal():
    wanted = [entry(special("project_roots", subpath=path)) for path in ("./a//b/../c", "", ".")]
    assert rules(*wanted, workspaceRoots=["/w"]) == {(b"/w/a/c", READ), (b"/w", READ)}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("/x/*.env", [Glob("/x/*.env")]),
        ("/x/../y/./*", [Glob("/y/*")]),
        ("*.env", [Glob("/c[1]/*.env", 5)]),
        ("../*.env", [Glob("/*.env")]),
        ("../d/*.env", [Glob("/d/*.env")]),
        ("codex-project-roots://**/k", [Glob("/v/**/k", 2), Glob("/w/**/k", 2)]),
    ],
)
@requirement("policy:entry-kinds", "plan:globs")
def test_globs_are_anchored(pattern, expected):
    wire = context(
        managed(ROOT_READ, entry(glob(pattern), "deny"), glob_scan_max_depth=3),
        cwd="/c[1]",
        workspaceRoots=["/w", "/v"],
    )
    policy = for_process(wire)
    assert list(policy.globs) == expected
    assert policy.glob_depth == 3


@requirement("policy:entry-kinds")
def test_only_deny_globs_count():
    wanted = [entry(glob("/x/*"), kind) for kind in ("read", "write")]
    policy = for_process(context(managed(ROOT_READ, *wanted, glob_scan_max_depth=3)))
    assert policy == for_process(context())


@requirement("policy:entry-kinds")
def test_the_working_directory_of_a_process_is_an_anchor_of_last_resort():
    wire = context(managed(ROOT_READ, entry(glob("*"), "deny")))
    assert for_process(wire, cwd=b"/p").globs == (Glob("/p/*", 2),)
    assert for_process({**wire, "cwd": "/c"}, cwd=b"/p").globs == (Glob("/c/*", 2),)


@requirement("policy:policy-context")
def test_the_policy_context_replaces_both_anchors():
    dynamic = managed(ROOT_READ, entry(special("project_roots"), "write"), entry(glob("*"), "deny"))
    wire = context(dynamic, cwd="/c", workspaceRoots=["/w"])
    there = for_process({**wire, "policyContext": {"cwd": "/d", "workspaceRoots": ["/v"]}})
    assert access(there, b"/v") is WRITE
    assert access(there, b"/w") is READ
    assert there.globs == (Glob("/d/*", 2),)
    empty = for_process({**wire, "policyContext": {}}, cwd=b"/p")
    assert access(empty, b"/w") is READ
    assert empty.globs == (Glob("/p/*", 2),)


@requirement("sandbox:projection")
def test_the_roots_of_a_legacy_policy_are_the_working_directory():
    policy = {"sandboxPolicy": {"type": "workspace-write", "exclude_slash_tmp": True}}
    started = for_process(policy, cwd=b"/p")
    assert access(started, b"/p/x") is WRITE
    assert access(started, b"/p/.git") is READ
    assert access(for_process({**policy, "sandboxPolicyCwd": "/c"}, cwd=b"/p"), b"/p") is READ


@requirement("policy:fs-network")
def test_a_file_request_has_no_network():
    wanted = read_only(network=True)
    assert resolve(wanted, for_process=True).network == "enabled"
    assert resolve(wanted, for_process=False).network == "restricted"
    assert resolve(wanted, for_process=False) == resolve(read_only(), for_process=False)


@requirement("policy:entry-kinds")
def test_workspace_write():
    wanted = workspace_write(["/w"], writable_roots=["/x"])
    policy = resolve(wanted, for_process=True, tmpdir=b"/t")
    for path in (b"/w", b"/x/y", b"/tmp/z", b"/t"):
        assert access(policy, path) is WRITE
    for path in (b"/", b"/w/.git", b"/w/.codex/x", b"/w/.aws", b"/usr"):
        assert access(policy, path) is READ
    lifted = workspace_write(["/w"], writable_roots=["/x"], protect_metadata=False)
    policy = resolve(lifted, for_process=True)
    assert Rule(b"/w/.git", WRITE) in policy.rules
    assert Rule(b"/x/.git", WRITE) in policy.rules
    assert resolve(wanted, for_process=True).protects_metadata
    assert not policy.protects_metadata
    assert not resolve(lifted, for_process=False).protects_metadata


# Errors.


def code(wire: Any, **how: Any) -> int | None:
    try:
        resolve(decoded(wire), **how)
    except RpcError as exc:
        return exc.code
    return None


@pytest.mark.parametrize(("wire", "changing", "looking", "starting"), JUDGED)
@requirement("policy:validation")
def test_each_kind_of_request_has_its_own_code(wire, changing, looking, starting):
    assert code(wire, for_process=False) == changing
    assert code(wire, for_process=False, is_read=True) == looking
    assert code(wire, for_process=True, cwd=b"/p") == starting


@pytest.mark.parametrize(
    ("wire", "of_file", "of_process"),
    [
        (
            context(managed(ROOT_READ, entry(at(FOREIGN)))),
            "invalid sandbox permission path URI: 'file://elsewhere/x' is invalid on 'linux'",
            "invalid sandbox permission path URI: 'file://elsewhere/x' is invalid on 'linux'",
        ),
        (
            context(cwd=FOREIGN),
            "'file://elsewhere/x' is invalid on 'linux'",
            "sandbox cwd URI `file://elsewhere/x` is not valid on this exec-server host: "
            "'file://elsewhere/x' is invalid on 'linux'",
        ),
        (
            context(workspaceRoots=[FOREIGN]),
            "file system sandbox workspace root is not native to this exec-server host: "
            "'file://elsewhere/x' is invalid on 'linux'",
            "sandbox workspace root URI `file://elsewhere/x` is not valid on this exec-server "
            "host: 'file://elsewhere/x' is invalid on 'linux'",
        ),
    ],
)
@requirement("policy:validation")
def test_the_texts_are_the_references(wire, of_file, of_process):
    for for_process, text in ((False, of_file), (True, of_process)):
        with pytest.raises(RpcError) as refused:
            resolve(decoded(wire), for_process=for_process)
        assert refused.value.message == text


@requirement("policy:validation")
def test_a_lost_deny_is_never_ignored():
    """A foreign root would be denied: so no access counts as full, and nothing is let through."""
    denied = entry(special("project_roots"), "deny")
    for root in (ROOT_READ, entry(special("root"), "write")):
        wire = context(managed(root, denied), cwd="/c", workspaceRoots=[FOREIGN])
        assert code(wire, for_process=False, is_read=True) == -32600


@requirement("policy:validation")
def test_a_relative_glob_without_an_anchor_is_refused():
    wire = context(managed(ROOT_READ, entry(glob("*"), "deny")), cwd="/c", policyContext={})
    assert code(wire, for_process=False) == -32602


@requirement("policy:validation")
def test_a_context_that_is_too_long_to_remember_resolves_all_the_same():
    long = decoded(context(unknown="x" * 20_000))
    assert resolve(long, for_process=True) == resolve(decoded(context()), for_process=True)
    tmpdir = b"/" + b"t" * 5000
    wanted = decoded(context(managed(entry(special("tmpdir"), "write"))))
    assert resolve(wanted, for_process=True, tmpdir=tmpdir).rules == (Rule(tmpdir, WRITE),)
