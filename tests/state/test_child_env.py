"""The environment of a child."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.protocol.env_policy import EnvPolicy
from exec_server.state.child_env import child_env
from tests.requirements import requirement

CORE = "PATH SHELL TMPDIR TEMP TMP HOME LANG LC_ALL LC_CTYPE LOGNAME USER".split()
SECRETS_OF_THE_SERVER = [
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
    "NODE_REPL_AUTH_TOKEN",
    "OPENAI_FEDERATION_RULE_ID",
    "OPENAI_IDENTITY_TOKEN_FILE",
    "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
]
EXIT_ON_STDIN_CLOSE = "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE"
TOOL_CALL_ID = "CODEX_TOOL_CALL_ID"
THREAD_ID = "CODEX_THREAD_ID"

WITHHELD = [*SECRETS_OF_THE_SERVER, EXIT_ON_STDIN_CLOSE, TOOL_CALL_ID]
NAMES = st.one_of(
    st.sampled_from([*CORE, *WITHHELD, "path", "MY_KEY", "aToken", "A", "AB", THREAD_ID]),
    st.text("AbK?*[].\n", max_size=4),
)
ENVS = st.dictionaries(NAMES, st.text("xyz", max_size=2), max_size=6)
PATTERNS = st.text("aAbK*?.[]\n", max_size=6)
POLICIES = st.builds(
    EnvPolicy,
    inherit=st.sampled_from(["all", "core", "none"]),
    ignore_default_excludes=st.booleans(),
    exclude=st.lists(PATTERNS, max_size=2),
    set=ENVS,
    include_only=st.lists(PATTERNS, max_size=2),
)


def policy(**changes: Any) -> EnvPolicy:
    members: dict[str, Any] = {
        "inherit": "none",
        "ignore_default_excludes": True,
        "exclude": [],
        "set": {},
        "include_only": [],
    }
    return EnvPolicy(**{**members, **changes})


def inherited(server_env: Mapping[str, str], **changes: Any) -> dict[str, str]:
    return child_env({}, policy=policy(**changes), server_env=server_env, tool_call_id=None)


def given_alone(env: Mapping[str, str], **changes: Any) -> dict[str, str]:
    return child_env(env, policy=None, server_env={}, **{"tool_call_id": None, **changes})


def matches(pattern: str, name: str) -> bool:
    """The rule for patterns in its simplest form."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(matches(pattern[1:], name[start:]) for start in range(len(name) + 1))
    return bool(name) and pattern[0] in ("?", name[0]) and matches(pattern[1:], name[1:])


@requirement("process/start.env:exact-without-policy")
def test_without_a_policy_nothing_is_inherited():
    env = child_env({"A": "1"}, policy=None, server_env={"PATH": "/bin"}, tool_call_id=None)
    assert env == {"A": "1"}


@requirement("process/start.env:over-policy")
def test_the_given_environment_covers_what_the_policy_gives_and_is_not_filtered():
    env = child_env(
        {"A": "given", "MY_TOKEN": "given"},
        policy=policy(
            inherit="all", ignore_default_excludes=False, exclude=["MY_*"], include_only=["A", "B"]
        ),
        server_env={"A": "server", "B": "server", "MY_TOKEN": "server"},
        tool_call_id=None,
    )
    assert env == {"A": "given", "B": "server", "MY_TOKEN": "given"}


@requirement("process/start.env:server-credentials-withheld")
@pytest.mark.parametrize("name", SECRETS_OF_THE_SERVER)
@pytest.mark.parametrize("spelled", [str.upper, str.lower, str.title])
def test_the_servers_credentials_reach_no_child_in_any_spelling(name, spelled):
    values = {spelled(name): "x"}
    assert given_alone(values) == {}
    assert inherited(values, inherit="all") == {}
    assert inherited({}, set=values) == {}


@requirement("process/start.env:launch-names-withheld")
@pytest.mark.parametrize("name", [EXIT_ON_STDIN_CLOSE, TOOL_CALL_ID])
def test_names_of_one_launch_are_withheld_as_spelled(name):
    values = {name: "x", name.lower(): "y"}
    assert given_alone(values) == {name.lower(): "y"}
    assert inherited(values, inherit="all") == {name.lower(): "y"}
    assert inherited({}, set=values) == {name.lower(): "y"}


