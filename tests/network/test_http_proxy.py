"""HTTP and CONNECT through a proxy."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from exec_server.limits import Limits
from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.proxied import (
    OK,
    Decides,
    answered,
    dialled,
    get,
    origin,
    proxy,
    said,
)
from tests.support.wire import PATIENCE

LOCAL: dict[str, Any] = {"domains": {"127.0.0.1": "allow"}}


def undated(head):
    return re.sub(rb"date: [^\r]*", b"date: D", head)


@requirement("network/http:blocked")
async def test_a_blocked_request_is_answered_to_the_byte(no_leaks):
    async with proxy() as made:
        head, body = await answered(made.http, get("example.invalid"))
    assert undated(head) == (
        b"HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\n"
        b"x-proxy-error: blocked-by-allowlist\r\ncontent-length: 178\r\ndate: D\r\n\r\n"
    )
    assert body == (
        b'{"status":"blocked","host":"example.invalid","reason":"not_allowed","decision":"deny",'
        b'"source":"baseline_policy","protocol":"http","port":80,'
        b'"message":"Domain not in allowlist."}'
    )


@pytest.mark.parametrize(
    ("host", "reason", "error"),
    [
        ("bad.invalid", "denied", "blocked-by-denylist"),
        ("localhost:8080", "not_allowed_local", "blocked-by-allowlist"),
        ("[::1]:8080", "not_allowed_local", "blocked-by-allowlist"),
        ("inside.invalid", "not_allowed_local", "blocked-by-allowlist"),
        ("mixed.invalid", "not_allowed_local", "blocked-by-allowlist"),
        ("unknown.invalid", "not_allowed_local", "blocked-by-allowlist"),
        ("other.org", "not_allowed", "blocked-by-allowlist"),
    ],
)
@requirement("network/http:blocked", "network/rules:one-resolution")
async def test_each_reason_has_its_words(no_leaks, host, reason, error):
    names = {"inside.invalid": ["10.0.0.1"], "mixed.invalid": ["1.1.1.1", "127.0.0.1"]}
    domains = {"*.invalid": "allow", "bad.invalid": "deny"}
    async with proxy(names=names, domains=domains) as made:
        head, body = await answered(made.http, get(host))
        _, connected = await answered(made.http, f"CONNECT {host} HTTP/1.1\r\n\r\n".encode())
        assert f"x-proxy-error: {error}\r\n".encode() in head
        assert json.loads(body)["reason"] == reason
        assert connected.decode() == json.loads(body)["message"]
        assert made.client.reasons == [reason, reason]


@requirement("network/http:forwarded")
async def test_a_request_goes_on_without_the_headers_of_this_hop(no_leaks):
    hop = "Proxy-Authorization: Basic eA==\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n"
    async with origin() as (server, port), proxy(**LOCAL) as made:
        head, body = await answered(
            made.http, get(f"127.0.0.1:{port}", headers=f"{hop}TE: trailers\r\nX-End: 2\r\n")
        )
        assert server.heads == [
            f"GET /p?q HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-End: 2\r\n"
            "Connection: close\r\n\r\n".encode()
        ]
        (event,) = made.client.told
    assert undated(head) == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\ndate: D\r\n\r\n"
    assert body == b"ok"
    assert (event.decision, event.source, event.reason) == ("allow", "baseline_policy", "allow")


@requirement("network/rules:one-resolution")
async def test_only_the_address_that_was_judged_is_connected_to(no_leaks):
    """A name is resolved once: a later change of its address has no effect."""
    async with origin() as (_, port):
        names = {"there.org": ["127.0.0.1"]}
        members: dict[str, Any] = {"domains": {"there.org": "allow"}, "allowLocalBinding": True}
        async with proxy(names=names, **members) as made:
            _, body = await answered(made.http, get(f"there.org:{port}"))
    assert body == b"ok"


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"


@requirement("network/http:bodies")
async def test_several_requests_of_every_framing_share_a_connection(no_leaks):
    async with origin() as (server, port), proxy(**LOCAL) as made:
        host = f"127.0.0.1:{port}"
        sized = get(host, method="POST", headers="Content-Length: 3\r\n", body=b"abc")
        chunked = get(
            host,
            method="PUT",
            headers="Transfer-Encoding: chunked\r\n",
            body=b"3\r\nabc\r\n0\r\n\r\n",
        )
        async with asyncio.timeout(PATIENCE), dialled(made.http) as (reader, writer):
            # All requests are sent at once; each is answered in its turn.
            writer.write(sized + chunked + get("no.invalid") + get(host))
            for status in (b"200", b"200", b"403", b"200"):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.split()[1] == status
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                await reader.readexactly(size)
        assert server.bodies == [b"abc", b"3\r\nabc\r\n0\r\n\r\n", b""]


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (CHUNKED, b"5\r\nabcde\r\n0\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
    ],
)
@requirement("network/http:bodies")
async def test_an_answer_of_any_framing_comes_back(no_leaks, answer, seen):
    async with origin(answer, closes=True) as (_, port), proxy(**LOCAL) as made:
        request = get(f"127.0.0.1:{port}").replace(b"HTTP/1.1", b"HTTP/1.0")
        old = await said(made.http, request)
        async with asyncio.timeout(PATIENCE), dialled(made.http) as (reader, writer):
            writer.write(get(f"127.0.0.1:{port}") + get("no.invalid"))
            head = await reader.readuntil(b"\r\n\r\n")
            rest = await reader.readexactly(len(seen)) if b"chunked" not in head else b""
    plain = b"abcde" if answer == CHUNKED else seen
    assert old.startswith(b"HTTP/1.0 2") and old.endswith(plain)
    assert rest == seen or b"chunked" in head


@requirement("network/http:bodies")
async def test_a_body_with_two_lengths_goes_on_with_one(no_leaks):
    answer = CHUNKED.replace(b"Transfer", b"Content-Length: 2\r\nTransfer")
    async with origin(answer) as (server, port), proxy(**LOCAL) as made:
        request = get(
            f"127.0.0.1:{port}",
            method="POST",
            headers="Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            body=b"3\r\nabc\r\n0\r\n\r\n",
        )
        async with asyncio.timeout(PATIENCE), dialled(made.http) as (reader, writer):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
    assert b"content-length" not in (head + server.heads[0]).lower()


@requirement("network/http:bodies")
async def test_a_client_that_waits_to_send_its_body_is_told_to(no_leaks):
    async with origin() as (server, port), proxy(**LOCAL) as made:
        expecting = "Content-Length: 4\r\nExpect: 100-continue\r\n"
        async with asyncio.timeout(PATIENCE), dialled(made.http) as (reader, writer):
            writer.write(get(f"127.0.0.1:{port}", method="POST", headers=expecting))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"body")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        assert server.bodies == [b"body"]


@pytest.mark.parametrize(
    ("request_head", "text"),
    [
        (b"GET /x HTTP/1.1\r\n\r\n", b"missing host"),
        (b"GET http://a..b/ HTTP/1.1\r\nHost: a..b\r\n\r\n", b"missing host"),
        (
            b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n",
            b"Host header does not match request target",
        ),
        (
            b"GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n",
            b"Host header does not match request target",
        ),
    ],
)
@requirement("network/http:bad-target")
async def test_a_request_that_aims_at_nothing_is_refused(no_leaks, request_head, text):
    async with proxy(domains={"*": "allow"}) as made:
        head, body = await answered(made.http, request_head)
        assert made.client.told == []
    assert (head.split(b"\r\n")[0], body) == (b"HTTP/1.1 400 Bad Request", text)


@requirement("network/http:unreachable")
async def test_a_server_that_is_not_there_is_a_bad_gateway(no_leaks):
    nowhere = f"127.0.0.1:{free_port()}"
    async with proxy(**LOCAL) as made:
        for request in (get(nowhere), f"CONNECT {nowhere} HTTP/1.1\r\n\r\n".encode()):
            head, body = await answered(made.http, request)
            assert head.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
            assert body == b"upstream failure"


@requirement("network/http:unix-sockets")
async def test_unix_sockets_are_refused(no_leaks):
    async with proxy(**LOCAL, unixSockets={"/x": "allow"}) as made:
        head, body = await answered(made.http, get("localhost", headers="x-unix-socket: /x\r\n"))
        (event,) = made.client.told
    assert head.startswith(b"HTTP/1.1 501 Not Implemented\r\n")
    assert body == b"unix sockets unsupported"
    assert (event.scope, event.source, event.reason, event.host, event.port) == (
        "non_domain",
        "proxy_state",
        "unix_socket_unsupported",
        "unix-socket",
        0,
    )


@requirement("network/http:limited")
async def test_limited_mode_is_for_reading(no_leaks):
    async with origin() as (server, port), proxy(mode="limited", **LOCAL) as made:
        host = f"127.0.0.1:{port}"
        for method in ("GET", "HEAD", "OPTIONS"):
            head, _ = await answered(made.http, get(host, method=method))
            assert head.startswith(b"HTTP/1.1 200 OK")
        made.client.told.clear()
        head, _ = await answered(made.http, get(host, method="DELETE"))
        assert b"x-proxy-error: blocked-by-method-policy\r\n" in head
        head, body = await answered(made.http, f"CONNECT {host} HTTP/1.1\r\n\r\n".encode())
        assert b"x-proxy-error: blocked-by-mitm-required\r\n" in head
        assert body == b"MITM required for limited HTTPS."
        assert [(event.scope, event.source) for event in made.client.told] == [
            ("domain", "baseline_policy"),
            ("non_domain", "mode_guard"),
        ] * 2
        assert len(server.heads) == 3


@requirement("network/connect:tunnel")
async def test_each_half_of_a_tunnel_ends_by_itself(no_leaks):
    async def after_the_end(reader, writer):
        asked = await reader.read()
        writer.write(b"you said " + asked)
        writer.close()

    server = await asyncio.start_server(after_the_end, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, proxy(**LOCAL) as made, asyncio.timeout(PATIENCE):
        async with dialled(made.http) as (reader, writer):
            writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nearly ".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"late")
            writer.write_eof()
            assert await reader.read() == b"you said early late"
    assert undated(head) == b"HTTP/1.1 200 OK\r\ndate: D\r\n\r\n"


@requirement("network/proxy:abort")
async def test_a_process_that_hangs_up_ends_the_connection_to_the_server(no_leaks):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"
    async with origin(answer) as (server, port), proxy(**LOCAL) as made:
        async with asyncio.timeout(PATIENCE), dialled(made.http) as (reader, writer):
            writer.write(get(f"127.0.0.1:{port}"))
            await reader.readuntil(b"12345")
        async with asyncio.timeout(PATIENCE):
            await server.ended.wait()


@requirement("network/proxy:abort", "network/start:lifetime")
async def test_closing_the_proxy_ends_its_tunnels_and_listeners(no_leaks):
    async with origin() as (_, port), proxy(**LOCAL) as made, asyncio.timeout(PATIENCE):
        async with dialled(made.http) as (reader, writer):
            writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            made.managed.close()
            assert await reader.read() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", made.http)


@requirement("network/proxy:limits")
async def test_a_connection_too_many_waits_for_its_turn(no_leaks):
    async with origin() as (_, port), asyncio.timeout(PATIENCE):
        async with proxy(limits=Limits(proxy_connections=1), **LOCAL) as made:
            async with dialled(made.http) as (reader, writer):
                writer.write(get(f"127.0.0.1:{port}"))
                await reader.readuntil(b"ok")
                second = asyncio.ensure_future(answered(made.http, get(f"127.0.0.1:{port}")))
                writer.write(get(f"127.0.0.1:{port}"))
                await reader.readuntil(b"ok")
                assert not second.done()
            assert (await second)[1] == b"ok"


@requirement("network/proxy:limits")
async def test_a_head_that_is_too_long_or_too_slow_ends_the_connection(no_leaks):
    limits = Limits(proxy_head_bytes=1024, proxy_head_timeout=0.05)
    async with proxy(limits=limits) as made:
        long = await said(made.http, b"GET / HTTP/1.1\r\nA: " + b"x" * 2000)
        assert long.startswith(b"HTTP/1.1 400 ")
        assert await said(made.http, b"GET / HT") == b""


@requirement("network/proxy:limits")
async def test_a_silent_tunnel_is_ended(no_leaks):
    async with origin() as (_, port):
        async with proxy(limits=Limits(proxy_idle_timeout=0.05), **LOCAL) as made:
            request = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode()
            assert (await said(made.http, request)).startswith(b"HTTP/1.1 200 OK")


@requirement("network/proxy:upstream")
async def test_public_hosts_go_through_the_servers_own_proxy(no_leaks):
    names = {"far.org": ["1.1.1.1"], "near.org": ["10.0.0.1"], "out.org": ["1.1.1.1"]}
    async with origin() as (server, port):
        env = {"HTTP_PROXY": f"http://u:p%40@127.0.0.1:{port}", "NO_PROXY": "x.org, .y.org"}
        members: dict[str, Any] = {
            "domains": {"*": "allow"},
            "allowUpstreamProxy": True,
            "names": names,
        }
        async with proxy(server_env=env, **members) as made:
            _, body = await answered(made.http, get("far.org:81"))
    assert body == b"ok"
    assert server.heads == [
        b"GET http://far.org:81/p?q HTTP/1.1\r\nHost: far.org:81\r\n"
        b"Proxy-Authorization: Basic dTpwQA==\r\nConnection: close\r\n\r\n"
    ]


@requirement("network/proxy:upstream")
async def test_a_tunnel_goes_through_the_servers_own_proxy(no_leaks):
    established = b"HTTP/1.1 200 Connection established\r\n\r\nfrom beyond"
    async with origin(established, closes=True) as (server, port):
        env = {"ALL_PROXY": f"127.0.0.1:{port}"}
        members: dict[str, Any] = {"domains": {"*": "allow"}, "allowUpstreamProxy": True}
        async with proxy(server_env=env, names={"far.org": ["1.1.1.1"]}, **members) as made:
            answer = await said(made.http, b"CONNECT far.org:443 HTTP/1.1\r\n\r\n")
    assert answer.endswith(b"\r\n\r\nfrom beyond")
    assert server.heads == [b"CONNECT far.org:443 HTTP/1.1\r\nHost: far.org:443\r\n\r\n"]


@pytest.mark.parametrize("value", ["socks5://127.0.0.1:1", "::::", "http://127.0.0.1:{}"])
@requirement("network/proxy:upstream")
async def test_a_proxy_that_cannot_be_used_is_not_gone_around(no_leaks, value):
    env = {"HTTP_PROXY": value.format(free_port())}
    members: dict[str, Any] = {"domains": {"*": "allow"}, "allowUpstreamProxy": True}
    async with proxy(server_env=env, names={"far.org": ["1.1.1.1"]}, **members) as made:
        head, _ = await answered(made.http, get("far.org"))
    assert head.startswith(b"HTTP/1.1 502 ")


@pytest.mark.parametrize(
    ("address", "reaches_private", "is_proxied"),
    [("127.0.0.1", False, False), ("127.0.0.1", True, False), ("10.0.0.1", True, True)],
)
@requirement("network/proxy:upstream")
async def test_private_addresses_go_through_it_only_when_told(
    no_leaks, address, reaches_private, is_proxied
):
    async with origin() as (server, port), origin() as (direct, there):
        env = {"HTTP_PROXY": f"http://127.0.0.1:{port}"}
        members: dict[str, Any] = {"domains": {address: "allow"}, "allowUpstreamProxy": True}
        async with proxy(server_env=env, reaches_private=reaches_private, **members) as made:
            await answered(made.http, get(f"{address}:{there}"))
    assert (len(server.heads), len(direct.heads)) == ((1, 0) if is_proxied else (0, 1))


@requirement("network/policy:answers")
async def test_what_the_client_allows_goes_on(no_leaks):
    client = Decides({"type": "allow"})
    async with origin() as (_, port):
        members: dict[str, Any] = {"policyDecisionTimeoutMs": 1000, "allowLocalBinding": True}
        async with proxy(client=client, **members) as made:
            _, body = await answered(made.http, get(f"127.0.0.1:{port}"))
    assert body == b"ok"
    (event,) = client.told
    assert (event.decision, event.source, event.reason, event.policy_override) == (
        "allow",
        "decider",
        "not_allowed",
        True,
    )


@requirement("network/policy:answers")
async def test_what_the_client_allows_must_still_be_public(no_leaks):
    client = Decides({"type": "allow"})
    names = {"near.org": ["192.168.0.1"]}
    async with proxy(client=client, names=names, policyDecisionTimeoutMs=1000) as made:
        _, body = await answered(made.http, get("near.org"))
    assert json.loads(body)["reason"] == "not_allowed_local"
    assert client.reasons == ["not_allowed_local"]


@pytest.mark.parametrize(
    ("answer", "decision", "reason", "error"),
    [
        ({"type": "deny", "reason": "nope"}, "deny", "nope", "blocked-by-policy"),
        ({"type": "ask", "reason": "hm"}, "ask", "hm", "blocked-by-policy"),
        ({"type": "deny", "reason": ""}, "deny", "policy_denied", "blocked-by-policy"),
        ({"type": "deny", "reason": "denied"}, "deny", "denied", "blocked-by-denylist"),
        ({"type": "deny", "reason": "x" * 1024}, "deny", "x" * 1024, "blocked-by-policy"),
        ({"type": "deny", "reason": "x" * 1025}, "deny", "not_allowed", "blocked-by-allowlist"),
        ({"type": "deny", "reason": "a\nb"}, "deny", "not_allowed", "blocked-by-allowlist"),
        ({"type": "deny", "reason": "\x85"}, "deny", "not_allowed", "blocked-by-allowlist"),
        ({"type": "deny"}, "deny", "not_allowed", "blocked-by-allowlist"),
        ({"type": "other"}, "deny", "not_allowed", "blocked-by-allowlist"),
        (5, "deny", "not_allowed", "blocked-by-allowlist"),
    ],
)
@requirement("network/policy:answers")
async def test_every_other_answer_blocks(no_leaks, answer, decision, reason, error):
    client = Decides(answer)
    async with proxy(client=client, policyDecisionTimeoutMs=1000) as made:
        head, body = await answered(made.http, get("x.org"))
    blocked = json.loads(body)
    assert (blocked["decision"], blocked["reason"]) == (decision, reason)
    assert blocked["source"] == "decider"
    assert f"x-proxy-error: {error}\r\n".encode() in head


@requirement("network/policy:fails-closed")
async def test_no_answer_is_a_refusal(no_leaks):
    client = Decides()
    limits = Limits(policy_grace=0.01)
    async with proxy(client=client, limits=limits, policyDecisionTimeoutMs=10) as made:
        _, body = await answered(made.http, get("x.org"))
    assert json.loads(body)["reason"] == "not_allowed"
    assert client.open[0].cancelled()


@requirement("network/policy:fails-closed")
async def test_a_process_that_hangs_up_takes_its_question_back(no_leaks):
    client = Decides()
    async with proxy(client=client, policyDecisionTimeoutMs=100_000) as made:
        async with asyncio.timeout(PATIENCE), dialled(made.http) as (_, writer):
            writer.write(get("x.org"))
            await client.was_asked.wait()
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait(client.open)
    assert client.open[0].cancelled()
    assert client.told == []


@pytest.mark.parametrize("listed", ["content-length", "Content-Length, host", "transfer-encoding"])
@pytest.mark.parametrize("is_chunked", [False, True])
@requirement("security/network:framing")
async def test_a_process_cannot_take_the_length_of_its_body_away(no_leaks, listed, is_chunked):
    inner = b"POST /smuggled HTTP/1.1\r\nHost: other\r\nContent-Length: 5\r\n\r\n"
    length = f"Content-Length: {len(inner)}\r\n"
    body = inner
    if is_chunked:
        length, body = (
            "Transfer-Encoding: chunked\r\n",
            b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner),
        )
    async with origin() as (server, port), proxy(**LOCAL) as made:
        request = get(f"127.0.0.1:{port}", headers=f"Connection: {listed}\r\n{length}", body=body)
        head, _ = await answered(made.http, request)
        assert head.startswith(b"HTTP/1.1 200 ")
    # The whole body belongs to the one request, and no other head was seen.
    assert len(server.heads) == 1
    assert inner in server.bodies[0]


@requirement("security/network:framing")
async def test_a_server_cannot_take_the_length_of_its_answer_away(no_leaks):
    lying = OK.replace(b"X-A: b", b"Connection: content-length")
    async with origin(lying) as (_, port), proxy(**LOCAL) as made:
        head, body = await answered(made.http, get(f"127.0.0.1:{port}"))
    assert b"content-length: 2" in head.lower() and body == b"ok"
