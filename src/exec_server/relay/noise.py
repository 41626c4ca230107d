"""The hybrid Noise IK handshake, then two cipher states.

::

    <- s
    ...
    -> skem, e, es, s, ss       payload: why the executor should let the harness in
    <- ekem, skem, e, ee, se    payload: empty

Each `e` and `s` is an X25519 key and an ML-KEM-768 key. Keys and randomness are arguments. Anything
wrong with a message raises RelayError, and the handshake is over.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from exec_server.errors import RelayError
from exec_server.relay.frame import SEQ_END
from exec_server.relay.keys import CIPHERTEXT_BYTES, MLKEM_BYTES, X25519_BYTES, KeyPair, PublicKeys

# It says "25519" here and "X25519" in key objects; both ends hash this spelling.
PROTOCOL_NAME = b"Noise_hybridIK_25519+MLKEM768_AESGCM_SHA256"
MAX_MESSAGE = 65535
TAG_BYTES = 16

_PROLOGUE_LABEL = b"codex-exec-server-relay-noise/v1"

# Makes a new secret for the ML-KEM key of a peer, and returns (secret, ciphertext). The library
# draws the randomness itself; tests pass a function that uses known bytes.
Encapsulate = Callable[[PublicKeys], tuple[bytes, bytes]]


def prologue(environment_id: str, registration_id: str, stream_id: str) -> bytes:
    """Return the bytes on which both ends must agree before the first message."""
    parts = (
        _PROLOGUE_LABEL,
        *(text.encode() for text in (environment_id, registration_id, stream_id)),
    )
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


class Sealer:
    """Encrypts the records of one direction; they have the numbers of the relay's frames."""

    __slots__ = ("_cipher", "next_seq")

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self.next_seq = 0

    def check_room(self, count: int) -> None:
        """Raise RelayError unless there are numbers left for *count* more records."""
        if self.next_seq + count > SEQ_END:
            raise RelayError("the stream has used all its numbers")

    def seal(self, plaintext: bytes | memoryview) -> bytes:
        """Encrypt the record with the number `next_seq`, and increase that by one."""
        record = bytearray(len(plaintext) + TAG_BYTES)
        self.seal_into(plaintext, memoryview(record))
        return bytes(record)

    def seal_into(self, plaintext: bytes | memoryview, record: memoryview) -> None:
        """Do so where *record* is, which is longer by a tag."""
        if self.next_seq >= SEQ_END:
            raise RelayError("the stream has used all its numbers")
        self._cipher.encrypt_into(_nonce(self.next_seq), plaintext, None, record)
        self.next_seq += 1


class Opener:
    """Decrypts the records of the other direction, in the order of their numbers."""

    __slots__ = ("_cipher", "next_seq")

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self.next_seq = 0

    def open(self, record: bytes | memoryview) -> bytes:
        """Decrypt the record with the number `next_seq`, and increase that by one."""
        if not TAG_BYTES <= len(record) <= MAX_MESSAGE:
            raise RelayError(f"a record of {len(record)} bytes")
        try:
            plaintext = self._cipher.decrypt(_nonce(self.next_seq), record, None)
        except InvalidTag:
            raise RelayError("a record does not decrypt") from None
        self.next_seq += 1
        return plaintext


def _nonce(counter: int) -> bytes:
    # Four zero bytes, then the counter in eight.
    return counter.to_bytes(12, "big")


class Channel:
    """The result of a handshake for one end: a cipher for each direction."""

    __slots__ = ("handshake_hash", "opener", "sealer")

    def __init__(self, sealing: bytes, opening: bytes, handshake_hash: bytes) -> None:
        self.sealer = Sealer(sealing)
        self.opener = Opener(opening)
        self.handshake_hash = handshake_hash


