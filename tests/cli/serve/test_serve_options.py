"""The command line of the server."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.cli.parser import Parser, positive_count
from exec_server.cli.serve.serve_options import RemoteOptions, ServeOptions, parse_serve
from exec_server.cli.serve.serve_parser import serve_parser
from exec_server.limits import DEFAULT_LIMITS
from exec_server.server.authentication import AuthOptions
from tests.cli.serve.conftest import (
    EXIT_VARIABLE,
    FLAGS,
    FORWARD_USAGE,
    PROXY_VARIABLE,
    REMOTE,
    SINGLE_VALUES,
    USAGE,
    parse,
)
from tests.requirements import requirement

# Accepted command lines.


@requirement("cli:defaults")
def test_without_options_everything_has_its_default():
    options = parse()
    assert options == ServeOptions()
    assert options.listen == "ws://127.0.0.1:0"
    assert options.auth == AuthOptions()
    assert options.limits == DEFAULT_LIMITS
    assert options.limits.concurrent_requests == 1
    assert options.linux_sandbox_pid_namespace == "isolate"
    assert (options.log_level, options.log_format) == ("error", "text")


@requirement("cli:every-option")
def test_every_option_of_a_listener_is_carried():
    options = parse(
        *("--listen", "unix://s", "--ws-auth", "signed-bearer-token"),
        *("--ws-token-file", "t", "--ws-token-sha256", "h", "--ws-shared-secret-file", "s"),
        *("--ws-issuer", "i", "--ws-audience", "a", "--ws-max-clock-skew-seconds", "7"),
        *("-c", "a=1", "--enable", "f", "--disable", "g", "--strict-config"),
        *("--linux-sandbox-pid-namespace", "inherit", "--proxy-private-ips-via-upstream"),
        *("--log-level", "debug", "--log-format", "json"),
    )
    assert options == ServeOptions(
        listen="unix://s",
        auth=AuthOptions(
            mode="signed-bearer-token",
            token_file="t",
            token_sha256="h",
            shared_secret_file="s",
            issuer="i",
            audience="a",
            max_clock_skew_seconds=7,
        ),
        config=("a=1",),
        enable=("f",),
        disable=("g",),
        strict_config=True,
        linux_sandbox_pid_namespace="inherit",
        proxy_private_ips_via_upstream=True,
        log_level="debug",
        log_format="json",
    )


@requirement("cli:limits")
def test_limits_can_be_set():
    limits = parse(
        *("--concurrent-requests", "3", "--max-concurrent-requests", "5", "--retain-bytes", "7"),
        *("--detached-session-seconds", "0", "--closed-process-seconds", "1.5"),
        *("--max-detached-session-seconds", "9"),
    ).limits
    assert limits.max_detached_session_seconds == 9
    assert limits.concurrent_requests == 3
    assert limits.max_concurrent_requests == 5
    assert limits.retained_bytes == 7
    assert limits.detached_session_seconds == 0
    assert limits.closed_process_seconds == 1.5


@requirement("cli:max-concurrent-at-least-concurrent")
def test_a_client_may_ask_for_what_it_has_anyway():
    assert parse("--concurrent-requests", "100").limits.max_concurrent_requests == 100


@requirement("cli:insecure-no-auth")
def test_serving_others_without_authentication_is_said_explicitly():
    assert parse().insecure_no_auth is False
    assert parse("--insecure-no-auth").insecure_no_auth is True


@requirement("cli:config-repeats")
@pytest.mark.parametrize(
    "words", [("-c", "a=1"), ("-ca=1",), ("-c=a=1",), ("--config=a=1",), ("--config", "a=1")]
)
def test_a_setting_has_several_spellings_and_may_be_repeated(words):
    assert parse("-c", "", *words, "-c", "not toml").config == ("", "a=1", "not toml")


def test_parsing_twice_starts_anew():
    parser = serve_parser()
    for _ in range(2):
        assert parser.parse_options(["-c", "a"], {}).values.config == ["a"]


@requirement("cli:value-joined-or-apart")
@pytest.mark.parametrize("option", SINGLE_VALUES)
def test_a_value_is_joined_or_apart(option):
    name, value = option.split()[0], SINGLE_VALUES[option]
    joined = serve_parser().parse_options([f"{name}={value}"], {})
    apart = serve_parser().parse_options([name, value], {})
    assert joined == apart
    assert joined.values != serve_parser().parse_options([], {}).values


@requirement("cli:listen-judged-later")
@pytest.mark.parametrize("value", ["", "-", " ", "bogus", "help"])
def test_any_word_can_be_a_listen_url_until_it_is_judged(value):
    assert parse("--listen", value).listen == value
    assert parse(f"--listen={value}", "--").listen == value


@requirement("cli:remote-ids-alone")
def test_an_environment_id_or_name_without_remote_is_accepted():
    options = parse("--environment-id", "", "--name", "n", "--listen", "stdio")
    assert options.remote == RemoteOptions(environment_id="", name="n")
    assert not options.remote.is_requested


@requirement("cli:remote-carried")
def test_remote_mode_is_carried_for_the_caller_to_judge():
    remote = parse(
        *(*REMOTE, "--name", "n", "--remote-transport", "direct", "--aws-sigv4"),
        *("--aws-profile", "p", "--aws-region", "r", "--exit-on-stdin-close"),
    ).remote
    assert remote == RemoteOptions(
        url="http://h",
        transport="direct",
        environment_id="e",
        name="n",
        aws_sigv4=True,
        aws_profile="p",
        aws_region="r",
        aws_service="execute-api",
        exit_on_stdin_close=True,
    )
    assert remote.is_requested


@requirement("cli:forward")
def test_forward_adds_its_options_to_those_before_it():
    options = parse(
        *("-c", "a", "--concurrent-requests", "2"),
        *("forward", *REMOTE, "--connect", "ws://h", "-c", "b", "--strict-config"),
    )
    assert options.remote.connect == "ws://h"
    assert options.remote.url == "http://h"
    assert options.remote.is_requested
    assert options.config == ("a", "b")
    assert options.strict_config
    assert options.limits.concurrent_requests == 2


# Numbers.


@requirement("cli:count")
@given(st.integers(1, 2**64 - 1), st.sampled_from(["", "+", "0", "+000"]))
def test_every_positive_number_of_64_bits_is_a_count(number, prefix):
    assert positive_count(f"{prefix}{number}") == number


@requirement("cli:count-errors")
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("0", "number would be zero for non-zero type"),
        ("+0", "number would be zero for non-zero type"),
        ("", "cannot parse integer from empty string"),
        ("abc", "invalid digit found in string"),
        ("-1", "invalid digit found in string"),
        ("+", "invalid digit found in string"),
        ("++1", "invalid digit found in string"),
        (" 4", "invalid digit found in string"),
        ("1_0", "invalid digit found in string"),
        ("1.0", "invalid digit found in string"),
        ("٣", "invalid digit found in string"),
        ("18446744073709551616", "number too large to fit in target type"),
        ("9" * 5000, "number too large to fit in target type"),
    ],
)
@pytest.mark.parametrize(
    "option",
    [
        "--concurrent-requests <COUNT>",
        "--max-concurrent-requests <COUNT>",
        "--retain-bytes <BYTES>",
    ],
)
def test_what_is_no_positive_count_is_refused_with_the_reason(refusal, option, value, why):
    told = refusal(f"{option.split()[0]}={value}")
    assert told == [f"invalid value '{value}' for '{option}': {why}"]


@requirement("cli:skew")
def test_the_clock_skew_may_be_zero_and_is_unsigned(refusal):
    name = "--ws-max-clock-skew-seconds"
    assert parse(name, "0").auth.max_clock_skew_seconds == 0
    assert refusal(f"{name}=-1") == [
        f"invalid value '-1' for '{name} <SECONDS>': invalid digit found in string"
    ]


@requirement("cli:seconds")
@pytest.mark.parametrize("value", ["", "x", ".", "-1", "1e3", "nan", "inf", "1_0", " 1", "9" * 99])
@pytest.mark.parametrize("name", ["--detached-session-seconds", "--closed-process-seconds"])
def test_seconds_are_a_plain_number(refusal, name, value):
    assert refusal(f"{name}={value}") == [
        f"invalid value '{value}' for '{name} <SECONDS>': expected a number of seconds, 0 or more"
    ]


# Variables.


@requirement("cli:env-true-false")
def test_a_variable_can_set_its_flag():
    assert parse(**{PROXY_VARIABLE: "true"}).proxy_private_ips_via_upstream is True
    assert parse(**{PROXY_VARIABLE: "false"}).proxy_private_ips_via_upstream is False
    assert parse(*REMOTE, **{EXIT_VARIABLE: "true"}).remote.exit_on_stdin_close is True
    assert parse(**{EXIT_VARIABLE: "false"}) == ServeOptions()


@requirement("cli:env-flag-wins")
@pytest.mark.parametrize("value", ["false", "bad", ""])
def test_a_flag_makes_its_variable_irrelevant(value):
    words = ("--proxy-private-ips-via-upstream",)
    assert parse(*words, **{PROXY_VARIABLE: value}).proxy_private_ips_via_upstream is True


@requirement("cli:env-invalid")
@pytest.mark.parametrize(
    ("variable", "flag"),
    [
        (EXIT_VARIABLE, "--exit-on-stdin-close"),
        (PROXY_VARIABLE, "--proxy-private-ips-via-upstream"),
    ],
)
def test_a_variable_says_true_or_false_and_nothing_else(refusal, variable, flag):
    listed = "\n  [possible values: true, false]"
    for value in ("1", "TRUE", "yes", " true"):
        assert refusal(**{variable: value}) == [f"invalid value '{value}' for '{flag}'{listed}"]
    assert refusal(**{variable: ""}) == [
        f"a value is required for '{flag}' but none was supplied{listed}"
    ]


@requirement("cli:env-exit-needs-remote")
def test_the_variable_to_exit_needs_remote_mode_like_its_flag(refusal):
    told = refusal("--listen", "stdio", **{EXIT_VARIABLE: "true"})
    assert told == refusal("--listen", "stdio", "--exit-on-stdin-close")


@requirement("cli:log-level")
@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("error", "error"),
        ("warn", "warning"),
        ("WARN", "warning"),
        ("info", "info"),
        ("debug", "debug"),
        ("trace", "debug"),
        ("off", "error"),
        ("", "error"),
        ("module=debug", "error"),
        ("info,module=debug", "error"),
        ("nonsense", "error"),
    ],
)
def test_the_log_level_comes_from_rust_log_when_it_is_a_plain_level(value, level):
    assert parse(RUST_LOG=value).log_level == level
    assert parse("--log-level", "warning", RUST_LOG=value).log_level == "warning"


def test_the_process_environment_counts_unless_another_is_given(monkeypatch):
    for name in (EXIT_VARIABLE, PROXY_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUST_LOG", "debug")
    assert parse_serve([]).log_level == "debug"


# Help.


@requirement("cli:help")
@pytest.mark.parametrize(
    "words",
    [["--help"], ["-h"], ["help"], ["--listen", "x", "-h"], ["-h", "--bogus"], ["help", "run"]],
)
def test_help_is_printed_and_is_no_error(printed, words):
    text = printed(*words, **{EXIT_VARIABLE: "bad"} if words[0] == "-h" else {})
    assert text.startswith(USAGE)


@requirement("cli:help-teaches")
def test_help_names_every_option_and_shows_how_to_start(printed):
    text = printed("--help")
    for option in (*SINGLE_VALUES, *FLAGS, "--config", "--enable", "--disable", "--version"):
        assert option in text
    for example in (
        "exec-server run ws://127.0.0.1:41181 -- uname -a",
        "--ws-auth capability-token --ws-token-file token",
        "exec-server --listen unix://",
        "ssh HOST exec-server --listen stdio",
    ):
        assert example in text


@requirement("cli:help")
@pytest.mark.parametrize("words", [["forward", "--help"], ["help", "forward"]])
def test_forward_has_help_of_its_own(printed, words):
    assert printed(*words).startswith(FORWARD_USAGE)


@requirement("cli:version")
@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version_is_one_line(printed, word):
    name, _, number = printed(word).partition(" ")
    assert name == "exec-server"
    assert number.strip()


# The parser for others.


def test_errors_of_positional_words_have_the_same_layout(capsys):
    parser = Parser("exec-server run", usage="[OPTIONS] <URL> -- <CMD>...")
    parser.add_argument("url")
    with pytest.raises(SystemExit) as exit_:
        parser.parse_args([])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.split("\n\n")[1:] == [
        "Usage: exec-server run [OPTIONS] <URL> -- <CMD>...",
        "For more information, try '--help'.\n",
    ]


@given(
    st.lists(
        st.text(max_size=5) | st.sampled_from([*FLAGS, *(o.split()[0] for o in SINGLE_VALUES)]),
        max_size=5,
    )
)
def test_a_command_line_is_read_or_refused_and_nothing_else(argv):
    try:
        parse(*argv)
    except SystemExit as exit_:
        assert exit_.code in (0, 2, None)


@requirement("cli:cheap-import")
def test_reading_options_loads_little():
    program = (
        "import sys, exec_server.cli.serve.serve_options as o; o.parse_serve([], {});"
        "heavy = {'asyncio', 'socket', 'ssl', 'hashlib', 'json', 'logging', 'importlib.metadata'};"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    # Without `site`, whose start-up files may load anything.
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-S", "-c", program], check=True, env=environment)
