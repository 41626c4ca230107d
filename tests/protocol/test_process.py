"""The texts of process events are those that the generic encoder writes."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from exec_server.protocol import envelope, process
from exec_server.protocol.base64 import Blob, encode_base64
from exec_server.protocol.method import Event
from exec_server.rpc import boundary
from tests.requirements import requirement

SEQ = st.integers(1, 2**64 - 1)


def encoded(event: Event[Any], params: Any) -> bytes:
    return envelope.encode_notification(event.name, boundary.encode(params))


@given(st.text(), SEQ, st.sampled_from(get_args(process.Stream)), st.binary())
@requirement("process/events:texts")
def test_output(process_id, seq, stream, data):
    texts = process.EventTexts(process_id)
    middle = process.output_middle(stream)
    parts = texts.output_head, b"%d" % seq, middle, encode_base64(data), process.OUTPUT_TAIL
    params = process.OutputEvent(process_id, seq, stream, Blob(data))
    assert b"".join(parts) == encoded(process.OUTPUT, params)


@given(st.text(), SEQ, st.integers(-1, 255), st.booleans(), st.none() | st.text())
@requirement("process/events:texts")
def test_exited(process_id, seq, code, denied, lost):
    texts = process.EventTexts(process_id)
    text = texts.exited(seq, exit_code=code, sandbox_denied=denied, lost=lost)
    event = process.ExitedEvent(process_id, seq, code, denied, UNSET if lost is None else lost)
    assert text == encoded(process.EXITED, event)


@given(st.text(), SEQ)
@requirement("process/events:texts")
def test_closed(process_id, seq):
    text = process.EventTexts(process_id).closed(seq)
    assert text == encoded(process.CLOSED, process.ClosedEvent(process_id, seq))


# Members of a write: as clients send them, and as they should not.
TEXTS = st.text(max_size=3)
CHUNKS = st.binary(max_size=5).map(lambda data: encode_base64(data).decode()) | st.sampled_from(
    ("A", "AB==", "QQ", "QQ==\n", "=", "Q===")
)
ANYTHING = st.none() | st.integers() | st.booleans() | st.lists(TEXTS, max_size=1)
WRITES = st.fixed_dictionaries(
    {"processId": TEXTS, "chunk": CHUNKS, "writeId": TEXTS}
) | st.dictionaries(
    st.sampled_from(("processId", "chunk", "writeId", "process_id", "more")),
    TEXTS | CHUNKS | CHUNKS.map(lambda text: Blob(text.encode())) | ANYTHING,
)


@given(WRITES | ANYTHING)
def test_the_usual_write_is_decoded_as_all_others(params):
    usual = process.usual_write(params)
    assert usual is None or usual == boundary.decode_params(process.WriteParams, params)


def test_a_write_with_an_id_is_usual():
    params = {"processId": "p", "chunk": "QQ==", "writeId": "w"}
    assert process.usual_write(params) == process.WriteParams("p", Blob(b"A"), "w")
    assert process.usual_write(params | {"chunk": Blob(b"A"), "more": 1}) is not None
