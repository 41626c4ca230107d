"""Where the newest output of a job begins: compared with a model."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from exec_server.cli.process.detached.recent_output import find_recent
from tests.requirements import requirement

RECENT = 60
# The size of each event; None is one without output.
events = st.lists(st.sampled_from([None, 1, 5, 30, 100]), max_size=30)


class Served:
    """Answers `read` as a server does, for events of these sizes."""

    def __init__(self, sizes: list[int | None]) -> None:
        self.sizes = sizes

    async def read(self, process_id: str, *, after_seq: int, max_bytes: int) -> Any:
        found: list[Any] = []
        total = 0
        for seq, size in enumerate(self.sizes, 1):
            if seq <= after_seq or size is None:
                continue
            if found and (total + size > max_bytes or total >= max_bytes):
                break
            total += size
            found.append(SimpleNamespace(seq=seq, chunk=SimpleNamespace(data=bytes(size))))
        following = found[-1].seq + 1 if found else len(self.sizes) + 1
        return SimpleNamespace(chunks=found, next_seq=following)


@requirement("cli/durable:recent")
@given(sizes=events, later=events)
def test_at_least_the_recent_bytes_are_shown_and_the_rest_is_counted(sizes, later):
    total = sum(size or 0 for size in sizes)
    job: Any = SimpleNamespace(process_id="p", next_seq=len(sizes) + 1, output_bytes=total)
    client: Any = Served(sizes + later)
    found = asyncio.run(find_recent(client, job, recent_bytes=RECENT))
    shown = sum(size or 0 for size in sizes[found.after_seq :])
    assert found.skipped == total - shown
    assert min(RECENT, total) <= shown <= RECENT + 100
