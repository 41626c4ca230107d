"""Hosts that the proxy of a process refuses are denials like any other."""

from __future__ import annotations

from tests.requirements import requirement
from tests.support.proxied import answered, get, launch


@requirement("denials/records:hosts")
async def test_a_refused_host_is_a_record_with_a_true_count(wire):
    port, _ = await launch(wire, start={"denials": True}, domains={"allowed.invalid": "allow"})
    for _ in range(3):
        await answered(port, get("x.invalid"))
    await answered(port, get("y.invalid"))
    first = (await wire.event("p", "process/denied"))["denial"]
    assert (first["kind"], first["target"]) == ("host", "x.invalid:80")
    answer = await wire.call("process/denials", {"processId": "p"})
    found = [(each["target"], each.get("count", 1)) for each in answer["denials"]]
    assert found == [("x.invalid:80", 3), ("y.invalid:80", 1)]
    assert answer["total"] == 4
    assert answer["denials"][0]["rule"] == "host not allowed (not_allowed)"
    await wire.call("process/terminate", {"processId": "p"})
    await wire.events_until_closed("p")
