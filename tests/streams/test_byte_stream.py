"""Two ends of a stream over a connection that is cut again and again."""

from __future__ import annotations

import random
from collections import deque

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from exec_server.protocol import streams
from exec_server.protocol.base64 import encode_base64
from exec_server.protocol.envelope import Notification, decode, encode_notification
from exec_server.rpc import boundary
from exec_server.streams.byte_stream import ACK_BYTES, CHUNK_BYTES, ByteStream
from exec_server.streams.turns import StreamTurns
from tests.requirements import requirement


class End:
    """A ByteStream with its wire and its user; what it sends waits in a queue."""

    def __init__(self, window):
        self.turns = StreamTurns()
        self.sent: deque[bytes] = deque()
        self.got = bytearray()
        self.has_end = self.is_over = False
        self.reset_by = None
        self.untaken = 0
        self.stream = ByteStream("s", self, window=window)
        self.stream.use(self)
        self.turns.open()

    def send_bulk(self, before, data, after):
        self.sent.append(before + encode_base64(data) + after)

    def send_event(self, event, params):
        self.sent.append(encode_notification(event.name, boundary.encode(params)))

    def stream_over(self, stream):
        self.is_over = True

    def data_received(self, data):
        self.got += data
        self.untaken += len(data)

    def take(self):
        taken, self.untaken = self.untaken, 0
        self.stream.took(taken)
        if self.has_end:
            self.stream.took_end()

    def end_received(self, *, is_closed):
        self.has_end = True

    def window_opened(self):
        pass

    def was_reset(self, reason):
        self.reset_by = reason

    def was_finished(self):
        pass

    def hear(self, message):
        found = decode(message)
        assert isinstance(found, Notification)
        event = streams.FROM_CLIENTS[found.method]
        params = boundary.decode_params(event.params, found.params)
        if isinstance(params, streams.DataEvent):
            self.stream.data_arrived(params.position, params.chunk.data)
        elif isinstance(params, streams.StreamAckEvent):
            self.stream.acknowledged(params.position)
        elif isinstance(params, streams.EndEvent):
            self.stream.end_arrived(params.position, is_closed=params.closed)
        else:
            self.stream.reset_arrived(params.reason)


def settle(ends, draw, cuts):
    """Carry messages, take data and cut the connection, until nothing more happens."""
    for _ in range(10_000):
        choice = draw.random()
        if cuts and choice < 0.05:
            cuts -= 1
            reconnect(ends)
        movable = [end for end in ends if end.sent]
        if movable:
            end = draw.choice(movable)
            ends[end is ends[0]].hear(end.sent.popleft())
        elif any(end.untaken or end.has_end for end in ends) and not all(e.is_over for e in ends):
            for end in ends:
                end.take()
            if not any(end.sent for end in ends):
                return
        else:
            return
    raise AssertionError("it never ends")


def reconnect(ends):
    """What was under way is lost, and both ends say what they have."""
    for end in ends:
        end.sent.clear()
        end.stream.detach()
        end.turns.close()
    one, other = ends
    positions = one.stream.position, other.stream.position
    for end, position in zip(ends, reversed(positions), strict=True):
        end.turns.open()
        if one.is_over or other.is_over:
            # The table of the server tells that it is over.
            end.stream.acknowledged(position)
            end.stream.reset_arrived("over")
        else:
            end.stream.resume(position)


@requirement("streams/lost:exact")
@given(
    st.lists(st.binary(max_size=300), max_size=8),
    st.lists(st.binary(max_size=300), max_size=8),
    st.integers(1, 400),
    st.integers(0, 6),
    st.integers(0, 1 << 30),
)
def test_any_cuts_leave_the_bytes_as_they_were(there, back, window, cuts, seed):
    draw = random.Random(seed)
    ends = End(window), End(window)
    for end, pieces in zip(ends, (there, back), strict=True):
        for piece in pieces:
            end.stream.write(piece)
        end.stream.end()
    settle(ends, draw, cuts)
    assert bytes(ends[1].got) == b"".join(there)
    assert bytes(ends[0].got) == b"".join(back)
    assert ends[0].has_end and ends[1].has_end
    assert ends[0].is_over and ends[1].is_over


