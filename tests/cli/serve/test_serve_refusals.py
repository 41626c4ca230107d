"""Command lines of the server that are refused, in the words of the reference."""

from __future__ import annotations

import pytest

from tests.cli.serve.conftest import (
    FLAGS,
    FORWARD_USAGE,
    REMOTE,
    SINGLE_VALUES,
    USAGE,
)
from tests.requirements import requirement

# Values from a list.


@requirement("cli:possible-values")
@pytest.mark.parametrize(
    ("option", "choices"),
    [
        ("--ws-auth <MODE>", "capability-token, signed-bearer-token"),
        ("--remote-transport <REMOTE_TRANSPORT>", "noise, direct"),
        ("--log-level <LEVEL>", "error, warning, info, debug"),
        ("--log-format <FORMAT>", "text, json"),
    ],
)
def test_a_value_that_is_not_listed_is_refused_with_the_list(refusal, option, choices):
    name = option.split()[0]
    listed = f"\n  [possible values: {choices}]"
    required = f"a value is required for '{option}' but none was supplied{listed}"
    assert refusal(name, "none") == [f"invalid value 'none' for '{option}'{listed}"]
    assert refusal(name, "") == [required]
    assert refusal(name) == [required]


@requirement("cli:pid-namespace")
@pytest.mark.parametrize("value", ["x", "", "Isolate"])
def test_a_pid_namespace_is_isolate_or_inherit(refusal, value):
    assert refusal("--linux-sandbox-pid-namespace", value) == [
        f"invalid value '{value}' for '--linux-sandbox-pid-namespace <MODE>': "
        "expected 'isolate' or 'inherit'"
    ]


@requirement("cli:empty-path")
@pytest.mark.parametrize("name", ["--ws-token-file", "--ws-shared-secret-file"])
def test_an_empty_path_is_no_value(refusal, name):
    assert refusal(name, "") == [f"a value is required for '{name} <PATH>' but none was supplied"]


# Forms.


@requirement("cli:once")
@pytest.mark.parametrize("option", SINGLE_VALUES)
def test_an_option_with_a_value_is_given_once(refusal, option):
    words = [option.split()[0], SINGLE_VALUES[option]]
    told = f"the argument '{option}' cannot be used multiple times"
    assert refusal(*words, *words) == [told, USAGE]
    assert refusal(*words, f"{words[0]}={words[1]}") == [told, USAGE]


@requirement("cli:once")
@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_is_given_once(refusal, flag):
    assert refusal(flag, flag) == [
        f"the argument '{flag}' cannot be used multiple times",
        USAGE,
    ]


@requirement("cli:flag-value")
def test_a_flag_takes_no_value(refusal):
    assert refusal("--strict-config=1") == [
        "unexpected value '1' for '--strict-config' found; no more were expected",
        USAGE,
    ]


@requirement("cli:value-required")
@pytest.mark.parametrize("rest", [[], ["--"], ["--strict-config"], ["--name=x"], ["-h"]])
def test_an_option_without_its_value_is_refused(refusal, rest):
    assert refusal("--listen", *rest) == [
        "a value is required for '--listen <URL>' but none was supplied"
    ]


def test_a_setting_without_its_value_is_named_by_its_long_name(refusal):
    assert refusal("-c") == ["a value is required for '--config <key=value>' but none was supplied"]


@requirement("cli:unexpected-argument")
@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--bogus"], "--bogus"),
        (["--bogus=1"], "--bogus"),
        (["--bogus", "-h"], "--bogus"),
        (["-x"], "-x"),
        (["-xyz"], "-x"),
        (["--=x"], "--"),
        (["--connect", "x"], "--connect"),
        (["--concurrent-requests", "-1"], "-1"),
        (["--listen", "-x"], "-x"),
        (["--listen", "--bogus"], "--bogus"),
        (["--concurrent-requests", "x", "--bogus"], "--bogus"),
    ],
)
def test_an_unknown_option_is_refused_wherever_it_stands(refusal, words, name):
    assert refusal(*words) == [f"unexpected argument '{name}' found", USAGE]


@requirement("cli:no-abbreviations")
@pytest.mark.parametrize("word", ["--lis", "--liste", "--listens"])
def test_a_name_is_not_completed_but_suggested(refusal, word):
    assert refusal(word, "stdio") == [
        f"unexpected argument '{word}' found",
        "  tip: a similar argument exists: '--listen'",
        USAGE,
    ]


