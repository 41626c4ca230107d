"""The keys of the relay's endpoints, X25519 and ML-KEM-768 side by side, and their JSON form."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from exec_server.errors import RelayError

# This name is in key objects; the handshake hashes another spelling of it.
SUITE = "Noise_hybridIK_X25519+MLKEM768_AESGCM_SHA256"
X25519_BYTES = 32
MLKEM_BYTES = 1184
CIPHERTEXT_BYTES = 1088
SEED_BYTES = 96

# The label keeps this digest different from any other digest of the same bytes.
_FINGERPRINT_LABEL = b"exec-server executor key v1"

_MEMBERS = {"suite", "x25519_public_key", "mlkem768_public_key"}
# The vector in an ML-KEM key; the rest of the key is a public seed.
_MLKEM_VECTOR = slice(0, 1152)


class PublicKeys:
    """The public keys that identify an endpoint.

    Raises RelayError for keys of a wrong length, for keys that are all zero, and for keys that
    ML-KEM forbids (unreduced coefficients). So every instance can be computed with.
    """

    __slots__ = ("_mlkem", "_x25519", "mlkem768", "x25519")

    def __init__(self, x25519: bytes, mlkem768: bytes) -> None:
        if len(x25519) != X25519_BYTES or len(mlkem768) != MLKEM_BYTES:
            raise RelayError("a public key has the wrong length")
        if not any(x25519) or not any(mlkem768[_MLKEM_VECTOR]):
            raise RelayError("a public key is all zero")
        self.x25519 = x25519
        self.mlkem768 = mlkem768
        try:
            self._x25519 = X25519PublicKey.from_public_bytes(x25519)
            self._mlkem = MLKEM768PublicKey.from_public_bytes(mlkem768)
        except ValueError:
            raise RelayError("a public key is malformed") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PublicKeys):
            return NotImplemented
        return self.x25519 == other.x25519 and self.mlkem768 == other.mlkem768

    def __hash__(self) -> int:
        return hash((self.x25519, self.mlkem768))

    def __repr__(self) -> str:
        return f"PublicKeys(x25519={self.x25519.hex()})"

    @property
    def fingerprint(self) -> str:
        """A short form of both keys for people to compare. It never changes."""
        digest = hashlib.sha256(_FINGERPRINT_LABEL + self.x25519 + self.mlkem768).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"

    def encapsulate(self) -> tuple[bytes, bytes]:
        """Return a new secret, and the ciphertext from which the owner of the keys recovers it."""
        return self._mlkem.encapsulate()

    def to_object(self) -> dict[str, str]:
        """Return the key object of the registry's API."""
        return {
            "suite": SUITE,
            "x25519_public_key": base64.b64encode(self.x25519).decode(),
            "mlkem768_public_key": base64.b64encode(self.mlkem768).decode(),
        }

    @classmethod
    def from_object(cls, value: Any) -> PublicKeys:
        """Read a decoded key object. Raises RelayError if it is not exactly one."""
        if not isinstance(value, dict) or value.keys() != _MEMBERS:
            raise RelayError("not a public key object")
        if value["suite"] != SUITE:
            raise RelayError("a public key has another suite")
        return cls(
            _from_base64(value["x25519_public_key"]), _from_base64(value["mlkem768_public_key"])
        )


def _from_base64(text: object) -> bytes:
    if not isinstance(text, str):
        raise RelayError("a public key is not a text")
    try:
        raw = base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise RelayError("a public key is not base64") from None
    if base64.b64encode(raw).decode() != text:
        raise RelayError("a public key is not canonical base64")
    return raw


class KeyPair:
    """The secret and public keys of one endpoint, or of one handshake."""

    __slots__ = ("_mlkem", "_x25519", "public")

    def __init__(self, seed: bytes) -> None:
        """Take *seed*, 96 random bytes: the X25519 secret, then d and z of FIPS 203."""
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a key pair is made from {SEED_BYTES} bytes")
        self._x25519 = X25519PrivateKey.from_private_bytes(seed[:X25519_BYTES])
        self._mlkem = MLKEM768PrivateKey.from_seed_bytes(seed[X25519_BYTES:])
        self.public = PublicKeys(
            self._x25519.public_key().public_bytes_raw(),
            self._mlkem.public_key().public_bytes_raw(),
        )

    def exchange(self, peer: PublicKeys) -> bytes:
        """Return the Diffie-Hellman secret. Raises RelayError if the peer's key makes it zero."""
        try:
            return self._x25519.exchange(peer._x25519)
        except ValueError:
            raise RelayError("a public key has a small order") from None

    def decapsulate(self, ciphertext: bytes) -> bytes:
        """Return the secret in *ciphertext*; an unpredictable one if it was not made for us."""
        return self._mlkem.decapsulate(ciphertext)
