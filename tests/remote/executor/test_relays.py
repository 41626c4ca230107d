"""What an executor chooses for its relay."""

from __future__ import annotations

import msgspec
import pytest

from exec_server.limits import DEFAULT_LIMITS
from exec_server.protocol.base64 import encode_base64
from exec_server.protocol.process import OUTPUT_TAIL, EventTexts, output_middle
from exec_server.relay.records import RECORD_BYTES, split
from exec_server.remote.executor.relays import noise_output
from tests.requirements import requirement


@requirement("relay/records:full-output")
@pytest.mark.parametrize("seq", [1, 10**12])
@pytest.mark.parametrize("process_id", ["p", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "x" * 300])
def test_output_in_bulk_fills_its_records(process_id, seq):
    size = noise_output(DEFAULT_LIMITS).bulk_chunk_bytes
    head = EventTexts(process_id).output_head + str(seq).encode()
    body = encode_base64(bytes(size))
    found = list(split(head, output_middle("stdout"), body, OUTPUT_TAIL))
    assert len(found) == 4
    assert min(map(len, found)) > 0.99 * RECORD_BYTES


@requirement("relay/records:full-output")
def test_larger_chunks_stay_as_they_are():
    larger = msgspec.structs.replace(DEFAULT_LIMITS, bulk_chunk_bytes=1 << 20)
    assert noise_output(larger) == larger
