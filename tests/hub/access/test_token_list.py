"""What an operator sees of tokens, and what the holder of a refused one is told."""

from __future__ import annotations

import json

import pytest

from tests.hub.conftest import bring_online
from tests.requirements import requirement
from tests.support.cli import finished


async def listed(tmp_path) -> tuple[str, list]:
    words = ["registry", "token", "list", "--state", str(tmp_path / "registry.sqlite3")]
    text = await finished(*words)
    decoded = await finished(*words, "-o", "json")
    return text.stdout.decode(), json.loads(decoded.stdout)


async def pair_device(visitor, secret, device) -> str:
    code = (await visitor.ask("POST", "/api/pairings/build-7", secret)).body["code"]
    body = {"code": code} if device is None else {"code": code, "device": device}
    answer = await visitor.ask("POST", "/api/pair", body=body)
    assert answer.status == 200
    return str(answer.body["token"])


@requirement("hub/people:token-list")
async def test_paired_devices_are_told_apart(visitor, tmp_path):
    _, secret = await visitor.token("enrol")
    for device in ("anna-laptop", "bench\x1b[31m\n-2", None, "x" * 500):
        await pair_device(visitor, secret, device)
    text, tokens = await listed(tmp_path)
    devices = [token["device"] for token in tokens if token["name"] == "paired with build-7"]
    assert devices == ["anna-laptop", "bench[31m-2", "127.0.0.1", "x" * 64]
    assert "paired with build-7 (anna-laptop)" in text and "\x1b" not in text


@requirement("hub/people:token-list")
async def test_the_last_use_of_a_token_is_shown(visitor, tmp_path):
    pair = await bring_online(visitor)
    assert (await visitor.connect(pair.name, pair.harness)).status == 200
    _, observer = await visitor.token("observe", "list", principal="watcher")
    await visitor.token("connect", principal="unused")
    assert (await visitor.ask("GET", "/api/environments", observer)).status == 200
    text, tokens = await listed(tmp_path)
    used = {token["name"]: token["lastUsedFrom"] for token in tokens}
    assert used == {"tester": "127.0.0.1", "watcher": "127.0.0.1", "unused": None}
    assert "LAST USE" in text and " from 127.0.0.1" in text and "never" in text


@requirement("hub/people:token-refused")
@pytest.mark.parametrize(
    ("rights", "options", "told"),
    [
        (
            ("enrol",),
            {},
            "of another kind (its rights: enrol); that needs a token of the kind `har",
        ),
        (("connect",), {"patterns": ("lab-*", "x")}, "the name `build` is not among"),
        (("connect",), {"patterns": ("lab-*", "x")}, "`lab-*`, `x`"),
    ],
)
async def test_a_refused_token_is_told_why(visitor, rights, options, told):
    await bring_online(visitor)
    _, secret = await visitor.token(*rights, **options)
    refused = await visitor.connect("build", secret)
    assert (refused.status, refused.code) == (403, "forbidden")
    assert told in refused.body["error"]["message"]


@requirement("hub/metrics:environments")
async def test_registered_environments_are_counted(visitor):
    _, secret = await visitor.token("enrol")
    _, observer = await visitor.token("observe")
    for name in ("a", "b", "a"):
        await visitor.register(name, secret)
    text = str((await visitor.ask("GET", "/metrics", observer)).body)
    assert "\nexec_server_registry_environments 2\n" in text
    assert "\nexec_server_registry_executors 0\n" in text
