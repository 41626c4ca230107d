"""The measurement of a registry."""

from __future__ import annotations

import pytest

from bench.hub import report, run
from bench.registries import started
from tests.requirements import requirement


@requirement("hub/bench")
@pytest.mark.one_loop
async def test_idle_executors_and_the_relay_are_measured():
    async with started() as registry:
        found = await run(registry, executors=3, megabytes=1, rounds=1, idle_seconds=0.01)
    assert found["executors"] == 3 and found["lost"] == 0
    for way in ("direct", "relayed"):
        assert all(figure > 0 for figure in found[way])
    said = report(found)
    assert "3 idle executors, 0 lost" in said and "of a core" in said
