"""Shells tell where commands begin and end, and nothing of it can be seen."""

from __future__ import annotations

import shutil

import pytest

import exec_server
from exec_server.process.shell_integration import integrated
from tests.requirements import requirement

_SHELLS = {
    "bash": ["bash", "--noprofile", "--norc"],
    "zsh": ["zsh", "-f", "-o", "RCS"],
    "fish": ["fish"],
}


@pytest.fixture
async def client(server):
    async with exec_server.connect(server.url) as opened:
        yield opened


def _home(tmp_path) -> dict[str, str]:
    (tmp_path / ".zshrc").write_text("PS1='ready> '\n")
    folder = tmp_path / "config" / "fish"
    folder.mkdir(parents=True)
    prompt = "function fish_prompt\n echo -n 'ready> '\nend\nset -g fish_greeting\n"
    (folder / "config.fish").write_text(prompt)
    return {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PS1": "ready> ",
        "TERM": "xterm-256color",
    }


@pytest.mark.one_loop
@pytest.mark.parametrize("name", _SHELLS)
@requirement("screen:shell-integration")
async def test_the_last_command_of_a_shell(client, tmp_path, name):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    env = _home(tmp_path)
    argv = ["zsh"] if name == "zsh" else _SHELLS[name]
    options = {"tty": True, "rows": 12, "cols": 70, "env": env, "cwd": tmp_path}
    async with await client.start(argv, shell_integration=True, screen=True, **options) as shell:
        await shell.wait_for(prompt=True, timeout=40)
        assert (await shell.last_command()).state == "none"
        await shell.send_keys("echo one; echo 'zw ei'; sh -c 'exit 3'", "enter")
        await shell.wait_for(prompt=True, timeout=40)
        done = await shell.last_command()
        assert (done.state, done.exit_code, done.output) == ("done", 3, "one\nzw ei")
        assert done.command == "echo one; echo 'zw ei'; sh -c 'exit 3'"
        assert done.cwd == str(tmp_path)
        await shell.send_keys("cd /", "enter")
        await shell.wait_for(prompt=True, timeout=40)
        await shell.send_keys("echo hello é", "enter")
        match = await shell.wait_for("hello")
        await shell.wait_for(prompt=True, timeout=40)
        screen = await shell.screen()
        # The echo of the command does not count, only its output.
        assert match.column == 0
        assert screen.lines[:2] == ["ready> echo one; echo 'zw ei'; sh -c 'exit 3'", "one"]
        done = await shell.last_command()
        assert (done.command, done.cwd, done.exit_code) == ("echo hello é", "/", 0)
        await shell.send_keys("env", "enter")
        await shell.wait_for(prompt=True, timeout=40)
        assert "EXEC_SERVER" not in (await shell.last_command()).output
        await shell.send_keys("cat", "enter")
        await shell.wait_for(still=0.05)
        assert (await shell.last_command()).state == "running"
        await shell.send_keys("ctrl-c")
        await shell.wait_for(prompt=True, timeout=40)
        assert (await shell.last_command()).exit_code == 130


@pytest.mark.one_loop
@requirement("screen:last-command")
async def test_when_the_hooks_are_gone_nothing_is_claimed(client, tmp_path):
    options = {"tty": True, "env": _home(tmp_path), "shell_integration": True, "screen": True}
    async with await client.start(_SHELLS["bash"], **options) as shell:
        await shell.wait_for(prompt=True, timeout=40)
        await shell.send_keys("PS0=; PROMPT_COMMAND=", "enter")
        await shell.wait_for(prompt=True, timeout=40)
        assert (await shell.last_command()).state == "unconfirmed"
        await shell.send_keys("PS1='plain> '", "enter")
        await shell.wait_for(regex="^plain>", timeout=40)
        assert (await shell.last_command()).state == "unconfirmed"


@requirement("screen:shell-integration")
def test_other_programs_and_scripts_are_left_alone():
    for words in (
        ["ls"],
        ["bash", "-c", "true"],
        ["bash", "script"],
        ["bash", "-lc", "true"],
        ["zsh", "-c", "true"],
        ["fish", "-c", "true"],
        ["python3", "-i"],
    ):
        argv = [word.encode() for word in words]
        assert integrated(argv, {b"A": b"1"}, is_confined=False) == (argv, {b"A": b"1"})


@requirement("screen:shell-integration")
def test_interactive_shells_get_hooks():
    for words in (["bash"], ["/bin/bash", "-i"], ["-bash"], ["bash", "--rcfile", "/x"]):
        _, env = integrated([word.encode() for word in words], {}, is_confined=False)
        assert b"PROMPT_COMMAND" in env
    _, env = integrated([b"zsh", b"-l"], {b"ZDOTDIR": b"/mine"}, is_confined=False)
    assert env[b"EXEC_SERVER_ZDOTDIR"] == b"/mine" and env[b"ZDOTDIR"] != b"/mine"
    _, env = integrated([b"zsh"], {}, is_confined=True)
    assert env == {}
    argv, _ = integrated([b"fish", b"-l"], {}, is_confined=False)
    assert argv[1] == b"--init-command" and argv[-1] == b"-l"
