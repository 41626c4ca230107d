"""The registry's answers, and handshakes."""

from __future__ import annotations

import asyncio
import time

from exec_server.conformance.check import Kit, check, expect, expect_that
from exec_server.conformance.remote import kit_frames
from exec_server.conformance.remote.kit_noise import SUITE, KitKeyPair
from exec_server.conformance.remote.kit_registry import Answer
from exec_server.conformance.remote.kit_relay import PROTOCOL_ERROR, KitStream, StreamReset
from exec_server.conformance.remote.remote_support import (
    opened,
    wants_refusal,
    wants_reset,
    works,
)

_FAILURES = 8
_PAUSE = 10.0


@check(
    "registry.connect",
    "`connect` has a complete answer, new for each call.",
    suite="remote",
)
async def connect(kit: Kit) -> None:
    first, second = await kit.relay(), await kit.relay()
    one, other = first.bundle, second.bundle
    expect("the executor's key", other.executor, one.executor)
    expect("the registration", other.registration_id, one.registration_id)
    is_new = one.authorization != other.authorization and one.url != other.url
    expect_that(is_new, "another URL and another authorization the second time")


@check(
    "registry.token",
    "`connect` without a token, or with a wrong one, is refused.",
    suite="remote",
)
async def token(kit: Kit) -> None:
    await kit.relay()
    body = {"harness_public_key": KitKeyPair().public.as_json()}
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        answer = await kit.ask_registry(body, headers=headers)
        expect_that(answer.status in (401, 403), "a refusal with 401 or 403", answer.status)


@check(
    "registry.unknown",
    "`connect` for an unknown environment is refused.",
    suite="remote",
)
async def unknown(kit: Kit) -> None:
    await kit.relay()
    body = {"harness_public_key": KitKeyPair().public.as_json()}
    answer = await kit.ask_registry(body, environment_id="no-such-environment")
    _wants_error(answer)


@check(
    "registry.key",
    "`connect` with something that is no key is refused.",
    suite="remote",
)
async def wrong_key_object(kit: Kit) -> None:
    await kit.relay()
    right = KitKeyPair().public.as_json()
    for wrong in (
        {},
        {**right, "suite": "Noise_IK_25519_AESGCM_SHA256"},
        {**right, "x25519_public_key": "AAAA"},
        {**right, "mlkem768_public_key": "not base64"},
    ):
        _wants_error(await kit.ask_registry({"harness_public_key": wrong}))


def _wants_error(answer: Answer) -> None:
    expect_that(400 <= answer.status < 500, "a status from 400 to 499", answer.status)
    error = answer.body.get("error") if isinstance(answer.body, dict) else None
    told = isinstance(error, dict) and isinstance(error.get("code"), str)
    expect_that(told, "an error with a code", answer.body)


@check(
    "noise.handshake", "A handshake opens a stream, on which `initialize` works.", suite="remote"
)
async def handshake(kit: Kit) -> None:
    await works(await opened(kit))


@check(
    "noise.key-kept",
    "Another harness key is as good as the first.",
    suite="remote",
)
async def other_key(kit: Kit) -> None:
    for _ in range(2):
        relay = await kit.relay(KitKeyPair())
        await works(await relay.open(patience=kit.patience))


@check("noise.stream-ids", "A stream id may be any text.", suite="remote")
async def any_stream_id(kit: Kit) -> None:
    relay = await kit.relay()
    await (await relay.open(patience=kit.patience)).send('{"method": "initialized"}')
    for stream_id in ("s", "Ünïcode 流", "inner blank", "x" * 200):
        stream = KitStream(relay, patience=kit.patience, stream_id=stream_id)
        await stream.handshake()
        await works(stream)


@check(
    "noise.without-resume",
    "No resume frame is needed before a handshake.",
    suite="remote",
)
async def without_resume(kit: Kit) -> None:
    relay = await kit.relay()
    stream = await relay.open(patience=kit.patience)
    await works(stream)
    second = KitStream(relay, patience=kit.patience)
    _, message = second.first_message(await relay.fresh_bundle())
    await relay.send(kit_frames.handshake_frame(second.id, message))
    expect("the answer to message 1", (await second.frame()).body, "handshake")


@check(
    "noise.authorization",
    "A handshake that the registry did not allow is reset.",
    suite="remote",
)
async def authorization(kit: Kit) -> None:
    await wants_refusal(kit, authorization="not what the registry has said")


@check("noise.wrong-executor", "A handshake for another executor's key is reset.", suite="remote")
async def wrong_executor(kit: Kit) -> None:
    await wants_refusal(kit, executor=KitKeyPair().public)


@check("noise.registration", "A handshake for another registration is reset.", suite="remote")
async def wrong_registration(kit: Kit) -> None:
    await wants_refusal(kit, registration_id="another registration")


@check("noise.protocol-name", "The suite's label is not the name that is hashed.", suite="remote")
async def wrong_name(kit: Kit) -> None:
    await wants_refusal(kit, protocol=SUITE.encode())


@check(
    "noise.stream-bound",
    "Message 1 of one stream opens no other stream.",
    suite="remote",
)
async def stream_bound(kit: Kit) -> None:
    relay = await kit.relay()
    await relay.open(patience=kit.patience)
    first, second = (KitStream(relay, patience=kit.patience) for _ in range(2))
    _, message = first.first_message(await relay.fresh_bundle())
    await relay.send(kit_frames.handshake_frame(second.id, message))
    await wants_reset(second)


@check(
    "noise.again",
    "A handshake on an open stream is reset, and the stream stays open.",
    suite="remote",
)
async def again(kit: Kit) -> None:
    stream = await opened(kit)
    await works(stream)
    _, message = stream.first_message(await stream.relay.fresh_bundle())
    await stream.relay.send(kit_frames.handshake_frame(stream.id, message))
    await wants_reset(stream)
    await works(stream, is_first=False)


@check(
    "noise.pause",
    "After eight failed handshakes with a stream id more are refused for ten seconds.",
    suite="remote",
)
async def pause(kit: Kit) -> None:
    stream = await opened(kit)
    await works(stream)
    relay = stream.relay
    late = KitStream(relay, patience=kit.patience)
    for _ in range(_FAILURES):
        await relay.send(kit_frames.handshake_frame(late.id, b"no message 1"))
        await wants_reset(late)
    expect("a right handshake, after eight wrong ones,", await _is_refused(late), True)
    await works(stream, is_first=False)
    began = time.monotonic()
    async with asyncio.timeout(_PAUSE + kit.patience):
        while await _is_refused(late):  # noqa: ASYNC110 (only asking shows it)
            await asyncio.sleep(0.5)
    waited = time.monotonic() - began
    expect_that(waited > _PAUSE / 2, f"a pause of {_PAUSE:g} seconds", round(waited, 1))
    await works(late)


async def _is_refused(stream: KitStream) -> bool:
    try:
        await stream.handshake()
    except StreamReset as exc:
        expect("the reason", str(exc).rpartition(": ")[2], PROTOCOL_ERROR)
        return True
    return False
