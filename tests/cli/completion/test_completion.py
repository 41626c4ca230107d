"""`exec-server completion`, in a real bash, and the help of every command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from exec_server.cli import exit_codes
from exec_server.cli.commands import GROUPS, CommandEntry, command_names, find_command
from exec_server.cli.completion import completion_command
from exec_server.cli.parser import parser_of
from exec_server.cli.process.saved_sessions import SessionStore
from tests.cli.process.test_detach import record
from tests.requirements import requirement
from tests.support.cli import finished
from tests.support.servers import ROOT

COMPLETE = """
source "$1"
shift
COMP_WORDS=( "$@" )
COMP_CWORD=$(( $# - 1 ))
compopt() { COMPOPT="$*"; }
_exec_server
printf '%s\\n' "${COMPREPLY[@]}" "$COMPOPT"
"""


def every_entry() -> list[CommandEntry]:
    return [entry for group in GROUPS for entry in group.entries]


@pytest.fixture
def complete(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The words that bash offers for the last of some words, and the option for its own ones."""
    program = tmp_path / "bin" / "exec-server"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m exec_server "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    script = tmp_path / "completion.bash"
    script.write_bytes(subprocess.check_output([program, "completion", "bash"]))

    def offered(*words: str) -> set[str]:
        done = subprocess.run(
            ["bash", "-c", COMPLETE, "bash", script, "exec-server", *words],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        assert done.stderr == ""
        return set(filter(None, done.stdout.split("\n")))

    return offered


@requirement("cli/completion:bash")
def test_bash_completes_commands_and_options(complete):
    assert complete("") == set(command_names())
    assert complete("sh") == {"shell"}
    assert complete("--ws-a") == {"--ws-auth", "--ws-audience"}
    assert complete("--ws-auth", "") == {"capability-token", "signed-bearer-token"}
    assert complete("run", "--t") == {"--tty", "--timeout", "--token", "--token-file"}
    assert complete("run", "-o", "") == {"text", "json"}
    assert complete("run", "--output", "j") == {"json"}
    assert complete("run", "--timeout", "") == set()
    assert complete("run", "--sandbox", "w") == {"workspace-write"}
    assert complete("sandbox", "--sandbox", "") == {"read-only", "workspace-write"}
    assert complete("kill", "-s", "K") == {"KILL"}
    assert complete("kill", "--signal", "TE") == {"TERM"}
    assert complete("env", "c") == {"check"}
    assert complete("completion", "") == {"bash", "zsh", "fish", "names", "ids"}


@requirement("cli/completion:bash")
def test_bash_leaves_files_and_far_commands_to_itself(complete):
    assert complete("run", "--token-file", "x") == {"-o default"}
    assert complete("run", "box", "--", "l") == {"-o default"}


@requirement("cli/completion:bash")
def test_bash_completes_what_only_the_moment_knows(complete, home):
    toml = '[[environments]]\nid = "box"\nurl = "ws://h:1"\n'
    (home / "codex" / "environments.toml").write_text(toml)
    for session_id in ("ab", "cd"):
        SessionStore().save(record(session_id))
    (home / "boxes").touch()
    assert complete("shell", "b") == {"box"}
    assert complete("ps", "") == {"box", "local"}
    assert complete("env", "check", "b") == {"box"}
    assert complete("attach", "") == {"ab", "cd", "box", "local"}
    assert complete("jobs", "prune", "b") == {"box"}
    assert complete("jobs", "p") == {"prune"}
    assert complete("stop", "b") == {"box"}
    assert complete("kill", "-s", "TERM", "ab", "c") == {"cd"}
    assert complete("cp", "b") == {"bin", "box", "boxes", "-o filenames"}


@requirement("cli/completion:bash")
def test_files_here_are_not_offered_for_paths_on_a_server(complete, home):
    (home / "xyz").touch()
    assert "xyz" in complete("ls", "x")
    # bash divides words at colons.
    for words in (["nosuch:x"], ["nosuch", ":", "x"], ["ws", ":", "//h", ":", "1", ":", "x"]):
        assert complete("ls", *words) == set()
        assert complete("cp", "file", *words) == set()


@requirement("cli/completion:bash")
def test_a_wrong_configuration_does_not_show_in_a_command_line(complete, home):
    (home / "codex" / "environments.toml").write_text("nope = 1")
    assert complete("shell", "") == set()


@requirement("cli/completion:parsers")
@pytest.mark.one_loop
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_every_shell_has_every_option(shell, tmp_path):
    script = (await finished("completion", shell)).stdout.decode()
    for entry in every_entry():
        assert entry.name in script
        for option in completion_command.complete_entry(entry).options:
            long = option.names[-1]
            assert f"-l {long[2:]} " in script if shell == "fish" else long in script


@requirement("cli/completion:parsers")
def test_the_parser_is_the_one_that_reads_the_words(capsys):
    parser = parser_of(find_command("kill"))
    assert parser.prog == "exec-server kill"
    assert capsys.readouterr().out == ""


@requirement("cli/help:teaches")
@pytest.mark.parametrize("name", command_names())
def test_every_command_has_a_help_that_teaches(name, capsys):
    with pytest.raises(SystemExit) as ended:
        find_command(name)(["--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert "examples:" in text and f"exec-server {name}" in text.partition("examples:")[2]
    assert all(len(line) <= 100 for line in text.splitlines())


@requirement("cli/help:teaches")
def test_the_page_about_the_prompt_shows_every_command():
    page = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in command_names() if f"`{name}`" not in page] == []
    for status in (exit_codes.TIMED_OUT, exit_codes.NOT_STARTED, exit_codes.NOT_FOUND):
        assert str(status) in page


@requirement("cli/help:teaches")
@pytest.mark.parametrize("name", ["run", "shell", "attach", "ps", "logs", "kill", "env"])
def test_exit_statuses_are_part_of_the_help(name, capsys):
    with pytest.raises(SystemExit):
        find_command(name)(["--help"])
    assert "exit status:" in capsys.readouterr().out
