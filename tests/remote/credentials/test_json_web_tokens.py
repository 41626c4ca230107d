"""JSON Web Tokens: which ones are read, and which ones are verified."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from exec_server.errors import ConfigurationError
from exec_server.remote.credentials.json_web_tokens import claims, expiry, verified_claims
from tests.requirements import requirement

SIGNER = generate_private_key(65537, 2048)
OTHER = generate_private_key(65537, 2048)
SHORT = generate_private_key(65537, 1024)


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(payload: bytes) -> str:
    return f"{base64url(b'{}')}.{base64url(payload)}."


def signed(
    key: Any = SIGNER, *, algorithm: str = "RS256", headers: dict[str, Any] | None = None
) -> str:
    return jwt.encode({"who": "us"}, key, algorithm, headers=headers or {"kid": "key-1"})


def public(key: RSAPrivateKey = SIGNER, **changes: object) -> dict[str, Any]:
    found = jwt.get_algorithm_by_name("RS256").to_jwk(key.public_key(), as_dict=True)
    return {**found, "kid": "key-1", **changes}


@requirement("remote/auth:agent-identity")
def test_a_token_is_verified_with_the_key_that_its_header_names():
    keys = {"keys": [public(OTHER, kid="key-0"), public(), public(OTHER, kid="key-2")]}
    assert verified_claims(signed(), keys) == {"who": "us"}


@requirement("remote/auth:agent-identity")
@pytest.mark.parametrize(
    "keys",
    [
        *(None, [], {}, {"keys": None}, {"keys": [1, None, "x"]}),
        {"keys": [public(kid="key-2")]},
        {"keys": [public(kty="EC")]},
        {"keys": [public(n=1)]},
        {"keys": [public(e=[])]},
        {"keys": [public(n="")]},
        {"keys": [{"kty": "RSA", "kid": "key-1"}]},
    ],
)
def test_a_token_of_an_unknown_key_is_refused(keys):
    with pytest.raises(ConfigurationError, match="unknown key"):
        verified_claims(signed(), keys)


@requirement("remote/auth:agent-identity")
def test_a_key_may_name_any_algorithm_and_its_private_half():
    additions: list[dict[str, object]] = [{"alg": "RS512"}, {"alg": []}, {"d": "AQAB"}]
    for more in additions:
        assert verified_claims(signed(), {"keys": [public(SIGNER, **more)]}) == {"who": "us"}


@requirement("remote/auth:agent-identity")
def test_a_token_that_another_key_has_signed_is_refused():
    with pytest.raises(ConfigurationError, match="signature"):
        verified_claims(signed(OTHER), {"keys": [public()]})
    with pytest.raises(ConfigurationError, match="signature"):
        verified_claims(signed().rpartition(".")[0] + ".", {"keys": [public()]})


@requirement("remote/auth:agent-identity")
def test_a_token_with_another_algorithm_is_refused():
    # Such tokens have been forged with the public key as the secret of HS256.
    pem = SIGNER.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    secret = base64url(pem)
    tokens = [
        signed(secret, algorithm="HS256"),
        signed(algorithm="RS512"),
        signed(algorithm="PS256"),
        signed(None, algorithm="none"),
        unsigned(b"{}"),
    ]
    for token in tokens:
        with pytest.raises(ConfigurationError, match="not signed with RS256"):
            verified_claims(token, {"keys": [public()]})


@requirement("remote/auth:agent-identity")
def test_a_key_that_is_too_short_is_refused():
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = signed(SHORT)
    with pytest.raises(ConfigurationError, match="too short"):
        verified_claims(token, {"keys": [public(SHORT)]})


@pytest.mark.parametrize(
    "token",
    [
        *("", "x", "a.b", "a.b.c.d", "\udcff", "at-personal"),
        unsigned(b"{}") + ".x",
        unsigned(b"[]"),
        unsigned(b"not json"),
        unsigned(b'{"exp": NaN}'),
        unsigned(b"\xff"),
        f"{base64url(json.dumps({'kid': 1}).encode())}.{base64url(b'{}')}.",
    ],
)
def test_what_is_not_a_token_is_refused_without_its_words(token):
    with pytest.raises(ConfigurationError, match=r"^the token is (not a JWT|malformed)$"):
        claims(token)
    with pytest.raises(ConfigurationError, match=r"^the token is (not a JWT|malformed)$"):
        verified_claims(token, {"keys": [public()]})
    assert expiry(token) is None


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"exp": 12}', 12.0),
        (b'{"exp": 12.5}', 12.5),
        (b'{"exp": "12"}', None),
        (b"{}", None),
        (b'{"exp": 1%s}' % (b"0" * 400), None),
    ],
)
def test_a_token_may_say_when_it_expires(payload, expected):
    assert expiry(unsigned(payload)) == expected
