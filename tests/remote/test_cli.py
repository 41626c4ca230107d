"""`exec-server --remote` and `forward` as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from tests.remote.conftest import connect
from tests.requirements import requirement
from tests.support import cli
from tests.support.rendezvous import TOKEN, Scripted

pytestmark = pytest.mark.one_loop
ENV = {
    **{k: v for k, v in os.environ.items() if not k.startswith(("CODEX_", "OPENAI_"))},
    "EXEC_SERVER_REGISTRY_TOKEN": TOKEN,
}

API_KEY = "an-api-key-of-codex"


def words(relay, *more: str) -> tuple[str, ...]:
    return ("--remote", relay.url, "--environment-id", " env-1 ", *more)


@requirement("remote/executor:exit")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_and_what_it_runs(relay, signum):
    async with cli.running(*words(relay, "--name", "n"), env=ENV) as process:
        await relay.until(relay.is_online)
        async with connect(relay, reconnect=False) as client:
            child = await client.start(["sh", "-c", "echo $$; exec sleep 600"])
            pid = int((await anext(child)).data)
            # The credential is not in the environment of processes.
            assert TOKEN.encode() not in (await client.run(["env"])).stdout
            process.send_signal(signum)
            assert await cli.status(process) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert process.stdout is not None
        assert await process.stdout.read() == b""
    # There is no close frame.
    assert [len(relay.operations(each)) for each in ("register", "connect", "validate")] == [1] * 3
    assert {asked.operation for asked in relay.asked} <= {
        "register",
        "facts",
        "connect",
        "validate",
    }


@requirement("remote/executor:exit")
async def test_the_end_of_input_ends_it_when_that_is_asked_for(relay):
    options = {"env": ENV, "stdin": subprocess.PIPE}
    async with cli.running(*words(relay, "--exit-on-stdin-close"), **options) as process:
        assert process.stdin is not None
        process.stdin.write(b"ignored\n")
        await relay.until(relay.is_online)
        process.stdin.close()
        assert await cli.status(process) == 0


@requirement("remote/executor:exit")
async def test_a_refusal_is_one_line_and_status_1(relay):
    relay.script("register", Scripted.error(403, "nope"))
    done = await cli.finished(*words(relay), env=ENV)
    assert (done.status, done.stdout) == (1, b"")
    assert done.stderr == "Error: environment registry authentication error: scripted\n"


@requirement("remote/executor:exit")
@pytest.mark.parametrize(
    ("more", "error"),
    [
        (("--environment-id", " "), "must not be blank"),
        (("--environment-id", "e", "--remote-transport", "direct", "--aws-sigv4"), "direct"),
        (("--environment-id", "e", "--aws-sigv4"), "--aws-sigv4"),
    ],
)
async def test_what_cannot_be_served_is_status_1_and_nothing_is_sent(relay, more, error):
    done = await cli.finished("--remote", relay.url, *more, env=ENV)
    assert done.status == 1
    assert done.stderr.startswith("Error: ")
    assert error in done.stderr
    forward = ("forward", "--connect", "http://x", *words(relay))
    assert (await cli.finished(*forward, env=ENV)).status == 1
    assert relay.asked == []


@requirement("remote/auth:pipe", "remote/executor:exit")
async def test_piped_credentials_are_used_and_their_end_is_ours(relay):
    line = {"version": 1, "environment_id": "env-1", "token": "piped-1"}
    line["expires_at"] = int(time.time()) + 600
    options = {"env": ENV, "stdin": subprocess.PIPE}
    async with cli.running(*words(relay, "--executor-credential-stdin"), **options) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(line).encode() + b"\n")
        await relay.until(relay.is_online)
        assert relay.asked[0].headers["authorization"] == "Bearer piped-1"
        process.stdin.close()
        assert await cli.status(process) == 0
    assert (await cli.finished(*words(relay, "--executor-credential-stdin"), env=ENV)).status == 1


@requirement("secrets:environment")
async def test_an_executor_registers_with_a_token_that_its_commands_cannot_find(relay):
    env = {**ENV, "CODEX_API_KEY": API_KEY}
    async with cli.running(*words(relay), env=env) as process:
        await relay.until(relay.is_online)
        async with connect(relay, reconnect=False) as client:
            own = f"tr '\\0' '\\n' </proc/{process.pid}/environ; env"
            seen = (await client.run(["sh", "-c", own])).stdout
            assert TOKEN.encode() not in seen and API_KEY.encode() not in seen


@requirement("remote/auth:hosts")
async def test_an_api_key_is_not_sent_elsewhere():
    env = {**ENV, "EXEC_SERVER_REGISTRY_TOKEN": "", "CODEX_API_KEY": "k"}
    remote = ("--remote", "https://registry.example", "--environment-id", "e")
    done = await cli.finished(*remote, env=env)
    assert done.status == 1
    assert "API key" in done.stderr


@requirement("remote/harness:url")
async def test_commands_take_the_url_of_an_environment(online):
    done = await cli.finished(
        *("run", "--token", TOKEN, online.noise_url(), "--", "sh", "-c", "echo out; exit 3")
    )
    assert (done.status, done.stdout) == (3, b"out\n")


@requirement("remote/executor:usage")
@pytest.mark.parametrize("command", [(), ("forward", "--connect", "ws://127.0.0.1:1")])
async def test_the_direct_transport_needs_signatures(relay, command):
    done = await cli.finished(*command, *words(relay, "--remote-transport", "direct"), env=ENV)
    assert done.status == 2
    assert "were not provided:\n  --aws-sigv4\n" in done.stderr
    assert not relay.asked