@requirement("cli:unrecognized-subcommand")
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["foo"], "foo"),
        (["--", "foo"], "foo"),
        (["--", "--listen"], "--listen"),
        (["--strict-config", "foo", "--bogus"], "foo"),
        (["stdio", "-h"], "stdio"),
        (["", "x"], ""),
        (["-"], "-"),
        (["help", "bogus"], "bogus"),
    ],
)
def test_a_stray_word_is_an_unrecognized_subcommand(refusal, words, named):
    assert refusal(*words) == [f"unrecognized subcommand '{named}'", USAGE]


def test_a_mistyped_subcommand_is_suggested(refusal):
    assert refusal("forwar")[1] == "  tip: a similar subcommand exists: 'forward'"


def test_run_after_options_is_told_its_place(refusal):
    assert refusal("--log-level", "info", "run")[1] == "  tip: 'run' comes before all options"


# Combinations.


@requirement("cli:listen-or-remote")
def test_listen_and_remote_exclude_each_other(refusal):
    listen, remote = "--listen <URL>", "--remote <URL>"
    assert refusal("--listen", "stdio", *REMOTE) == [
        f"the argument '{listen}' cannot be used with '{remote}'",
        USAGE,
    ]
    assert refusal("--remote", "u", "--listen", "stdio") == [
        f"the argument '{remote}' cannot be used with '{listen}'",
        USAGE,
    ]


@requirement("cli:one-identity")
@pytest.mark.parametrize("first", FLAGS[3:6])
@pytest.mark.parametrize("second", FLAGS[3:6])
def test_the_ways_to_register_exclude_one_another(refusal, first, second):
    if first != second:
        told = f"the argument '{first}' cannot be used with '{second}'"
        assert refusal(*REMOTE, first, second) == [told, USAGE]
        assert refusal("forward", *REMOTE, first, second) == [told, FORWARD_USAGE]


@requirement("cli:insecure-no-auth")
def test_authentication_cannot_be_both_asked_for_and_waived(refusal):
    told = refusal("--ws-auth", "capability-token", "--insecure-no-auth")
    assert told[0] == "the argument '--ws-auth <MODE>' cannot be used with '--insecure-no-auth'"


@requirement("cli:remote-required")
@pytest.mark.parametrize(
    ("words", "missing", "usage"),
    [
        (["--remote", "u"], ["--environment-id <ID>"], "--remote <URL>"),
        (["--exit-on-stdin-close"], None, "--exit-on-stdin-close"),
        (["--executor-credential-stdin"], None, "--executor-credential-stdin"),
        (["--use-agent-identity-auth"], None, "--use-agent-identity-auth"),
        (["--aws-sigv4"], None, "--aws-sigv4"),
        (["--remote-transport", "noise"], None, "--remote-transport <REMOTE_TRANSPORT>"),
        (
            ["--listen", "stdio", "--exit-on-stdin-close"],
            None,
            "--listen <URL> --exit-on-stdin-close",
        ),
    ],
)
def test_an_option_of_remote_mode_names_what_it_lacks(refusal, words, missing, usage):
    missing = missing or ["--environment-id <ID>", "--remote <URL>"]
    assert refusal(*words) == [
        "\n  ".join(["the following required arguments were not provided:", *missing]),
        f"Usage: exec-server {' '.join(missing)} {usage}",
    ]


@requirement("cli:aws-required")
@pytest.mark.parametrize("option", [option for option in SINGLE_VALUES if "--aws" in option])
def test_details_of_aws_need_its_signature(refusal, option):
    name = option.split()[0]
    needed = ["--remote <URL>", "--environment-id <ID>", "--aws-sigv4"]
    assert refusal(name, "x") == [
        "\n  ".join(["the following required arguments were not provided:", *needed]),
        f"Usage: exec-server {' '.join(needed)} {option}",
    ]
    assert refusal(*REMOTE, name, "x")[0].splitlines()[1:] == ["  --aws-sigv4"]


@requirement("cli:forward-required")
def test_forward_needs_both_ends(refusal):
    assert refusal("forward", "--name", "n") == [
        "the following required arguments were not provided:\n"
        "  --remote <URL>\n  --environment-id <ID>\n  --connect <URL>",
        "Usage: exec-server forward --remote <URL> --environment-id <ID> --connect <URL> "
        "--name <NAME>",
    ]
    assert refusal(*REMOTE, "forward", "--connect", "x")[0].splitlines()[1:] == [
        "  --remote <URL>",
        "  --environment-id <ID>",
    ]


@requirement("cli:forward-own-options")
@pytest.mark.parametrize(("words", "name"), [(["--listen", "stdio"], "--listen"), (["foo"], "foo")])
def test_forward_has_no_options_of_a_listener(refusal, words, name):
    assert refusal("forward", *REMOTE, *words) == [
        f"unexpected argument '{name}' found",
        FORWARD_USAGE,
    ]
