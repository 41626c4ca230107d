"""The harness's half of the handshake, and the keys of a stream.

It is written from the specification of the wire, apart from the package `relay`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PROTOCOL = b"Noise_hybridIK_25519+MLKEM768_AESGCM_SHA256"
SUITE = "Noise_hybridIK_X25519+MLKEM768_AESGCM_SHA256"
_DOMAIN = b"codex-exec-server-relay-noise/v1"
_TAG = 16
_X25519, _MLKEM, _CIPHERTEXT = 32, 1184, 1088
# Two ciphertexts of the KEM, the keys, and the tags of one ciphertext and of the empty payload.
MESSAGE_2_BYTES = 2 * _CIPHERTEXT + _TAG + _X25519 + _MLKEM + _TAG


class PublicKey(NamedTuple):
    """Both public keys of a party."""

    x25519: bytes
    mlkem: bytes

    def as_json(self) -> dict[str, str]:
        return {
            "suite": SUITE,
            "x25519_public_key": base64.b64encode(self.x25519).decode(),
            "mlkem768_public_key": base64.b64encode(self.mlkem).decode(),
        }

    @classmethod
    def from_json(cls, told: Any) -> PublicKey:
        """The keys in an answer of a registry. Raises ValueError."""
        if not isinstance(told, dict) or told.get("suite") != SUITE:
            raise ValueError("a public key of another suite")
        x25519, mlkem = (
            base64.b64decode(told[f"{name}_public_key"], validate=True)
            for name in ("x25519", "mlkem768")
        )
        if (len(x25519), len(mlkem)) != (_X25519, _MLKEM):
            raise ValueError(f"public keys of {len(x25519)} and {len(mlkem)} bytes")
        return cls(x25519, mlkem)


class KitKeyPair:
    """Both key pairs of a party."""

    def __init__(
        self, x25519: X25519PrivateKey | None = None, mlkem: MLKEM768PrivateKey | None = None
    ) -> None:
        self.x25519 = x25519 or X25519PrivateKey.generate()
        self.mlkem = mlkem or MLKEM768PrivateKey.generate()
        self.public = PublicKey(
            self.x25519.public_key().public_bytes_raw(), self.mlkem.public_key().public_bytes_raw()
        )

    def agree(self, peer: bytes) -> bytes:
        return self.x25519.exchange(X25519PublicKey.from_public_bytes(peer))


def prologue(environment_id: str, registration_id: str, stream_id: str) -> bytes:
    parts = (_DOMAIN, environment_id.encode(), registration_id.encode(), stream_id.encode())
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


class KitSymmetric:
    """The hash and the chaining key of a handshake."""

    def __init__(self, name: bytes) -> None:
        self.hash = self.chain = hashlib.sha256(name).digest()
        self._key: bytes | None = None
        self._count = 0

    def mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def mix_key(self, secret: bytes) -> None:
        self.chain, key = _derived(self.chain, secret, 2)
        self._key, self._count = key, 0

    def mix_key_and_hash(self, secret: bytes) -> None:
        self.chain, mixed, key = _derived(self.chain, secret, 3)
        self.mix_hash(mixed)
        self._key, self._count = key, 0

    def seal(self, plain: bytes) -> bytes:
        sealed = plain
        if self._key is not None:
            sealed = AESGCM(self._key).encrypt(self._nonce(), plain, self.hash)
        self.mix_hash(sealed)
        return sealed

    def open(self, sealed: bytes) -> bytes:
        plain = sealed
        if self._key is not None:
            plain = AESGCM(self._key).decrypt(self._nonce(), sealed, self.hash)
        self.mix_hash(sealed)
        return plain

    def split(self) -> tuple[bytes, bytes]:
        first, second = _derived(self.chain, b"", 2)
        return first, second

    def _nonce(self) -> bytes:
        self._count += 1
        return nonce(self._count - 1)


class StreamKeys:
    """The keys of a stream, for records in both directions."""

    def __init__(self, to_executor: bytes, to_harness: bytes) -> None:
        self._to_executor, self._to_harness = AESGCM(to_executor), AESGCM(to_harness)

    def seal(self, seq: int, plain: bytes) -> bytes:
        return self._to_executor.encrypt(nonce(seq), plain, None)

    def open(self, seq: int, record: bytes) -> bytes:
        """Raises ValueError if the record was changed."""
        try:
            return self._to_harness.decrypt(nonce(seq), record, None)
        except InvalidTag:
            raise ValueError(f"record {seq} does not have the right tag") from None


class KitHandshake:
    """One handshake of a harness."""

    def __init__(
        self,
        static: KitKeyPair,
        executor: PublicKey,
        prologue: bytes,
        *,
        protocol: bytes = PROTOCOL,
    ) -> None:
        self.symmetric = KitSymmetric(protocol)
        self._static, self._executor = static, executor
        self.ephemeral = KitKeyPair()
        for known in (prologue, executor.x25519, executor.mlkem):
            self.symmetric.mix_hash(known)

    def message_1(self, authorization: bytes) -> bytes:
        state, ephemeral = self.symmetric, self.ephemeral
        secret, ciphertext = MLKEM768PublicKey.from_public_bytes(self._executor.mlkem).encapsulate()
        made = state.seal(ciphertext)
        state.mix_key_and_hash(secret)
        for key in ephemeral.public:
            state.mix_hash(key)
            made += key
        state.mix_key(ephemeral.agree(self._executor.x25519))
        for key in self._static.public:
            made += state.seal(key)
        state.mix_key(self._static.agree(self._executor.x25519))
        return made + state.seal(authorization)

    def finish(self, message_2: bytes) -> StreamKeys:
        """Read the executor's message. Raises ValueError if it is not as it must be."""
        if len(message_2) != MESSAGE_2_BYTES:
            raise ValueError(f"message 2 has {len(message_2)} bytes, not {MESSAGE_2_BYTES}")
        try:
            return StreamKeys(*self._finish(message_2))
        except InvalidTag:
            raise ValueError("message 2 does not have the right tag") from None

    def _finish(self, message_2: bytes) -> tuple[bytes, bytes]:
        state, at = self.symmetric, _CIPHERTEXT
        state.mix_hash(message_2[:at])
        state.mix_key(self.ephemeral.mlkem.decapsulate(message_2[:at]))
        sealed = message_2[at : at + _CIPHERTEXT + _TAG]
        state.mix_key_and_hash(self._static.mlkem.decapsulate(state.open(sealed)))
        at += len(sealed)
        x25519, mlkem = message_2[at : at + _X25519], message_2[at + _X25519 : -_TAG]
        state.mix_hash(x25519)
        state.mix_hash(mlkem)
        state.mix_key(self.ephemeral.agree(x25519))
        state.mix_key(self._static.agree(x25519))
        state.open(message_2[-_TAG:])
        return state.split()


def nonce(count: int) -> bytes:
    return bytes(4) + count.to_bytes(8, "big")


def _derived(chain: bytes, secret: bytes, count: int) -> list[bytes]:
    temporary = hmac.digest(chain, secret, "sha256")
    made = [b""]
    for n in range(1, count + 1):
        made.append(hmac.digest(temporary, made[-1] + bytes([n]), "sha256"))
    return made[1:]