class _Symmetric:
    """Noise's SymmetricState: the hash of the transcript, and the keys made from the secrets."""

    __slots__ = ("_chaining_key", "_cipher", "_counter", "hash")

    def __init__(self, prologue: bytes, responder: PublicKeys) -> None:
        self.hash = self._chaining_key = hashlib.sha256(PROTOCOL_NAME).digest()
        self._cipher: AESGCM | None = None
        self._counter = 0
        for known in (prologue, responder.x25519, responder.mlkem768):
            self.mix_hash(known)

    def mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def mix_keys(self, keys: PublicKeys) -> None:
        self.mix_hash(keys.x25519)
        self.mix_hash(keys.mlkem768)

    def mix_key(self, secret: bytes) -> None:
        self._chaining_key, key = self._derive(secret, 2)
        self._use(key)

    def mix_key_and_hash(self, secret: bytes) -> None:
        self._chaining_key, mixed, key = self._derive(secret, 3)
        self.mix_hash(mixed)
        self._use(key)

    def split(self) -> tuple[bytes, bytes]:
        """Return the key from initiator to responder, and the key back."""
        forth, back = self._derive(b"", 2)
        return forth, back

    def _derive(self, secret: bytes, count: int) -> list[bytes]:
        root = hmac.digest(self._chaining_key, secret, "sha256")
        outputs: list[bytes] = []
        for number in range(1, count + 1):
            last = outputs[-1] if outputs else b""
            outputs.append(hmac.digest(root, last + bytes([number]), "sha256"))
        return outputs

    def _use(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._counter = 0

    def seal(self, plaintext: bytes) -> bytes:
        if self._cipher is None:
            sealed = plaintext
        else:
            sealed = self._cipher.encrypt(_nonce(self._counter), plaintext, self.hash)
            self._counter += 1
        self.mix_hash(sealed)
        return sealed

    def open(self, sealed: bytes) -> bytes:
        plaintext = sealed
        if self._cipher is not None:
            try:
                plaintext = self._cipher.decrypt(_nonce(self._counter), sealed, self.hash)
            except InvalidTag:
                raise RelayError("a handshake does not decrypt") from None
            self._counter += 1
        self.mix_hash(sealed)
        return plaintext


class _MessageReader:
    """Reads the parts of a handshake message."""

    __slots__ = ("_at", "_message")

    def __init__(self, message: bytes, shortest: int) -> None:
        if not shortest <= len(message) <= MAX_MESSAGE:
            raise RelayError(f"a handshake of {len(message)} bytes")
        self._message = message
        self._at = 0

    def take(self, size: int) -> bytes:
        piece = self._message[self._at : self._at + size]
        self._at += size
        return piece

    def rest(self) -> bytes:
        return self._message[self._at :]


_EPHEMERAL_BYTES = X25519_BYTES + MLKEM_BYTES
_SHORTEST_1 = CIPHERTEXT_BYTES + _EPHEMERAL_BYTES + _EPHEMERAL_BYTES + 3 * TAG_BYTES
_LENGTH_2 = 2 * CIPHERTEXT_BYTES + _EPHEMERAL_BYTES + 2 * TAG_BYTES


class Initiator:
    """The harness's end: writes message 1, reads message 2."""

    def __init__(
        self,
        static: KeyPair,
        responder: PublicKeys,
        *,
        prologue: bytes,
        ephemeral: KeyPair,
        encapsulate: Encapsulate = PublicKeys.encapsulate,
    ) -> None:
        self._static = static
        self._ephemeral = ephemeral
        self._responder = responder
        self._encapsulate = encapsulate
        self._symmetric = _Symmetric(prologue, responder)

    def write(self, payload: bytes) -> bytes:
        """Return message 1."""
        symmetric, static, ephemeral = self._symmetric, self._static.public, self._ephemeral.public
        secret, ciphertext = self._encapsulate(self._responder)
        skem = symmetric.seal(ciphertext)
        symmetric.mix_key_and_hash(secret)
        symmetric.mix_keys(ephemeral)
        symmetric.mix_key(self._ephemeral.exchange(self._responder))
        sealed = symmetric.seal(static.x25519) + symmetric.seal(static.mlkem768)
        symmetric.mix_key(self._static.exchange(self._responder))
        message = skem + ephemeral.x25519 + ephemeral.mlkem768 + sealed + symmetric.seal(payload)
        if len(message) > MAX_MESSAGE:
            raise RelayError(f"a handshake of {len(message)} bytes")
        return message

    def read(self, message: bytes) -> Channel:
        """Read message 2, whose payload must be empty."""
        reader, symmetric = _MessageReader(message, _LENGTH_2), self._symmetric
        ekem = reader.take(CIPHERTEXT_BYTES)
        symmetric.mix_hash(ekem)
        symmetric.mix_key(self._ephemeral.decapsulate(ekem))
        skem = symmetric.open(reader.take(CIPHERTEXT_BYTES + TAG_BYTES))
        symmetric.mix_key_and_hash(self._static.decapsulate(skem))
        theirs = PublicKeys(reader.take(X25519_BYTES), reader.take(MLKEM_BYTES))
        symmetric.mix_keys(theirs)
        symmetric.mix_key(self._ephemeral.exchange(theirs))
        symmetric.mix_key(self._static.exchange(theirs))
        if symmetric.open(reader.rest()):
            raise RelayError("the answer to a handshake carries a payload")
        forth, back = symmetric.split()
        return Channel(forth, back, symmetric.hash)


class Responder:
    """The executor's end: reads message 1, and writes message 2 once the harness is admitted."""

    def __init__(self, static: KeyPair, message: bytes, *, prologue: bytes) -> None:
        """Read message 1. `initiator` and `payload` are then set, and are authentic."""
        reader = _MessageReader(message, _SHORTEST_1)
        self._symmetric = symmetric = _Symmetric(prologue, static.public)
        skem = symmetric.open(reader.take(CIPHERTEXT_BYTES))
        symmetric.mix_key_and_hash(static.decapsulate(skem))
        self._theirs = PublicKeys(reader.take(X25519_BYTES), reader.take(MLKEM_BYTES))
        symmetric.mix_keys(self._theirs)
        symmetric.mix_key(static.exchange(self._theirs))
        self.initiator = PublicKeys(
            symmetric.open(reader.take(X25519_BYTES + TAG_BYTES)),
            symmetric.open(reader.take(MLKEM_BYTES + TAG_BYTES)),
        )
        symmetric.mix_key(static.exchange(self.initiator))
        self.payload = symmetric.open(reader.rest())

    def write(
        self, ephemeral: KeyPair, *, encapsulate: Encapsulate = PublicKeys.encapsulate
    ) -> tuple[bytes, Channel]:
        """Return message 2, and the channel, which is open from then on."""
        symmetric, public = self._symmetric, ephemeral.public
        secret, ekem = encapsulate(self._theirs)
        symmetric.mix_hash(ekem)
        symmetric.mix_key(secret)
        secret, ciphertext = encapsulate(self.initiator)
        skem = symmetric.seal(ciphertext)
        symmetric.mix_key_and_hash(secret)
        symmetric.mix_keys(public)
        symmetric.mix_key(ephemeral.exchange(self._theirs))
        symmetric.mix_key(ephemeral.exchange(self.initiator))
        message = ekem + skem + public.x25519 + public.mlkem768 + symmetric.seal(b"")
        forth, back = symmetric.split()
        return message, Channel(back, forth, symmetric.hash)
