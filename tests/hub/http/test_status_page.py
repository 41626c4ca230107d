"""The status page, health checks and events."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from exec_server.hub.http.environment_listing import (
    EnvironmentPage,
    ListedEnvironment,
    ListingQuery,
)
from exec_server.hub.http.status_page import render
from tests.hub.conftest import bring_online
from tests.requirements import requirement


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data):
        self.text += data


@requirement("hub/page:environments")
async def test_the_page_shows_the_environments(pair):
    await pair.visitor.register("asleep", pair.enrolment)
    _, secret = await pair.visitor.token("observe", patterns=())
    answer = await pair.visitor.ask("GET", "/", secret)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    page = Tags(answer.body)
    assert "1 of 2 environments online" in page.text
    assert "build" in page.text and "asleep" in page.text


@requirement("hub/page:escaped")
def test_nothing_an_executor_says_becomes_markup():
    evil = "<script>alert(1)</script>\"'&<img src=x onerror=y>"
    listed = ListedEnvironment(
        name=evil,
        is_online=True,
        online_since=0.0,
        registered_at=0.0,
        principal=evil,
        version=evil,
        platform=evil,
        sandbox=evil,
        labels={evil: evil},
        is_encrypted=True,
        streams=1,
        bytes=5 << 30,
    )
    one = EnvironmentPage(turn=ListingQuery(limit=1), environments=[listed])
    page = Tags(render(one, [], now=100_000.0))
    assert not {"script", "img"} & set(page.names)
    assert page.text.count(evil) == 7
    assert "5.0 GiB" in page.text and "1 d 3 h" in page.text


@requirement("hub/page:token")
@pytest.mark.parametrize("path", ["/", "/metrics", "/api/events"])
async def test_only_observers_look(visitor, path):
    _, harness = await visitor.token("connect", "list")
    assert (await visitor.ask("GET", path)).status == 401
    assert (await visitor.ask("GET", path, harness)).status == 403


@requirement("hub/page:origin")
@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}],
)
async def test_other_sites_cannot_use_a_browser(pair, headers):
    _, secret = await pair.visitor.token("observe", "connect")
    for path in ("/", "/metrics", "/api/environments"):
        assert (await pair.visitor.ask("GET", path, secret, headers=headers)).status == 403
    status, _ = await pair.visitor.refusal(pair.registration["url"], headers=headers)
    assert status == 403


@requirement("hub/metrics")
async def test_metrics_are_exposed_for_prometheus(pair):
    harness = await pair.open_harness()
    frame = b"\x08\x01\x12\x01s\x3a\x00"
    await harness.send_bytes(frame)
    await pair.executor.receive()
    _, secret = await pair.visitor.token("observe")
    answer = await pair.visitor.ask("GET", "/metrics", secret)
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    values = dict(
        line.rsplit(" ", 1) for line in answer.body.splitlines() if not line.startswith("#")
    )
    prefix = "exec_server_registry_"
    assert values[f"{prefix}executors"] == values[f"{prefix}streams"] == "1"
    assert values[f"{prefix}bytes_total"] == str(len(frame))
    assert values[f'{prefix}requests_total{{operation="connect",status="2xx"}}'] == "1"


@requirement("hub/health")
async def test_health_needs_no_token(visitor):
    assert (await visitor.ask("GET", "/healthz")).body == "ok\n"
    assert (await visitor.ask("GET", "/readyz")).body == "ready\n"


@requirement("hub/audit")
async def test_who_connected_to_what_is_remembered_but_never_what_was_said(visit, tmp_path):
    log = tmp_path / "audit.jsonl"
    pair = await bring_online(await visit(audit_log=str(log)))
    harness = await pair.open_harness()
    await harness.send_bytes(b"\x08\x01\x12\x06secret\x3a\x00")
    await pair.executor.receive()
    await harness.close()
    await pair.executor.receive()
    _, secret = await pair.visitor.token("observe")
    path = "/api/events?environment=build&principal=tester"
    names: list[str] = []
    while "harness offline" not in names:
        events = (await pair.visitor.ask("GET", path, secret)).body
        names = [event["name"] for event in events]
    assert sorted(names) == sorted(
        ["registered", "executor online", "connect", "harness online", "harness offline"]
    )
    assert {event["address"] for event in events} == {"127.0.0.1"}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["name"] for line in lines[::-1]] == names
    text = log.read_text()
    assert "secret" not in text and pair.harness not in text
    assert (await pair.visitor.ask("GET", "/api/events?limit=x", secret)).status == 400
    assert len((await pair.visitor.ask("GET", "/api/events?limit=1", secret)).body) == 1
