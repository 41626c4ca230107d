"""The space of a journal: the oldest records are dropped, and what they took is given back."""

from __future__ import annotations

import errno
import os

from exec_server.process.journaling import journal_files
from exec_server.process.journaling.journal_format import (
    HEADER_BYTES,
    RESERVED,
    SLOT_BYTES,
    STREAMS,
    data_name,
    starts_of,
)
from exec_server.process.journaling.journal_index import JournalIndex

# File systems give space back in whole blocks of this size.
BLOCK = 4096
FULL = {errno.ENOSPC, errno.EDQUOT}


class JournalSpace(JournalIndex):
    """A journal that drops its oldest records, by bounds or because the disk is full."""

    __slots__ = ()

    def _can_go_on_after(self, exc: OSError) -> bool:
        """True if the oldest output was dropped, so that there is room again on a full disk."""
        if exc.errno == errno.EBADF:
            raise exc
        if exc.errno in FULL and self._make_room():
            return True
        self.is_stalled = True
        self.stall_reason = os.strerror(exc.errno or 0)
        return False

    def _make_room(self) -> bool:
        """Drop half of what is retained, or all; False if that frees no block of the disk."""
        limit = self.next_seq if self.keep_from is None else min(self.keep_from, self.next_seq)
        half = self._cut(self.retained_bytes // 2, self.next_seq, limit)
        for first in (half, limit) if self._can_punch else (limit,):
            if first > self._first and self._frees_blocks(first):
                return self._drop_before(first)
        return False

    def _frees_blocks(self, first: int) -> bool:
        starts = self._starts_at(first)
        return self._place_of(first) // BLOCK > self._place_of(self._first) // BLOCK or any(
            new // BLOCK > old // BLOCK for old, new in zip(self._starts, starts, strict=True)
        )

    def trim(self, keep_bytes: int, keep_records: int | None = None) -> int:
        """Drop the oldest records beyond these bounds, never the newest; returns the bytes."""
        before = self.dropped_bytes
        limit = self.next_seq - 1
        if self.keep_from is not None:
            limit = min(limit, self.keep_from)
        count = self.next_seq if keep_records is None else keep_records
        first = self._cut(keep_bytes, count, limit)
        if first > self._first:
            self._drop_before(first)
        return self.dropped_bytes - before

    def _cut(self, keep_bytes: int, keep_records: int, limit: int) -> int:
        """The number of the first record to keep, *limit* at most."""
        low = max(self._first, min(limit, self.next_seq - keep_records))
        high = max(low, limit)
        total = sum(self._ends)
        while low < high:
            middle = (low + high) // 2
            if total - sum(self._starts_at(middle)) <= keep_bytes:
                high = middle
            else:
                low = middle + 1
        return low

    def _starts_at(self, seq: int) -> list[int]:
        """The first byte of each stream that is retained if *seq* is the first number."""
        if seq >= self.next_seq:
            return self._ends.copy()
        fields = self._fields(seq)
        if fields is None:
            self._repair()
            fields = self._fields(seq)
            # A disk that cannot be repaired, either.
            if fields is None:
                return self._starts.copy()
        return starts_of(fields)

    def _drop_before(self, first: int) -> bool:
        """Forget the records before *first*; True if the header could be written."""
        starts = self._starts_at(first)
        old = self._first, self._starts, self.dropped_bytes
        self.dropped_bytes += self._bytes_before(first, starts)
        self._first, self._starts = first, starts
        try:
            self._write_header()
        except OSError as exc:
            self._first, self._starts, self.dropped_bytes = old
            self.stall_reason = os.strerror(exc.errno or 0)
            return False
        self._release()
        return True

    def _bytes_before(self, first: int, starts: list[int]) -> int:
        if self.dropped_bytes == sum(self._starts):
            return sum(starts) - sum(self._starts)
        # Some bytes between the records were lost to damage, and are counted already.
        return sum(fields[2] for seq in range(self._first, first) if (fields := self._fields(seq)))

    def _release(self) -> None:
        """Give the space of dropped records back to the disk."""
        for stream in self._streams:
            which = STREAMS.index(stream)
            dropped = self._starts[which] - self._shifts[which]
            if not self._punch(self._data[which], 0, dropped):
                kept = self._ends[which] + self._behind[which] - self._starts[which]
                if dropped > kept:
                    self._replace_data(which)
        if not self._punch(self._index, HEADER_BYTES, self._place_of(self._first)):
            if self._first - self._slots_from > self.next_seq - self._first:
                self._replace_index()

    def _punch(self, fd: int, begin: int, end: int) -> bool:
        """False if the file system has no holes."""
        if self._can_punch and end > begin:
            self._can_punch = journal_files.punch_hole(fd, begin, end - begin)
        return self._can_punch

    def _replace_data(self, which: int) -> None:
        """Copy what is retained into a new file, whose name says with which byte it begins."""
        start, stream = self._starts[which], STREAMS[which]
        size = self._ends[which] + self._behind[which] - start
        new = self._replacement(
            f"{stream}+{start}", self._data[which], start - self._shifts[which], size
        )
        if new >= 0:
            old = data_name(stream, self._shifts[which])
            os.close(self._data[which])
            self._data[which], self._shifts[which] = new, start
            try:
                os.unlink(os.path.join(self._folder, old))
            except OSError:
                # The next process that opens the journal removes it.
                pass

    def _replace_index(self) -> None:
        before = self._slots_from
        begin = self._place_of(self._first)
        size = (self.next_seq - self._first + RESERVED) * SLOT_BYTES
        old, new = self._index, -1
        try:
            place = journal_files.open_folder(self._folder)
        except OSError:
            # This process has too many descriptors, for example. The next bound tries it again.
            return
        self._slots_from = self._first
        try:
            new = journal_files.create_file("new", place)
            journal_files.copy(old, begin, new, HEADER_BYTES, size)
            self._index = new
            self._write_header()
            os.rename("new", "index", src_dir_fd=place, dst_dir_fd=place)
            os.close(old)
        except OSError:
            self._index, self._slots_from = old, before
            if new >= 0:
                os.close(new)
                os.unlink("new", dir_fd=place)
        finally:
            os.close(place)

    def _replacement(self, name: str, fd: int, begin: int, size: int) -> int:
        """A new file *name* with a part of *fd*; -1 if that is impossible now."""
        new = -1
        try:
            place = journal_files.open_folder(self._folder)
        except OSError:
            return -1
        try:
            new = journal_files.create_file("new", place)
            journal_files.copy(fd, begin, new, 0, size)
            os.rename("new", name, src_dir_fd=place, dst_dir_fd=place)
        except OSError:
            if new >= 0:
                os.close(new)
                os.unlink("new", dir_fd=place)
            return -1
        finally:
            os.close(place)
        return new