@requirement("streams/wire:malformed")
def test_more_than_the_window_or_a_gap_breaks_the_stream_off():
    end = End(100)
    end.stream.data_arrived(5, b"x")
    assert "missing" in (end.reset_by or "")
    end = End(100)
    for position in range(0, 1 << 20, 1 << 16):
        end.stream.data_arrived(position, bytes(1 << 16))
    assert "window" in (end.reset_by or "")
    assert msgspec.json.decode(end.sent[-1])["method"] == "stream/reset"


def test_what_is_closed_takes_nothing_and_ends_the_other_side():
    one, other = ends = End(1000), End(1000)
    one.stream.write(b"last words")
    one.stream.close()
    other.stream.write(b"not read")
    settle(ends, random.Random(1), 0)
    other.take()
    settle(ends, random.Random(1), 0)
    assert bytes(other.got) == b"last words" and bytes(one.got) == b""
    assert one.is_over and other.is_over


def test_turns_are_given_one_after_the_other():
    turns, log = StreamTurns(), []

    class Sender:
        def __init__(self, name, count):
            self.name, self.count = name, count

        def take_turn(self):
            log.append(self.name)
            self.count -= 1
            if len(log) == 5:
                turns.close()
            return self.count > 0

    for each in (Sender("a", 9), Sender("b", 1), Sender("c", 9)):
        turns.wait(each)
        turns.wait(each)
    turns.open()
    assert log == ["a", "b", "c", "a", "c"]
    turns.open()
    assert log[5:8] == ["a", "c", "a"]


def test_what_came_before_its_user_is_given_in_pieces():
    class Pieces(End):
        def __init__(self, window):
            self.sizes = []
            super().__init__(window)

        def data_received(self, data):
            self.sizes.append(len(data))
            super().data_received(data)

    pieces = Pieces(1 << 22)
    stream = ByteStream("s", pieces, window=1 << 22)
    data = random.Random(7).randbytes(3 * CHUNK_BYTES + 5)
    for start in range(0, len(data), 65536):
        stream.data_arrived(start, data[start : start + 65536])
    stream.use(pieces)
    assert pieces.got == data
    # A user that pauses after the first piece has taken no more than that.
    assert pieces.sizes == [CHUNK_BYTES] * 3 + [5]


def acknowledged_to(end):
    """The positions that *end* has acknowledged."""
    texts = [msgspec.json.decode(each) for each in end.sent]
    return [each["params"]["position"] for each in texts if each["method"] == "stream/ack"]


@requirement("streams/wire:delay")
def test_an_end_that_hears_often_sends_little_at_first_and_an_old_one_all_of_its_window():
    window, data = 1 << 22, bytes(1 << 22)
    old, new = End(window), End(window)
    new.stream.other_end_acknowledges(ACK_BYTES)
    for end in (old, new):
        end.stream.write(data)
    assert old.stream.unsent_bytes == 0
    assert len(data) - new.stream.unsent_bytes <= 3 * CHUNK_BYTES
    assert new.stream.room == 0
    # Both acknowledge often.
    old.stream.data_arrived(0, bytes(ACK_BYTES))
    old.take()
    assert acknowledged_to(old)[-1:] == [ACK_BYTES]


@requirement("streams/wire:delay")
def test_the_other_end_is_believed_only_if_its_acknowledgements_are_often_enough():
    end = End(1 << 22)
    end.stream.other_end_acknowledges(1 << 20)
    end.stream.write(bytes(1 << 22))
    assert end.stream.unsent_bytes == 0


@requirement("streams/wire:window")
def test_a_user_hears_of_room_after_the_last_bytes_have_left():
    """Nothing else may come: too little is under way for another acknowledgement."""

    class Waiting(End):
        unsent = None

        def window_opened(self):
            self.unsent = self.stream.unsent_bytes

    end = Waiting(1000)
    end.stream.write(bytes(900))
    end.stream.write(bytes(900))
    end.stream.write(bytes(100))
    assert end.stream.unsent_bytes == 100
    end.stream.acknowledged(900)
    assert end.unsent == 0
