"""The table of commands, and everything that is derived from it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from exec_server.cli.commands import (
    GROUPS,
    REGISTRY_COMMANDS,
    command_names,
    commands_help,
    find_command,
    nearest_command,
)
from exec_server.cli.completion import completion_command
from exec_server.cli.main import main
from exec_server.cli.parser import parser_of
from exec_server.cli.serve.serve_options import parse_serve
from tests.requirements import requirement

ENTRIES = [entry for group in GROUPS for entry in group.entries]
SUBCOMMANDS = [(["registry", entry.name], entry) for entry in REGISTRY_COMMANDS]


def slips(name: str) -> set[str]:
    """The name with one letter left out, doubled, replaced, or swapped with the next one."""
    places = range(len(name))
    found = {name[:i] + name[i + 1 :] for i in places}
    found |= {name[: i + 1] + name[i:] for i in places}
    found |= {name[:i] + "#" + name[i + 1 :] for i in places}
    found |= {name[:i] + name[i + 1] + name[i] + name[i + 2 :] for i in places[:-1]}
    return found - set(command_names())


def refusal_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 2
    return capsys.readouterr().err


@requirement("cli/commands:one-table")
@pytest.mark.parametrize(("words", "entry"), [*(([e.name], e) for e in ENTRIES), *SUBCOMMANDS])
def test_every_command_has_a_help(words, entry, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    assert out.startswith(f"Usage: exec-server {' '.join(words)} ")


@requirement("cli/commands:one-table")
def test_the_help_lists_every_command_on_one_line_before_the_options(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    commands, _, options = capsys.readouterr().out.partition("\nlistening:\n")
    assert "--listen <URL>" in options
    for entry in ENTRIES:
        line = f"  {f'{entry.name} {entry.words}'.ljust(24)} {entry.summary}"
        assert line in commands.splitlines()
        assert len(line) <= 100
    assert commands_help() in commands


@requirement("cli/commands:one-table")
@pytest.mark.parametrize("name", command_names())
def test_help_explains_each_command(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["help", name])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"Usage: exec-server {name} ")


@requirement("cli/commands:one-table")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_offers_every_command(shell, capsys):
    main(["completion", shell])
    script = capsys.readouterr().out
    for name in command_names():
        assert name in script.split() or f"    {name})\n" in script


@requirement("cli/commands:one-table")
def test_completion_describes_a_command_as_the_help_does():
    for entry in ENTRIES:
        assert completion_command.complete_entry(entry).summary == entry.summary


@requirement("cli/commands:suggestions")
@pytest.mark.parametrize("name", command_names())
def test_a_typing_error_of_one_letter_gets_a_suggestion(name, capsys):
    for word in slips(name):
        assert "  tip: a similar subcommand exists: '" in refusal_of(capsys, word)
    assert f"similar subcommand exists: '{name}'" in refusal_of(capsys, name + name[-1])


@requirement("cli/commands:suggestions")
@pytest.mark.parametrize(
    ("word", "name"), [("docter", "doctor"), ("rnu", "run"), ("sehll", "shell")]
)
def test_the_command_that_was_meant_is_suggested(word, name, capsys):
    assert f"'{name}'" in refusal_of(capsys, word)
    assert f"'{name}'" in refusal_of(capsys, "help", word)


@requirement("cli/commands:suggestions")
@pytest.mark.parametrize("word", ["", "-", "foo", "bogus", "stdio", "x" * 5000])
def test_a_word_that_is_far_from_every_command_gets_none(word):
    assert nearest_command(word) is None


@requirement("cli/commands:suggestions")
@pytest.mark.parametrize(
    "name", [name for name in command_names() if name not in ("forward", "help")]
)
def test_a_command_after_options_is_told_its_place(name, capsys):
    with pytest.raises(SystemExit):
        parse_serve(["--log-level", "info", name], {})
    assert f"tip: '{name}' comes before all options" in capsys.readouterr().err


@requirement("cli/commands:one-table")
def test_the_help_of_forward_needs_nothing_else(capsys, monkeypatch):
    monkeypatch.setenv("CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE", "true")
    with pytest.raises(SystemExit) as ended:
        main(["forward", "--help"])
    assert ended.value.code == 0
    assert "--connect <URL>" in capsys.readouterr().out
    assert parser_of(find_command("forward")).prog == "exec-server forward"


@requirement("cli/commands:light")
@pytest.mark.parametrize("word", ["--version", "--help"])
def test_what_needs_no_command_imports_none(word):
    program = (
        "import sys; from exec_server.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, word], capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.splitlines()[-1].split())
    homes = {f"exec_server.cli.{entry.home.partition(':')[0]}" for entry in ENTRIES}
    assert homes & imported == set()
    assert "exec_server.client" not in imported
