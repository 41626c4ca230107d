"""Key pairs, and the objects that name them to the registry."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import RelayError
from exec_server.relay.keys import KeyPair, PublicKeys
from tests.relay.ends import EXECUTOR, HARNESS, STRANGER
from tests.requirements import requirement

PUBLIC = EXECUTOR.public
OBJECT = PUBLIC.to_object()
# Points of order 2, 4 and 8 with which every exchange gives zero.
SMALL_ORDER = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


def test_a_key_object_comes_back_the_same():
    assert PublicKeys.from_object(json.loads(json.dumps(OBJECT))) == PUBLIC
    assert len(OBJECT["x25519_public_key"]) == 44
    assert len(OBJECT["mlkem768_public_key"]) == 1580
    assert hash(PublicKeys.from_object(OBJECT)) == hash(PUBLIC)
    assert PUBLIC != HARNESS.public and PUBLIC != OBJECT


def changed(**members: object) -> dict[str, object]:
    return {**OBJECT, **members}


@requirement("relay/keys:object")
@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "key",
        {},
        changed(more=1),
        {name: text for name, text in OBJECT.items() if name != "suite"},
        changed(suite="Noise_hybridIK_25519+MLKEM768_AESGCM_SHA256"),
        changed(x25519_public_key=None),
        changed(x25519_public_key="ü"),
        changed(x25519_public_key="\ud800"),
        changed(x25519_public_key=OBJECT["x25519_public_key"].rstrip("=")),
        changed(x25519_public_key=OBJECT["x25519_public_key"] + "\n"),
        changed(x25519_public_key=base64.b64encode(bytes([1]) * 31).decode()),
        changed(mlkem768_public_key=OBJECT["x25519_public_key"]),
        changed(mlkem768_public_key=OBJECT["mlkem768_public_key"].replace("=", "!")),
    ],
)
def test_anything_else_is_no_key_object(value):
    with pytest.raises(RelayError):
        PublicKeys.from_object(value)


@requirement("relay/keys:object")
def test_bits_that_base64_does_not_use_have_to_be_zero():
    text = OBJECT["x25519_public_key"]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    spelled = text[:42] + alphabet[alphabet.index(text[42]) + 1] + "="
    assert base64.b64decode(spelled) == base64.b64decode(text)
    with pytest.raises(RelayError):
        PublicKeys.from_object(changed(x25519_public_key=spelled))


@requirement("relay/noise:weak-keys")
@pytest.mark.parametrize(
    ("x25519", "mlkem768"),
    [
        (bytes(32), PUBLIC.mlkem768),
        (PUBLIC.x25519, bytes(1184)),
        (PUBLIC.x25519, bytes(1152) + PUBLIC.mlkem768[1152:]),
        # 4095 is not reduced modulo 3329.
        (PUBLIC.x25519, b"\xff\xff\xff" + PUBLIC.mlkem768[3:]),
        (PUBLIC.x25519, (3329).to_bytes(2, "little") + b"\0" + PUBLIC.mlkem768[3:]),
        (PUBLIC.x25519[1:], PUBLIC.mlkem768),
        (PUBLIC.x25519, PUBLIC.mlkem768 + b"\0"),
        (b"", b""),
    ],
)
def test_a_key_without_a_secret_is_refused(x25519, mlkem768):
    with pytest.raises(RelayError):
        PublicKeys(x25519, mlkem768)


@requirement("relay/noise:weak-keys")
@pytest.mark.parametrize("point", SMALL_ORDER)
def test_an_exchange_with_a_point_of_small_order_is_refused(point):
    with pytest.raises(RelayError):
        HARNESS.exchange(PublicKeys(bytes.fromhex(point), PUBLIC.mlkem768))


def test_both_ends_of_an_exchange_agree():
    assert EXECUTOR.exchange(HARNESS.public) == HARNESS.exchange(EXECUTOR.public)
    secret, ciphertext = EXECUTOR.public.encapsulate()
    assert EXECUTOR.decapsulate(ciphertext) == secret != STRANGER.decapsulate(ciphertext)


@given(st.binary(max_size=200).filter(lambda seed: len(seed) != 96))
def test_a_key_pair_is_made_of_96_bytes(seed):
    with pytest.raises(ValueError, match="96 bytes"):
        KeyPair(seed)


@requirement("relay/secrets:hidden")
def test_keys_do_not_print_secrets():
    seed = bytes(range(96))
    assert seed[:32].hex() not in repr(KeyPair(seed)) and "0x" in repr(KeyPair(seed))
    assert len(repr(PUBLIC)) < 100
