"""`exec-server completion`, in a real bash, and the help of every command."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exec_server.cli import exit_codes
from exec_server.cli.commands import GROUPS, CommandEntry, command_names, find_command
from exec_server.cli.completion import completion_command
from exec_server.cli.parser import parser_of
from exec_server.cli.process.detached.saved_sessions import SessionStore
from tests.cli.process.test_detach import record
from tests.requirements import requirement
from tests.support.cli import finished
from tests.support.servers import ROOT, start_server

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
    # This machine may be busy.
    monkeypatch.setenv("EXEC_SERVER_COMPLETION_SECONDS", "30")
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


@requirement("cli/completion:paths")
def test_paths_on_a_server_are_offered_after_its_name(complete, home, tmp_path):
    there = tmp_path / "there"
    (there / "folder").mkdir(parents=True)
    (there / "a file").touch()
    (there / "fine").touch()
    (there / ".hidden").touch()
    with start_server() as server:
        toml = f'[[environments]]\nid = "box"\nurl = "{server.url}"\n'
        (home / "codex" / "environments.toml").write_text(toml)
        option = "-o nospace"
        # bash divides words at colons, and replaces what is after the last one.
        divided = server.url.replace(":", " : ").split()
        for words in (["box", ":"], [*divided, ":"], ["file", "box", ":"]):
            assert complete("cp", *words, f"{there}/f") == {
                f"{there}/folder/",
                f"{there}/fine ",
                option,
            }
        assert complete("ls", f"box:{there}/fo") == {f"{there}/folder/", option}
        assert complete("ls", "box", ":", f"{there}/") == {
            f"{there}/folder/",
            f"{there}/fine ",
            f"{there}/a\\ file ",
            option,
        }
        assert complete("ls", "box", ":", f"{there}/a\\ ") == {f"{there}/a\\ file ", option}
        assert complete("ls", "box", ":", f"{there}/.") == {f"{there}/.hidden ", option}
        assert complete("ls", "box", ":", f"{there}/none/") == set()


@requirement("cli/completion:paths")
@pytest.mark.one_loop
@pytest.mark.parametrize(
    "word",
    [
        "ws://127.0.0.1:1:/",
        "nosuch:/",
        "SILENT:/",
        "stdio:sh -c 'touch ran':/",
        "asking:/",
        "nonsense",
        "",
    ],
)
async def test_nothing_is_offered_and_nothing_said_if_there_is_no_answer(home, word):
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    toml = '[[environments]]\nid = "asking"\nprogram = "touch"\nargs = ["ran"]\n'
    (home / "codex" / "environments.toml").write_text(toml)
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        words = ["completion", "--paths", word.replace("SILENT", f"ws://127.0.0.1:{port}")]
        done = await finished(*words, cwd=home)
    assert (done.status, done.stdout, done.stderr) == (0, b"", "")
    # No program is started: it might ask for a password.
    assert not (home / "ran").exists()


ZSH = """
autoload -Uz compinit && compinit -u -d {dump}
source {script}
compadd() {{ print -r -- "$@"; }}
words=(exec-server ls "$1"); CURRENT=3; PREFIX=$1
_exec_server
"""


@requirement("cli/completion:paths")
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_offers_them_too(complete, home, tmp_path):
    (tmp_path / "there" / "folder").mkdir(parents=True)
    (tmp_path / "there" / "fine").touch()
    script = tmp_path / "completion.zsh"
    script.write_bytes(subprocess.check_output(["exec-server", "completion", "zsh"]))
    program = ZSH.format(dump=tmp_path / "dump", script=script)
    with start_server() as server:
        word = f"{server.url}:{tmp_path}/there/f"
        done = subprocess.run(
            ["zsh", "-f", "-c", program, "zsh", word], capture_output=True, text=True, check=False
        )
    assert f"-- {word}older/" in done.stdout and f"-- {word}ine" in done.stdout


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
