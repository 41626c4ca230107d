"""Searches and watches without bubblewrap: Landlock confines them, or they are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from exec_server.local_server import local
from exec_server.protocol.sandbox import read_only
from exec_server.sandbox import landlock
from exec_server.sandbox.backends import HERE, Report
from tests.requirements import requirement
from tests.sandbox.policies import scoped
from tests.support.wire import PATIENCE

pytestmark = [
    pytest.mark.one_loop,
    pytest.mark.skipif(not HERE.landlock_report.works, reason=f"{HERE.landlock_report.obstacle}"),
]


@pytest.fixture(autouse=True)
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    # Descriptors that stay open for good.
    landlock._always()
    report = Report("bubblewrap", works=False, obstacle="not there")
    monkeypatch.setitem(HERE.__dict__, "bubblewrap_report", report)
    monkeypatch.setitem(HERE.__dict__, "bubblewrap", None)


@requirement("fs/search:sandbox", "fs/watch:sandbox")
async def test_landlock_confines_what_reads_everything(tmp_path: Path):
    (tmp_path / "file").write_text("found\n")
    async with local() as client, asyncio.timeout(PATIENCE):
        files = client.fs.sandboxed(read_only())
        assert [hit.text async for hit in files.search(tmp_path, "found")] == ["found"]
        async with files.watch(tmp_path) as watch:
            (tmp_path / "new").write_text("x")
            seen = {change.path async for change in _first_changes(watch)}
        assert seen == {str(tmp_path / "new")}


async def _first_changes(watch):
    report = await anext(aiter(watch))
    for change in report.changes:
        yield change


@requirement("fs/search:sandbox", "fs/watch:sandbox")
async def test_a_view_that_landlock_cannot_hold_is_refused_and_the_reason_told(tmp_path: Path):
    (tmp_path / "file").write_text("found\n")
    async with local() as client, asyncio.timeout(PATIENCE):
        files = client.fs.sandboxed(scoped(tmp_path))
        reason = "this policy requires bubblewrap: Landlock cannot hide"
        with pytest.raises(Exception, match=reason):
            [hit async for hit in files.search(tmp_path, "found")]
        with pytest.raises(Exception, match=reason):
            async with files.watch(tmp_path):
                pass
