"""The writer: the process that turns the spool of a recorder into recordings.

It converts soon after something was printed. During a flood of output it waits until the flood
pauses, or until much or old output is in the spool: a machine with few processors is busy enough
then, and large blocks are cheaper to convert.

Nothing is lost if this process is killed: the recorder starts another one, which cuts what was
not confirmed, and reads it again. If the recorder is killed, this process reads the spool to the
end, ends the recordings and then itself.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import time

from exec_server.own_interpreter import give_way, hide
from exec_server.recording.open_casts import OpenCasts
from exec_server.recording.recording_files import RecordingFiles
from exec_server.recording.spool import SpoolReader
from exec_server.recording.writer_messages import (
    HURRY,
    WriterTerms,
    receive_terms,
    receive_words,
    send,
)

# Output that comes so soon after other output is written with it.
_GATHER_SECONDS = 0.02
# More output within a look at the spool is a flood.
_LOOK_SECONDS, _FLOOD_BYTES = 0.05, 256 << 10
# During a flood so much may be in the spool, for so long, before it is converted nevertheless. It
# leaves the recorder a quarter of its spool for what is printed meanwhile.
MOST_BYTES = 48 << 20
MOST_SECONDS = 2.0
# So much is converted at a time; larger blocks do not fit into the cache of a processor.
BLOCK = 256 << 10
# The recorder is told how far this is at least as often.
_ANSWER_BYTES = 4 << 20


class SpoolWriter:
    """Converts what is in the spool."""

    def __init__(self, sock: socket.socket, terms: WriterTerms) -> None:
        self._sock = sock
        self._again_until = terms.again_until
        self._reader = SpoolReader(offset=terms.offset)
        self._casts = OpenCasts(RecordingFiles(terms.directory, quota=terms.quota))
        self._casts.resume(terms.resumed)
        self._answered = 0
        self._is_hurried = False
        self._is_alone = False

    def run(self) -> None:
        """Convert until the recorder is gone, and then the rest."""
        while not self._is_alone:
            self._listen(None)
            self._gather()
            self._convert()
        while self._convert_block():
            pass
        self._casts.take(self._reader.rest(), is_again=False)
        self._reader.close()
        self._casts.close()
        self._answer(is_idle=True)

    def _listen(self, seconds: float | None) -> bool:
        """Wait for a word of the recorder; False if there was none within *seconds*."""
        if not select.select([self._sock], [], [], seconds)[0]:
            return False
        words = b""
        # The connection is reset if the recorder has not read the last answer.
        with contextlib.suppress(OSError):
            words, segments = receive_words(self._sock)
            for each in segments:
                self._reader.add(each)
        self._is_alone = not words
        self._is_hurried |= self._is_alone or HURRY in words
        return True

    def _gather(self) -> None:
        """Wait for what else is printed now, but not for long."""
        deadline = time.monotonic() + MOST_SECONDS
        seconds, before = _GATHER_SECONDS, self._reader.waiting
        while not self._is_hurried and time.monotonic() < deadline:
            self._wait(seconds)
            waiting = self._reader.waiting
            if waiting - before < _FLOOD_BYTES or waiting >= MOST_BYTES:
                return
            seconds, before = _LOOK_SECONDS, waiting

    def _wait(self, seconds: float) -> None:
        """Listen for so long, or until the recorder wants everything at once."""
        deadline = time.monotonic() + seconds
        while not self._is_hurried and (left := deadline - time.monotonic()) > 0:
            self._listen(left)

    def _convert(self) -> None:
        """Convert what is there now, and tell the recorder."""
        end = self._reader.count + self._reader.waiting
        is_more = True
        while is_more and self._reader.count < end:
            is_more = self._convert_block()
        # The recorder wakes this process if there is more.
        self._answer(is_idle=True)
        self._is_hurried = self._is_alone

    def _convert_block(self) -> bool:
        """False if there is nothing to convert."""
        is_again = self._reader.count < self._again_until
        frames = self._reader.read(BLOCK)
        self._casts.take(frames, is_again=is_again)
        if self._reader.count - self._answered >= _ANSWER_BYTES:
            self._answer(is_idle=False)
        return bool(frames)

    def _answer(self, *, is_idle: bool) -> None:
        self._answered = self._reader.count
        with contextlib.suppress(OSError):
            send(self._sock, self._casts.tell(self._answered, is_idle=is_idle))


def main() -> None:
    # A signal to the whole group or unit is for the recorder; this process ends with it.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    give_way()
    # It knows the secrets.
    hide()
    with socket.socket(fileno=0) as sock, contextlib.suppress(EOFError, OSError):
        SpoolWriter(sock, receive_terms(sock)).run()
