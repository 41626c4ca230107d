"""Where the newest output of a job begins, so that `attach` need not show all of it."""

from __future__ import annotations

from typing import NamedTuple

from exec_server.client.client import ExecServerClient
from exec_server.protocol.jobs import JobInfo
from exec_server.protocol.process import ReadChunk, ReadResult

# More than any screen shows. A journal may have 64 MiB.
RECENT_BYTES = 256 * 1024
# The last event is looked at first, and so many times as many in each next step.
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
    """Where the last *recent_bytes* begin, or a little earlier: at the beginning of an event.

    The server gives output in one direction only. So ever more of it is asked for, from the end.
    """
    newest = _Newest(client, job, recent_bytes)
    last = later = job.next_seq - 1
    earlier, count = last, 1
    while earlier and earlier == later:
        earlier = max(0, last - count)
        count *= _GROWTH
        if await newest.fits_after(earlier):
            later = earlier
    # From *later* on it fits, and from *earlier* on it does not, unless that is the beginning.
    while later - earlier > 1:
        middle = (earlier + later) // 2
        if await newest.fits_after(middle):
            later = middle
        else:
            earlier = middle
    return Recent(earlier, await newest.skipped_before(earlier) if earlier else 0)


class _Newest:
    """The output of *job* as the list of jobs has found it, from its end."""

    def __init__(self, client: ExecServerClient, job: JobInfo, recent_bytes: int) -> None:
        self._client = client
        self._job = job
        self._recent_bytes = recent_bytes

    async def fits_after(self, seq: int) -> bool:
        """True if what comes after that number is not more than the recent bytes."""
        answer = await self._read(seq, self._recent_bytes)
        size = sum(len(chunk.chunk.data) for chunk in self._known(answer))
        return size <= self._recent_bytes and not await self._has_output(answer.next_seq - 1)

    async def skipped_before(self, seq: int) -> int | None:
        """How many bytes come up to that number; None if the server does not say."""
        total = self._job.output_bytes
        if not isinstance(total, int):
            return None
        size, after = 0, seq
        while after < self._job.next_seq - 1:
            answer = await self._read(after, self._recent_bytes)
            known = self._known(answer)
            size += sum(len(chunk.chunk.data) for chunk in known)
            if not known:
                break
            after = known[-1].seq
        return total - size

    def _known(self, answer: ReadResult) -> list[ReadChunk]:
        return [chunk for chunk in answer.chunks if chunk.seq < self._job.next_seq]

    async def _has_output(self, after_seq: int) -> bool:
        if after_seq >= self._job.next_seq - 1:
            return False
        return bool(self._known(await self._read(after_seq, 1)))

    async def _read(self, after_seq: int, max_bytes: int) -> ReadResult:
        return await self._client.read(
            self._job.process_id, after_seq=after_seq, max_bytes=max_bytes
        )
