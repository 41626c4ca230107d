"""Rendezvous sockets: how they are opened, what they carry, and how they end."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl, urlencode

import aiohttp
import msgspec
import pytest

from exec_server.hub.access.signing import Pass, Signer
from exec_server.hub.relay.routing import Exchange
from exec_server.limits import DEFAULT_LIMITS
from exec_server.relay.frame import Data, RelayFrame, Reset, Resume, StreamId, decode, encode
from tests.hub.conftest import bring_online, transport_of
from tests.requirements import requirement

LAST = aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR


def frame(stream_id: str, seq: int = 0, size: int = 100) -> bytes:
    return encode(RelayFrame(StreamId(stream_id), Data(seq, bytes(size))))


def seq_of(data: bytes) -> int:
    body = decode(data).body
    assert isinstance(body, Data)
    return body.seq


async def received(socket) -> bytes:
    """The next message; a ping before it, which comes when the machine is busy, is answered."""
    async with asyncio.timeout(60):
        while (message := await socket.receive()).type is aiohttp.WSMsgType.PING:
            await socket.pong(message.data)
    assert message.type is aiohttp.WSMsgType.BINARY, message
    return bytes(message.data)


async def ended(socket) -> list[bytes]:
    """The messages until the socket was closed."""
    came = []
    async with asyncio.timeout(60):
        while (message := await socket.receive()).type not in LAST:
            if message.type is aiohttp.WSMsgType.BINARY:
                came.append(message.data)
    return came


def changed(url: str, **changes: str | None) -> str:
    base, _, query = url.partition("?")
    values = {**dict(parse_qsl(query, keep_blank_values=True)), **changes}
    return f"{base}?{urlencode({k: v for k, v in values.items() if v is not None})}"


async def test_frames_are_carried_unchanged_both_ways(pair):
    harness = await pair.open_harness()
    for seq in range(50):
        await harness.send_bytes(frame("s", seq, 61456))
    for seq in range(50):
        assert await received(pair.executor) == frame("s", seq, 61456)
    await pair.executor.send_bytes(frame("s", 1))
    assert await received(harness) == frame("s", 1)


@requirement("hub/socket:reset-on-loss")
@pytest.mark.parametrize("how", ["close", "drop"])
async def test_the_executor_hears_of_a_harness_that_is_gone(pair, how):
    harness = await pair.open_harness()
    await harness.send_bytes(frame("s"))
    await received(pair.executor)
    if how == "close":
        await harness.close()
    else:
        transport_of(harness).abort()
    lost = decode(await received(pair.executor))
    assert (lost.stream_id, type(lost.body)) == ("s", Reset)


@requirement("hub/socket:reset-on-loss")
async def test_a_harness_hears_that_the_executor_is_gone(pair):
    harness = await pair.open_harness()
    await harness.send_bytes(frame("s"))
    await received(pair.executor)
    await pair.executor.close()
    (lost,) = await ended(harness)
    assert isinstance(decode(lost).body, Reset)


@requirement("hub/socket:reasons")
@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({"role": None}, 403, "missing_role"),
        ({"role": "admin"}, 403, "invalid_role"),
        ({"v": None}, 403, "missing_version"),
        ({"exp": None}, 403, "missing_expiry"),
        ({"exp": "soon"}, 403, "invalid_expiry"),
        ({"sig": None}, 403, "missing_signature"),
        ({"sig": "0" * 64}, 403, "invalid_signature"),
        ({"exp": "99999999999"}, 403, "invalid_signature"),
        ({"reg": "other"}, 403, "invalid_signature"),
        ({"tok": "other"}, 403, "invalid_signature"),
        ({"role": "harness", "auth": "x"}, 403, "invalid_signature"),
        ({"k": "00000000"}, 403, "invalid_secret"),
        ({"more": "1"}, 403, "extra_query_param"),
        ({"role": "environment&role=harness"}, 403, "invalid_role"),
    ],
)
async def test_a_url_that_was_changed_opens_nothing(pair, changes, status, reason):
    url = changed(pair.registration["url"], **changes)
    assert await pair.visitor.refusal(url) == (status, reason)


@requirement("hub/socket:reasons")
async def test_a_url_is_for_one_environment_and_one_spelling(pair):
    url = pair.registration["url"]
    elsewhere = url.replace("/rendezvous/build", "/rendezvous/other")
    assert await pair.visitor.refusal(elsewhere) == (403, "invalid_signature")
    assert await pair.visitor.refusal(url + "&role=environment") == (400, "malformed_query")
    assert await pair.visitor.refusal(url.partition("?")[0]) == (403, "missing_role")
    nowhere = url.replace("/rendezvous/build", "/rendezvous/a/b")
    assert await pair.visitor.refusal(nowhere) == (404, "unknown_route")


@requirement("hub/socket:reasons")
async def test_a_good_signature_for_an_environment_that_is_not_there(visitor):
    signer = Signer(await visitor.hub.store.signing_key())
    target = signer.target(Pass("ghost", "environment", "r", "t", 2**35))
    url = visitor.hub.url.replace("http", "ws") + target
    assert await visitor.refusal(url) == (404, "unknown_route")


@requirement("hub/socket:expiry")
async def test_urls_expire(pair, clock):
    answer = await pair.visitor.connect(pair.name, pair.harness)
    clock.ahead = 61
    assert await pair.visitor.refusal(answer.body["url"]) == (401, "expired")
    clock.ahead = 24 * 3600 + 1
    # A laptop that slept for a day is told to register again, which is enough.
    assert await pair.visitor.refusal(pair.registration["url"]) == (401, "expired")
    again = await pair.visitor.register(pair.name, pair.enrolment)
    await pair.visitor.open(again.body["url"])


@requirement("hub/socket:single-use")
async def test_the_harness_url_opens_one_socket(pair):
    url = (await pair.visitor.connect(pair.name, pair.harness)).body["url"]
    await pair.visitor.open(url)
    assert await pair.visitor.refusal(url) == (401, "expired")


@requirement("hub/generation:newest-wins")
async def test_the_newest_registration_wins_at_once(pair):
    harness = await pair.open_harness()
    await harness.send_bytes(frame("s"))
    await received(pair.executor)
    newer = (await pair.visitor.register(pair.name, pair.enrolment)).body
    assert [type(decode(data).body) for data in await ended(harness)] == [Reset]
    await ended(pair.executor)
    # The older one may not come back while the newer one is connecting or connected.
    assert await pair.visitor.refusal(pair.registration["url"]) == (503, "route_unavailable")
    executor = await pair.visitor.open(newer["url"])
    assert await pair.visitor.refusal(pair.registration["url"]) == (503, "route_unavailable")
    await executor.close()


@requirement("hub/generation:no-lock-out")
async def test_an_older_registration_is_told_to_register_when_the_newer_has_gone(pair, clock):
    await pair.visitor.register(pair.name, pair.enrolment)
    await ended(pair.executor)
    clock.ahead = 20
    refusal = await pair.visitor.refusal(pair.registration["url"])
    assert refusal == (403, "unexpected_executor_registration_id")
    again = await pair.visitor.register(pair.name, pair.enrolment)
    await pair.visitor.open(again.body["url"])


@requirement("hub/generation:no-lock-out")
async def test_the_same_executor_comes_back_before_its_old_socket_is_known_to_be_dead(pair):
    harness = await pair.open_harness()
    await harness.send_bytes(frame("s"))
    await received(pair.executor)
    again = await pair.visitor.open(pair.registration["url"])
    assert [type(decode(data).body) for data in await ended(harness)] == [Reset]
    next_harness = await pair.open_harness()
    await next_harness.send_bytes(frame("t"))
    assert await received(again) == frame("t")


async def test_a_harness_of_an_older_registration_needs_a_new_bundle(pair):
    url = (await pair.visitor.connect(pair.name, pair.harness)).body["url"]
    newer = (await pair.visitor.register(pair.name, pair.enrolment)).body
    refusal = await pair.visitor.refusal(url)
    assert refusal == (401, "unexpected_executor_registration_id")
    executor = await pair.visitor.open(newer["url"])
    await pair.open_harness()
    await executor.close()


@requirement("hub/socket:reasons")
async def test_a_harness_whose_executor_has_left_is_refused(pair):
    url = (await pair.visitor.connect(pair.name, pair.harness)).body["url"]
    transport_of(pair.executor).abort()
    async with asyncio.timeout(60):
        while (await pair.visitor.connect(pair.name, pair.harness)).status == 200:
            pass
    assert await pair.visitor.refusal(url) == (401, "route_unavailable")


@requirement("hub/access:revocation")
@pytest.mark.parametrize("who", ["harness", "executor"])
async def test_revocation_ends_what_is_open(visit, clock, who):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_revocation_seconds=0.01)
    pair = await bring_online(await visit(limits=limits))
    harness = await pair.open_harness()
    await harness.send_bytes(frame("s"))
    await received(pair.executor)
    tokens = await pair.visitor.hub.store.tokens()
    right = "connect" if who == "harness" else "enrol"
    (token,) = [token for token in tokens if right in token.rights]
    await pair.visitor.hub.store.revoke_token(token.id, now=clock())
    if who == "harness":
        await ended(harness)
        assert isinstance(decode(await received(pair.executor)).body, Reset)
        assert (await pair.visitor.connect(pair.name, pair.harness)).status == 401
    else:
        await ended(pair.executor)
        assert isinstance(decode((await ended(harness))[0]).body, Reset)
        assert await pair.visitor.refusal(pair.registration["url"]) == (401, "expired")


@requirement("hub/access:revocation")
async def test_what_is_open_ends_when_its_token_expires(visit, clock):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_revocation_seconds=0.01)
    visitor = await visit(limits=limits)
    pair = await bring_online(visitor)
    _, secret = await visitor.token("connect", lifetime=1000.0)
    harness = await visitor.open((await visitor.connect(pair.name, secret)).body["url"])
    clock.ahead = 1001
    await ended(harness)


@requirement("hub/socket:slow-harness")
async def test_a_harness_that_does_not_read_is_reset_and_others_go_on(visit):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_stream_bytes=4 << 20)
    pair = await bring_online(await visit(limits=limits))
    slow, lively = await pair.open_harness(), await pair.open_harness()
    transport_of(slow).pause_reading()
    for name, socket in (("slow", slow), ("lively", lively)):
        await socket.send_bytes(frame(name))
        await received(pair.executor)
    is_reset = False
    async with asyncio.timeout(30):
        for seq in range(1000):
            await pair.executor.send_bytes(frame("slow", seq, 61456))
            await pair.executor.send_bytes(frame("lively", seq))
            assert await received(lively) == frame("lively", seq)
            if seq % 50 == 49:
                # The executor was only told of the end of the slow harness.
                await lively.send_bytes(frame("lively"))
                told = decode(await received(pair.executor))
                if told.stream_id == "slow":
                    assert isinstance(told.body, Reset)
                    is_reset = True
                    break
    assert is_reset


@requirement("hub/socket:slow-executor")
async def test_harnesses_wait_for_an_executor_that_does_not_read(pair):
    harness = await pair.open_harness()
    transport_of(pair.executor).pause_reading()
    sent = 0

    async def send_on():
        nonlocal sent
        for seq in range(1000):
            await harness.send_bytes(frame("s", seq, 61456))
            sent += 1

    sending = asyncio.ensure_future(send_on())
    last = -1
    async with asyncio.timeout(60):
        while last != sent or not sent:
            last = sent
            await asyncio.wait([sending], timeout=0.3)
    assert not sending.done()
    assert pair.visitor.hub.rendezvous.memory.used < 3 << 20
    transport_of(pair.executor).resume_reading()
    for seq in range(1000):
        assert seq_of(await received(pair.executor)) == seq
    await sending
    assert pair.visitor.hub.rendezvous.memory.used == 0


@requirement("hub/socket:violations")
@pytest.mark.parametrize("message", [b"", b"junk", b"\x08\x01", "text", bytes(300_000)])
async def test_a_harness_that_sends_no_frames_is_closed(pair, message):
    harness = await pair.open_harness()
    await (harness.send_str if isinstance(message, str) else harness.send_bytes)(message)
    assert await ended(harness) == []


async def test_the_largest_frame_is_carried(pair):
    harness = await pair.open_harness()
    whole = frame("s", 0, 262_144)
    largest = frame("s", 0, 2 * 262_144 - len(whole))
    assert len(largest) == 262_144
    await harness.send_bytes(largest)
    assert await received(pair.executor) == largest
    await pair.executor.send_bytes(largest)
    assert await received(harness) == largest
    await harness.send_bytes(largest + b"\x1a\x00")
    assert await ended(harness) == []


@requirement("hub/socket:violations")
async def test_frames_of_no_stream_are_ignored(pair):
    harness = await pair.open_harness()
    await harness.send_bytes(frame("s"))
    await received(pair.executor)
    await pair.executor.send_str("text")
    await pair.executor.send_bytes(b"junk")
    await pair.executor.send_bytes(frame("nobody's"))
    await pair.executor.send_bytes(frame("s", 5))
    assert await received(harness) == frame("s", 5)


@requirement("hub/socket:taken-id")
async def test_a_harness_cannot_use_the_stream_of_another(pair):
    first, second = await pair.open_harness(), await pair.open_harness()
    await first.send_bytes(frame("s", 1))
    await received(pair.executor)
    await second.send_bytes(frame("s", 2))
    await ended(second)
    await first.send_bytes(frame("s", 3))
    assert seq_of(await received(pair.executor)) == 3


@requirement("hub/socket:keepalive")
async def test_pings_are_answered_and_silence_is_the_end(visit):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, ping_interval=0.02, pong_timeout=2.0)
    pair = await bring_online(await visit(limits=limits))
    await pair.executor.ping(b"hello")
    kinds = set()
    async with asyncio.timeout(60):
        while (message := await pair.executor.receive()).type not in LAST:
            kinds.add((message.type, message.data))
    # The registry also pinged us, and we have not answered.
    assert kinds >= {(aiohttp.WSMsgType.PONG, b"hello"), (aiohttp.WSMsgType.PING, b"")}


@requirement("hub/socket:draining")
async def test_a_registry_that_stops_closes_all_sockets_properly(visit):
    pair = await bring_online(await visit())
    harness = await pair.open_harness()
    rendezvous = pair.visitor.hub.rendezvous
    closing = asyncio.gather(ended(harness), ended(pair.executor))
    await asyncio.gather(rendezvous.drain(), closing)
    assert rendezvous.sockets == 0
    assert await pair.visitor.refusal(pair.registration["url"]) == (503, "pod_draining")
    assert (await pair.visitor.ask("GET", "/readyz")).status == 503


async def test_a_failure_of_ours_ends_that_socket_and_no_other(pair, monkeypatch):
    other = await bring_online(pair.visitor, "other")

    def fail(*arguments, **options):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Exchange, "from_executor", fail)
        await pair.executor.send_bytes(frame("s"))
        await ended(pair.executor)
    harness = await other.open_harness()
    await harness.send_bytes(frame("s"))
    assert await received(other.executor) == frame("s")


async def test_a_request_that_is_no_upgrade_is_told_so(pair):
    path = "/rendezvous/" + pair.registration["url"].partition("/rendezvous/")[2]
    assert (await pair.visitor.ask("GET", path)).status == 426


async def test_the_room_at_an_executor_is_limited(visit):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_harnesses=1)
    pair = await bring_online(await visit(limits=limits))
    harness = await pair.open_harness()
    await harness.send_bytes(encode(RelayFrame(StreamId("s"), Resume())))
    await received(pair.executor)
    url = (await pair.visitor.connect(pair.name, pair.harness)).body["url"]
    assert await pair.visitor.refusal(url) == (503, "route_unavailable")
