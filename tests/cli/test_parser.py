"""Options and positional words in any order, and the number in an error's text."""

from __future__ import annotations

import errno

import pytest

from exec_server.cli.options import add_connection_options, server_token
from exec_server.cli.os_error_text import os_error_number, without_os_error
from exec_server.cli.parser import Parser
from tests.requirements import requirement


@pytest.fixture
def parser() -> Parser:
    made = Parser("exec-server test", usage="[OPTIONS] <ID>...")
    made.add_argument("ids", metavar="<ID>", nargs="+")
    add_connection_options(made)
    return made


@requirement("cli/words:any-order")
@pytest.mark.parametrize(
    ("words", "ids", "level"),
    [
        (["a", "b"], ["a", "b"], "error"),
        (["a", "--log-level", "info", "b"], ["a", "b"], "info"),
        (["--log-level", "info", "a"], ["a"], "info"),
        (["a", "--log-level=info"], ["a"], "info"),
        (["--", "-x", "a"], ["-x", "a"], "error"),
        (["--log-level", "info", "--", "-x"], ["-x"], "info"),
        (["a", "--", "--log-level"], ["a", "--log-level"], "error"),
    ],
)
def test_options_may_stand_anywhere_before_two_dashes(parser, words, ids, level):
    values = parser.parse_words(words)
    assert (values.ids, values.log_level) == (ids, level)


@requirement("cli/words:any-order")
@pytest.mark.parametrize("words", [[], ["--log-level", "info"], ["a", "--bogus"], ["--log", "a"]])
def test_words_that_are_missing_or_unknown_are_a_usage_error(parser, words, capsys):
    with pytest.raises(SystemExit) as ended:
        parser.parse_words(words)
    assert ended.value.code == 2
    assert "Usage: exec-server test [OPTIONS] <ID>..." in capsys.readouterr().err


@requirement("cli/words:one-token")
def test_a_token_is_given_in_one_way(parser, tmp_path, capsys):
    file = tmp_path / "token"
    file.write_text(" secret\n")
    assert server_token(parser, parser.parse_words(["a"])) is None
    assert server_token(parser, parser.parse_words(["a", "--token", "x"])) == "x"
    in_file = server_token(parser, parser.parse_words(["a", "--token-file", str(file)]))
    assert callable(in_file) and in_file() == "secret"
    # It is read for each connection.
    file.write_text("rotated\n")
    assert in_file() == "rotated"
    with pytest.raises(SystemExit) as ended:
        server_token(parser, parser.parse_words(["a", "--token", "x", "--token-file", "y"]))
    assert ended.value.code == 2
    assert "cannot be used with '--token-file <PATH>'" in capsys.readouterr().err


@requirement("cli/words:os-error")
@pytest.mark.parametrize(
    ("text", "number", "rest"),
    [
        ("No such file or directory (os error 2)", errno.ENOENT, "No such file or directory"),
        ("Permission denied (os error 13)", errno.EACCES, "Permission denied"),
        ("(os error 2)", errno.ENOENT, ""),
        ("a file called (os error 2) is a directory", None, None),
        ("(os error 2) (os error 20)", errno.ENOTDIR, "(os error 2)"),
        ("unknown process", None, None),
        (f"(os error {'9' * 5000})", None, None),
        ("", None, None),
    ],
)
def test_the_number_at_the_end_of_a_message_is_the_errors(text, number, rest):
    assert os_error_number(text) == number
    assert without_os_error(text) == (text if rest is None else rest)


@requirement("cli/help:width")
@pytest.mark.parametrize(("columns", "widest"), [("60", 60), ("200", 100), ("80", 80)])
def test_options_and_prose_have_the_width_of_the_terminal(columns, widest, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    parser = Parser(
        "prog",
        usage="[OPTIONS]",
        description="word " * 40,
        epilog="title:\n  kept      as it is\n" + "other " * 40,
    )
    parser.add_argument("--option", help="help " * 40)
    parser.print_help()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= widest
    for word in ("word", "help", "other"):
        longest = max(len(line) for line in lines if f"{word} {word}" in line)
        assert longest > widest - 8
    assert "  kept      as it is" in lines
