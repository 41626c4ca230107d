"""The packets between the server and the host of models: MessagePack arrays, one a packet."""

from __future__ import annotations

import msgspec


class OpenModel(msgspec.Struct, array_like=True, tag="open"):
    """Make a model. Baselines are kept for the versions in *wanted*, which waits begin after."""

    model: int
    columns: int
    rows: int
    rebuilt: int = 0
    wanted: tuple[int, ...] = ()


class Feed(msgspec.Struct, array_like=True, tag="feed"):
    """Output with its number; queries in a replay were answered before."""

    model: int
    seq: int
    data: bytes
    is_replay: bool = False
    # True if more of the same output follows.
    is_partial: bool = False


class Size(msgspec.Struct, array_like=True, tag="size"):
    model: int
    columns: int
    rows: int
    # How many sizes it had before.
    resizes: int


class Miss(msgspec.Struct, array_like=True, tag="miss"):
    """Output up to this number is lost."""

    model: int
    seq: int


class Exit(msgspec.Struct, array_like=True, tag="exit"):
    model: int
    seq: int
    exit_code: int | None


class Drop(msgspec.Struct, array_like=True, tag="drop"):
    model: int


class Question(msgspec.Struct, array_like=True, tag="ask"):
    """A question about a model, with its parameters as JSON."""

    model: int
    call: int
    what: str
    params: bytes


class Cancel(msgspec.Struct, array_like=True, tag="cancel"):
    model: int
    call: int


ToHost = OpenModel | Feed | Size | Miss | Exit | Drop | Question | Cancel


class Ready(msgspec.Struct, array_like=True, tag="ready"):
    engine: str


class AnswerPart(msgspec.Struct, array_like=True, tag="part"):
    """A piece of an answer; with a code it is the text of an error."""

    call: int
    data: bytes
    is_last: bool
    code: int | None = None


class Reply(msgspec.Struct, array_like=True, tag="reply"):
    """What the terminal answers to a query of its program, in the output with this number."""

    model: int
    seq: int
    data: bytes


class Checkpoint(msgspec.Struct, array_like=True, tag="checkpoint"):
    """The dump of a model up to a number, from which it can be made again."""

    model: int
    seq: int
    dump: bytes


FromHost = Ready | AnswerPart | Reply | Checkpoint

encode = msgspec.msgpack.Encoder().encode
decode_to_host = msgspec.msgpack.Decoder(ToHost).decode
decode_from_host = msgspec.msgpack.Decoder(FromHost).decode

# The data of one packet; the kernel's default buffers take three of them.
PART_BYTES = 64 * 1024
PACKET_BYTES = PART_BYTES + 4096
