"""Handshakes that were recorded with the reference, reproduced to the byte."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exec_server.relay import records
from exec_server.relay.frame import Data, DataEncoder, Handshake, RelayFrame, decode, encode
from exec_server.relay.keys import SUITE, KeyPair, PublicKeys
from exec_server.relay.noise import PROTOCOL_NAME, Channel, Initiator, Responder, prologue
from tests.relay import mlkem
from tests.relay.ends import written
from tests.requirements import requirement

RECORDED = json.loads((Path(__file__).parent / "noise_hybrid_ik.json").read_text())
VECTORS = RECORDED["vectors"]
WHOLE_FRAMES = [f for f in RECORDED["captured_frames"] if not f["hex"].endswith("...")]


class Vector:
    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        self.prologue = prologue(
            raw["environment_id"], raw["executor_registration_id"], raw["stream_id"]
        )

    def raw_bytes(self, name: str) -> bytes:
        return bytes.fromhex(self.raw[name])

    def keys(self, name: str) -> KeyPair:
        raw = self.raw[name]
        seed = raw["x25519_private"] + raw["mlkem768_seed_d"] + raw["mlkem768_seed_z"]
        pair = KeyPair(bytes.fromhex(seed))
        assert pair.public.x25519.hex() == raw["x25519_public"]
        assert pair.public.mlkem768.hex() == raw["mlkem768_public"]
        return pair

    def encapsulate(self, *names: str) -> Callable[[PublicKeys], tuple[bytes, bytes]]:
        """Encapsulation that draws the named recorded values, in their order."""
        draws = iter(names)
        return lambda keys: mlkem.encapsulate(keys.mlkem768, self.raw_bytes(next(draws)))

    def initiator(self) -> Initiator:
        return Initiator(
            self.keys("initiator_static"),
            self.keys("responder_static").public,
            prologue=self.prologue,
            ephemeral=self.keys("initiator_ephemeral"),
            encapsulate=self.encapsulate("initiator_skem_m"),
        )

    def channels(self) -> tuple[Channel, Channel]:
        """Return initiator and responder with the recorded keys."""
        initiator = self.initiator()
        initiator.write(self.raw_bytes("authorization_payload"))
        responder = Responder(
            self.keys("responder_static"), self.raw_bytes("message1"), prologue=self.prologue
        )
        _, channel = responder.write(
            self.keys("responder_ephemeral"),
            encapsulate=self.encapsulate("responder_ekem_m", "responder_skem_m"),
        )
        return initiator.read(self.raw_bytes("message2")), channel


@pytest.fixture(params=VECTORS, ids=lambda raw: raw["name"])
def vector(request) -> Vector:
    return Vector(request.param)


@requirement("relay/noise:vectors", "relay/noise:prologue")
def test_names_and_prologue_are_as_recorded(vector):
    assert vector.prologue == vector.raw_bytes("prologue")
    assert vector.raw["protocol_name"].encode() == PROTOCOL_NAME
    assert vector.raw["suite_tag"] == SUITE


@requirement("relay/noise:vectors")
def test_the_initiator_writes_what_was_recorded(vector):
    initiator = vector.initiator()
    assert initiator.write(vector.raw_bytes("authorization_payload")) == vector.raw_bytes(
        "message1"
    )
    channel = initiator.read(vector.raw_bytes("message2"))
    assert channel.handshake_hash == vector.raw_bytes("handshake_hash")


@requirement("relay/noise:vectors")
def test_the_responder_writes_what_was_recorded(vector):
    responder = Responder(
        vector.keys("responder_static"), vector.raw_bytes("message1"), prologue=vector.prologue
    )
    assert responder.payload == vector.raw_bytes("authorization_payload")
    assert responder.initiator == vector.keys("initiator_static").public
    message, channel = responder.write(
        vector.keys("responder_ephemeral"),
        encapsulate=vector.encapsulate("responder_ekem_m", "responder_skem_m"),
    )
    assert message == vector.raw_bytes("message2")
    assert channel.handshake_hash == vector.raw_bytes("handshake_hash")


@requirement("relay/noise:vectors")
def test_records_are_sealed_and_opened_as_recorded(vector):
    initiator, responder = vector.channels()
    ends = {
        "i2r": (initiator.sealer, responder.opener),
        "r2i": (responder.sealer, initiator.opener),
    }
    whole = [record for record in vector.raw["records"] if "plaintext" in record]
    assert whole
    for record in whole:
        sealer, opener = ends[record["direction"]]
        # Some records are not in the file.
        sealer.next_seq = opener.next_seq = record["nonce"]
        assert sealer.seal(bytes.fromhex(record["plaintext"])).hex() == record["ciphertext"]
        assert opener.open(bytes.fromhex(record["ciphertext"])).hex() == record["plaintext"]


@requirement("relay/noise:vectors", "relay/records:split")
def test_a_large_message_is_cut_where_the_reference_cuts_it():
    vector = Vector(VECTORS[0])
    large = [record for record in vector.raw["records"] if "plaintext_sha256" in record]
    content = base64.b64encode(bytes(range(256)) * 400).decode()
    prefix = bytes.fromhex(large[0]["plaintext_prefix"])
    request_id = json.loads(prefix[4:].split(b",")[0] + b"}")["id"]
    message = f'{{"id":{request_id},"result":{{"dataBase64":"{content}"}}}}'.encode()
    sealer = vector.channels()[1].sealer
    sealer.next_seq = large[0]["nonce"]
    for record, expected in zip(records.split(message), large, strict=True):
        assert len(record) == expected["plaintext_len"]
        assert hashlib.sha256(record).hexdigest() == expected["plaintext_sha256"]
        assert hashlib.sha256(sealer.seal(record)).hexdigest() == expected["ciphertext_sha256"]


@requirement("relay/frame:bytes")
@pytest.mark.parametrize("captured", WHOLE_FRAMES)
def test_a_captured_frame_is_written_again_to_the_byte(captured):
    data = bytes.fromhex(captured["hex"])
    frame = decode(data)
    assert encode(frame) == data and len(data) == captured["size"]
    if isinstance(frame.body, Data):
        encoder = DataEncoder(frame.stream_id)
        assert written(encoder, frame.body.seq, bytes(frame.body.payload)) == data


@requirement("relay/frame:bytes")
@pytest.mark.parametrize(
    "captured", [f for f in RECORDED["captured_frames"] if f["kind"] == "handshake"]
)
def test_a_handshake_frame_has_the_captured_head_and_size(captured):
    (raw,) = (v for v in VECTORS if v["name"].endswith(captured["vector"]))
    name = "message1" if captured["direction"] == "harness_to_executor" else "message2"
    data = encode(RelayFrame(raw["stream_id"], Handshake(bytes.fromhex(raw[name]))))
    assert len(data) == captured["size"]
    assert data.hex().startswith(captured["hex"].removesuffix("..."))