@requirement("process/start.env:tool-call-id")
@pytest.mark.parametrize("tool_call_id", ["call-1", ""])
def test_the_tool_call_id_is_the_one_of_this_call_even_when_empty(tool_call_id):
    env = given_alone({TOOL_CALL_ID: "stale"}, tool_call_id=tool_call_id)
    assert env == {TOOL_CALL_ID: tool_call_id}


@requirement("process/start.env:thread-id")
def test_the_thread_id_is_the_one_of_this_call():
    assert given_alone({THREAD_ID: "stale"}, thread_id="t") == {THREAD_ID: "t"}


@requirement("process/start.env:thread-id-without-metadata")
def test_another_thread_id_passes_only_when_the_call_has_no_metadata():
    stale = {THREAD_ID: "stale"}
    assert given_alone(stale) == stale
    assert inherited(stale, inherit="all") == stale
    assert given_alone(stale, has_metadata=True) == {}
    assert given_alone(stale, tool_call_id="c") == {TOOL_CALL_ID: "c"}


@requirement("process/start.env:tty-shell")
@pytest.mark.parametrize(
    ("env", "shell"), [({}, "/bin/zsh"), ({"SHELL": "/x"}, "/x"), ({"SHELL": ""}, "")]
)
def test_a_terminal_adds_a_shell_where_none_is_named(env, shell):
    assert given_alone(env, tty_shell="/bin/zsh") == {"SHELL": shell}


@requirement("process/start.env:tty-shell")
def test_a_shell_that_the_policy_inherits_is_enough():
    env = child_env(
        {},
        policy=policy(inherit="core"),
        server_env={"SHELL": "/x"},
        tool_call_id=None,
        tty_shell="/bin/zsh",
    )
    assert env == {"SHELL": "/x"}


@requirement("process/start.env:nothing-added-on-pipes")
def test_without_a_terminal_nothing_is_added():
    assert given_alone({}) == {}


@requirement("process/start.env:odd-names")
def test_odd_names_pass():
    odd = {"": "1", "A=B": "2", "A\nB": "3", "é": "4"}
    assert given_alone(odd) == odd
    assert inherited({}, set=odd) == odd


@requirement("process/start.envPolicy:members-required")
@pytest.mark.parametrize(
    "missing", ["inherit", "ignoreDefaultExcludes", "exclude", "set", "includeOnly"]
)
def test_a_policy_has_all_its_members(missing):
    members = {
        "inherit": "all",
        "ignoreDefaultExcludes": True,
        "exclude": [],
        "set": {},
        "includeOnly": [],
    }
    assert msgspec.convert(members, EnvPolicy) == policy(inherit="all")
    del members[missing]
    with pytest.raises(msgspec.ValidationError, match=missing):
        msgspec.convert(members, EnvPolicy)


@requirement("process/start.envPolicy:inherit-values")
@pytest.mark.parametrize("inherit", ["All", "", None, "some"])
def test_inherit_knows_three_words(inherit):
    members = {**msgspec.to_builtins(policy()), "inherit": inherit}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(members, EnvPolicy)


@requirement("process/start.envPolicy:inherit-all")
def test_all_inherits_everything():
    assert inherited({"A": "1", "b": "2"}, inherit="all") == {"A": "1", "b": "2"}


@requirement("process/start.envPolicy:inherit-none")
def test_none_inherits_nothing():
    assert inherited({"A": "1", "PATH": "2"}, inherit="none") == {}


@requirement("process/start.envPolicy:inherit-core")
def test_core_inherits_eleven_names_in_the_spelling_they_have():
    core = {name: name for name in CORE} | {"path": "lower", "Lang": "mixed"}
    assert inherited({**core, "PWD": "x", "TERM": "x"}, inherit="core") == core


@requirement("process/start.envPolicy:default-excludes")
def test_names_that_look_like_credentials_are_not_inherited_unless_asked_for():
    server_env = {"MY_KEY": "1", "Secretive": "2", "aToken": "3", "MONKEY": "4", "A": "5"}
    kept = inherited(server_env, inherit="all", ignore_default_excludes=False)
    assert kept == {"A": "5"}
    assert inherited(server_env, inherit="all", ignore_default_excludes=True) == server_env


