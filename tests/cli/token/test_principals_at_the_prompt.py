"""A server with --principals, and the commands of its principals."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from exec_server.cli.main import main
from exec_server.cli.serve.serve_options import parse_serve
from tests.requirements import requirement
from tests.support.cli import finished
from tests.support.durable import end_jobs
from tests.support.leaks import eventually
from tests.support.principals import MadePrincipals, bearer
from tests.support.servers import start_server
from tests.support.wire import Wire


@pytest.fixture
def made(tmp_path) -> MadePrincipals:
    found = MadePrincipals(tmp_path)
    found.add("ann", "exec,files:read")
    found.add("boss", "admin")
    for name, token in found.tokens.items():
        (tmp_path / name).write_text(token)
    return found


@requirement("principals:server", "principals:ownership", "principals:whoami")
@pytest.mark.one_loop
async def test_what_each_principal_may_do_at_the_prompt(made, tmp_path):
    state = tmp_path / "state"
    env, elsewhere = (
        {"XDG_STATE_HOME": str(tmp_path / name), "PATH": "/usr/bin:/bin"}
        for name in ("here", "elsewhere")
    )
    ann, boss = (["--token-file", str(tmp_path / name)] for name in ("ann", "boss"))
    options = ["--listen", "ws://127.0.0.1:0", "--principals", str(made.path)]
    try:
        with start_server(*options, "--state", str(state)) as server:
            url = server.url
            shown = await finished("whoami", *ann, url)
            assert b"ann\n" in shown.stdout and b"exec,files:read\n" in shown.stdout
            there = tmp_path / "there"
            refused = await finished("cp", *ann, str(made.path.parent / "ann"), f"{url}:{there}")
            assert refused.status == 1 and not there.exists()
            assert "principal `ann` may not use files:write" in refused.stderr
            job = await finished("run", "--detach", *ann, url, "--", "sleep", "600", env=env)
            assert job.status == 0, job.stderr
            # `ps` lists one's own jobs, and `ps --all` is for admins.
            own = json.loads((await finished("ps", "-o", "json", *boss, url, env=elsewhere)).stdout)
            assert own == []
            refused = await finished("ps", "--all", *ann, url, env=env)
            assert refused.status == 1 and "may not use admin" in refused.stderr
            everyones = await finished("ps", "--all", *boss, url, env=elsewhere)
            assert b"OWNER" in everyones.stdout and b" ann " in everyones.stdout
            listed = json.loads((await finished("ps", "-o", "json", *ann, url, env=env)).stdout)
            name = listed[0]["processId"]
            killed = await finished("kill", *boss, url, name, env=elsewhere)
            assert killed.status == 0, killed.stderr
            stopped = await finished("stop", "--jobs", *boss, url)
            assert (stopped.status, stopped.stderr) == (0, "")
            assert server.wait() == 0
    finally:
        end_jobs(state)


@requirement("principals:reload")
@pytest.mark.one_loop
async def test_sighup_reads_the_file_again(made, tmp_path):
    log = tmp_path / "log"
    options = ["--listen", "ws://127.0.0.1:0", "--principals", str(made.path)]
    with start_server(*options, "--log-level", "info", log=log) as server:
        async with made.wire(server.url, "ann") as wire:
            await wire.initialize()
            server.signal(signal.SIGHUP)
            await eventually(lambda: "everything was read again" in log.read_text())
            await wire.call("session/ping", {})
            moved = made.path.rename(tmp_path / "moved")
            server.signal(signal.SIGHUP)
            await eventually(lambda: "the old value stays in use" in log.read_text())
            await wire.call("session/ping", {})
            moved.rename(made.path)
            made.file.remove("ann")
            await wire.closed()
    assert made.tokens["ann"] not in log.read_text()


@requirement("principals:server")
def test_options_that_contradict_principals(made, tmp_path, capsys):
    options = parse_serve(["--principals", "p"], {})
    assert options.holds_secrets
    # Sandboxes see neither the file nor its journal.
    assert options.operator.secret_files == (None, "p", "p-journal")
    for other in ("--insecure-no-auth", "--allow-other-users"):
        with pytest.raises(SystemExit) as ended:
            parse_serve(["--principals", "p", other], {})
        assert ended.value.code == 2
        assert "cannot be used with" in capsys.readouterr().err
    remote = ["--remote", "http://h", "--environment-id", "e"]
    for words, said in (
        ([*remote], "--principals cannot be used with --remote or forward"),
        (["--listen", "stdio"], "--principals requires a listener, not stdio"),
    ):
        assert main([*words, "--principals", str(made.path)]) == 1
        assert said in capsys.readouterr().err
    assert main(["--principals", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err
    made.path.chmod(0o640)
    assert main(["--principals", str(made.path)]) == 1
    assert "other users can use it" in capsys.readouterr().err


@requirement("principals:server")
@pytest.mark.one_loop
async def test_the_default_file_is_that_of_the_command(tmp_path):
    env = {"XDG_STATE_HOME": str(tmp_path)}
    token = (await finished("token", "create", "ci", env={**env, "PATH": "/bin"})).stdout.decode()
    assert Path(tmp_path / "exec-server" / "principals.sqlite3").exists()
    options = ["--listen", "ws://127.0.0.1:0", "--principals", "default"]
    with start_server(*options, env=env) as server:
        async with Wire(server.url, headers=bearer(token.strip())) as wire:
            await wire.initialize()
            assert (await wire.call("session/whoami", {}))["principal"] == "ci"
