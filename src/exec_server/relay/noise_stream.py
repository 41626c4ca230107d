"""One encrypted stream after its handshake: from data frames to messages, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.relay import records
from exec_server.relay.effects import Send
from exec_server.relay.frame import LARGE_BYTES, ROOM, Data, DataEncoder, DataHeads, StreamId, Trace
from exec_server.relay.inbox import Inbox
from exec_server.relay.noise import TAG_BYTES, Channel
from exec_server.relay.reorder import Reorder


class NoiseStream:
    """Both directions of a stream. It cannot be used after a RelayError."""

    __slots__ = (
        "_assembler",
        "_encoder",
        "_heads",
        "_limits",
        "_opener",
        "_reorder",
        "_sealer",
        "inbox",
    )

    def __init__(
        self, stream_id: StreamId, channel: Channel, *, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._limits = limits
        self._sealer = channel.sealer
        self._opener = channel.opener
        self._encoder = DataEncoder(stream_id)
        # The heads of the frames that come.
        self._heads = DataHeads(stream_id)
        self._reorder = Reorder(limits=limits)
        self._assembler = records.RecordAssembler(limits=limits)
        self.inbox = Inbox(limits=limits)

    def join_with(self, join: records.Join) -> None:
        """Let *join* make the messages that come in several records."""
        self._assembler.join = join

    def receive(self, data: Data) -> Sequence[bytes]:
        """Return the messages that *data* completes; none while the reader has paused.

        Raises RelayError for a frame that no correct peer sends; nothing of it is delivered.
        """
        messages: list[bytes] = []
        for record in self._reorder.receive(data.seq, data.payload):
            messages += self._assembler.receive(self._opener.open(record))
        return self.inbox.receive(messages)

    def receive_next(self, frame: bytes | memoryview) -> Sequence[bytes] | None:
        """`receive` for a large frame that comes in its turn; None for any other one.

        In bulk nearly all frames are like this.
        """
        seq = self._reorder.next_seq
        if seq is None or len(frame) < LARGE_BYTES:
            return None
        record = self._heads.payload(frame, seq)
        if record is None:
            return None
        self._reorder.release_next()
        messages = self._assembler.receive(self._opener.open(record))
        return self.inbox.receive(messages) if messages else messages

    def send(self, *parts: bytes, trace: Trace | None = None) -> Iterable[Send]:
        """Return the frames of one message, given in pieces; the first shows *trace* in clear text.

        The frames of a long message are made one by one; take them all before the next call.
        Raises RelayError, before the first frame, if no peer would accept the message or all
        sequence numbers are used.
        """
        found = records.split(*parts, limits=self._limits)
        self._sealer.check_room(len(found))
        if isinstance(found, records.Records):
            return self._frames(found, trace)
        return [self._frame(record, trace) for record in found]

    def _frames(self, found: records.Records, trace: Trace | None) -> Iterator[Send]:
        for record in found:
            yield self._frame(record, trace)
            trace = None

    def _frame(self, record: bytes | memoryview, trace: Trace | None) -> Send:
        size = len(record) + TAG_BYTES
        buffer, at = self._encoder.frame(self._sealer.next_seq, size, trace)
        self._sealer.seal_into(record, memoryview(buffer)[at : at + size])
        return Send(buffer, ROOM)