@requirement("process/start.envPolicy:exclude")
def test_excluded_names_are_not_inherited():
    server_env = {"AWS_REGION": "1", "aws_zone": "2", "A": "3", "XAWS_": "4"}
    assert inherited(server_env, inherit="all", exclude=["AWS_*", "a"]) == {"XAWS_": "4"}


@requirement("process/start.envPolicy:set")
def test_set_covers_what_is_inherited_and_survives_the_excludes():
    env = inherited(
        {"A": "server", "B": "server"},
        inherit="all",
        ignore_default_excludes=False,
        exclude=["A"],
        set={"A": "set", "B": "set", "TOKEN": "set"},
    )
    assert env == {"A": "set", "B": "set", "TOKEN": "set"}


@requirement("process/start.envPolicy:include-only")
def test_include_only_filters_what_is_set_as_well():
    env = inherited(
        {"A": "1", "AB": "2", "C": "3"},
        inherit="all",
        set={"AC": "4", "D": "5"},
        include_only=["a*", "zzz"],
    )
    assert env == {"A": "1", "AB": "2", "AC": "4"}


@requirement("process/start.envPolicy:include-only")
def test_an_empty_pattern_is_a_pattern():
    assert inherited({"A": "1"}, inherit="all", include_only=[""]) == {}
    assert inherited({"A": "1"}, inherit="all", exclude=[""]) == {"A": "1"}


@requirement("process/start.envPolicy:patterns")
@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("foo", {"FOO", "foo"}),
        ("fo", set()),
        ("F?O", {"FOO", "foo"}),
        ("*", {"FOO", "foo", "[A]", "A.B", "A\nB", "É"}),
        ("**", {"FOO", "foo", "[A]", "A.B", "A\nB", "É"}),
        ("?", {"É"}),
        ("[A]", {"[A]"}),
        ("a.b", {"A.B"}),
        ("a?b", {"A.B", "A\nB"}),
        ("f*?", {"FOO", "foo"}),
        ("f*??o*", set()),
        ("é", {"É"}),
    ],
)
def test_patterns_match_whole_names_without_case_and_know_two_signs(pattern, names):
    server_env = dict.fromkeys(["FOO", "foo", "[A]", "A.B", "A\nB", "É"], "")
    assert set(inherited(server_env, inherit="all", include_only=[pattern])) == names
    assert set(inherited(server_env, inherit="all", exclude=[pattern])) == set(server_env) - names


def test_a_pattern_of_many_stars_stays_cheap():
    name = "A" * 10_000
    assert inherited({name: ""}, inherit="all", include_only=["*a" * 200 + "b"]) == {}


@given(patterns=st.lists(PATTERNS, min_size=1, max_size=3), name=st.text("aAbB.[]\n", max_size=8))
def test_one_of_several_patterns_is_enough(patterns, name):
    is_matched = any(matches(pattern.lower(), name.lower()) for pattern in patterns)
    kept = inherited({name: ""}, inherit="all", include_only=patterns)
    left = inherited({name: ""}, inherit="all", exclude=patterns)
    assert (name in kept, name in left) == (is_matched, not is_matched)


@given(ENVS, POLICIES | st.none(), ENVS)
def test_a_child_never_sees_what_is_withheld(env, policy, server_env):
    child = child_env(env, policy=policy, server_env=server_env, tool_call_id=None)
    assert not {name.upper() for name in child} & set(SECRETS_OF_THE_SERVER)
    assert not {EXIT_ON_STDIN_CLOSE, TOOL_CALL_ID} & set(child)


@given(ENVS, POLICIES | st.none(), ENVS)
def test_every_value_comes_from_the_last_source_that_has_the_name(env, policy, server_env):
    child = child_env(env, policy=policy, server_env=server_env, tool_call_id=None)
    sources = {**server_env, **policy.set, **env} if policy else env
    assert {name: sources[name] for name in child} == child
    assert {name for name in env if name.upper() not in WITHHELD} <= set(child)


@given(ENVS, POLICIES, ENVS)
def test_the_server_and_the_caller_keep_their_environments(env, policy, server_env):
    before = (dict(env), msgspec.to_builtins(policy), dict(server_env))
    child_env(env, policy=policy, server_env=server_env, tool_call_id="c", tty_shell="/bin/sh")
    assert (env, msgspec.to_builtins(policy), server_env) == before
