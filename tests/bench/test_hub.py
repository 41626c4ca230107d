"""The measurement of a registry."""

from __future__ import annotations

import pytest

from bench.hub import report, run, started
from tests.requirements import requirement


@requirement("hub/bench")
@pytest.mark.one_loop
async def test_idle_executors_and_the_relay_are_measured():
    with started() as registry:
        found = await run(registry, executors=3, megabytes=1, rounds=1)
    assert found["executors"] == 3 and found["lost"] == 0
    assert all(
        found[f"{way} {name}"] > 0 for way in ("direct", "relayed") for name in ("up", "down")
    )
    assert found["relayed echo"] > 0
    assert "3 idle executors, 0 lost" in report(found)
