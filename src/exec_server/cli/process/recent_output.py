"""Where the newest output of a job begins, so that `attach` need not show all of it."""

from __future__ import annotations

from typing import NamedTuple

from exec_server.client.client import ExecServerClient
from exec_server.protocol.jobs import JobInfo

# More than any screen shows. A journal may have 64 MiB.
RECENT_BYTES = 256 * 1024
# So many of the last events are looked at first, and so many times as many in each next step.
_FIRST_EVENTS = 4
_GROWTH = 4


class Recent(NamedTuple):
    """The number after which the newest output of a job begins."""

    after_seq: int = 0
    # The bytes before that; None if the server does not say how many there are.
    skipped: int | None = 0

    def notice(self, command: str) -> str | None:
        """What to tell the user, if something is left out; *command* shows it."""
        if not self.after_seq or self.skipped == 0:
            return None
        count = "some" if self.skipped is None else f"{self.skipped} bytes of"
        return f"{count} earlier output is left out; `{command}` prints all of it"


async def find_recent(
    client: ExecServerClient, job: JobInfo, *, recent_bytes: int = RECENT_BYTES
) -> Recent:
    """Where the last *recent_bytes* begin, or a little later; at least the last event is in them.

    The server gives output in one direction only. So ever more of it is asked for, from the end.
    """
    last = job.next_seq - 1
    found = Recent(max(0, last - 1), None)
    count = _FIRST_EVENTS
    while found.after_seq:
        after = max(0, last - count)
        answer = await client.read(job.process_id, after_seq=after, max_bytes=recent_bytes)
        if await _has_output(client, job, after_seq=answer.next_seq - 1):
            break
        size = sum(len(chunk.chunk.data) for chunk in answer.chunks if chunk.seq <= last)
        total = job.output_bytes
        found = Recent(after, total - size if isinstance(total, int) else None)
        count *= _GROWTH
    return found


async def _has_output(client: ExecServerClient, job: JobInfo, *, after_seq: int) -> bool:
    """True if there is output after that number, which the list of jobs counts already."""
    if after_seq >= job.next_seq - 1:
        return False
    answer = await client.read(job.process_id, after_seq=after_seq, max_bytes=1)
    return bool(answer.chunks) and answer.chunks[0].seq < job.next_seq
