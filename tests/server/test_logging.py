"""What the server logs about connections and commands, and what it does not."""

from __future__ import annotations

import asyncio
import logging
from hashlib import sha256

import pytest

from exec_server.errors import ConfigurationError
from exec_server.server.authentication import AuthOptions, CapabilityToken, from_options
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.wire import Wire

UPGRADE = (
    "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@requirement("logs:refusals")
@pytest.mark.parametrize(
    ("request_text", "reason"),
    [
        (f"GET / HTTP/1.1\r\n{UPGRADE}\r\n", "missing websocket bearer token"),
        (
            f"GET / HTTP/1.1\r\n{UPGRADE}Authorization: Bearer s3cret-guess\r\n\r\n",
            "invalid websocket bearer token",
        ),
        (f"GET / HTTP/1.1\r\n{UPGRADE}Origin: https://evil.test\r\n\r\n", "https://evil.test"),
        (f"GET / HTTP/1.1\r\n{UPGRADE}Origin: a\x85b\r\n\r\n", r"a\x85b"),
        ("GET / HTTP/1.1\r\n\r\n", "Connection header did not include"),
        ("nonsense\r\n\r\n", "not HTTP"),
        ("GET /" + "x" * 20_000, "too long"),
        ("GET /elsewhere HTTP/1.1\r\n\r\n", "/elsewhere"),
    ],
)
async def test_a_refused_connection_is_logged_with_its_address(caplog, request_text, reason):
    caplog.set_level(logging.WARNING)
    token = CapabilityToken(sha256(b"right").digest())
    async with serve(authenticator=token) as server:
        host, port = server.url.removeprefix("ws://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        ours = writer.get_extra_info("sockname")[1]
        writer.write(request_text.encode("latin-1"))
        await reader.read()
        writer.close()
    (record,) = [each for each in caplog.records if each.name.endswith("http_front")]
    message = record.getMessage()
    assert record.levelno == logging.WARNING
    assert f"127.0.0.1:{ours}" in message and reason in message
    assert "s3cret" not in caplog.text and "\n" not in message and len(message) < 300


@requirement("logs:commands")
async def test_connections_commands_and_ends_are_logged_without_secrets(caplog):
    caplog.set_level(logging.INFO)
    async with serve() as server:
        async with Wire(server.url) as wire:
            session = (await wire.initialize())["sessionId"]
            argv = ["sh", "-c", "exit 3 # words", "--token", "s3cret-one", "PASSWORD=s3cret-two"]
            await wire.run("p1", argv, env={"NAME": "value-of-it"})
            await wire.run("forged\nline", ["true"])
        await eventually(lambda: "detached" in caplog.messages[-1])
    text = "\n".join(caplog.messages)
    assert "connection from 127.0.0.1:" in text
    (started,) = [line for line in caplog.messages if line.startswith("process 'p1' started")]
    assert "with pid " in started
    assert started.endswith("['sh', '-c', 'exit 3 # words', '--token', '***', 'PASSWORD=***']")
    assert "process 'p1' ended with status 3" in text
    assert r"process 'forged\nline' ended with status 0" in text
    assert "s3cret" not in text and "value-of-it" not in text and session not in text


@requirement("logs:commands")
async def test_the_words_of_a_command_are_logged_at_debug_without_its_environment(caplog):
    caplog.set_level(logging.DEBUG)
    async with serve() as server, Wire(server.url) as wire:
        await wire.initialize()
        await wire.run(
            "p1", ["echo", "words"], env={"NAME": "value-of-it", "PATH": "/bin:/usr/bin"}
        )
    assert "['echo', 'words']" in caplog.text and "value-of-it" not in caplog.text


@requirement("auth:file-mode")
@pytest.mark.parametrize(
    ("mode", "outcome"),
    [
        (0o600, ""),
        (0o400, ""),
        (0o640, "warned"),
        (0o644, "warned"),
        (0o666, "refused"),
        (0o602, "refused"),
    ],
)
@pytest.mark.parametrize("kind", ["token", "secret"])
def test_the_mode_of_a_file_with_a_secret(tmp_path, caplog, kind, mode, outcome):
    path = tmp_path / "file"
    path.write_text("x" * 40)
    path.chmod(mode)
    if kind == "token":
        options = AuthOptions(mode="capability-token", token_file=str(path))
    else:
        options = AuthOptions(mode="signed-bearer-token", shared_secret_file=str(path))
    with caplog.at_level(logging.WARNING):
        if outcome == "refused":
            with pytest.raises(
                ConfigurationError, match="can be changed by every user: run `chmod"
            ):
                from_options(options)
        else:
            assert from_options(options) is not None
    assert (str(path) in caplog.text) is (outcome == "warned")
