"""`fs/signature` and `fs/copyRanges`: send only what has changed in a file. Extensions of ours."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Annotated, NamedTuple, Protocol

import msgspec

from exec_server.errors import InvalidParams
from exec_server.protocol.base64 import Blob
from exec_server.protocol.fs import FAMILY, Confined, Sandbox
from exec_server.protocol.method import Method, Nothing
from exec_server.protocol.numbers import Count, fits_u64
from exec_server.protocol.paths import PathUri
from exec_server.protocol.sandbox import OldSandbox

# The most bytes of a file that one request reads or copies, so that each is soon answered.
SPAN_BYTES = 128 * 1024 * 1024
# The smallest fixed block: an answer must not be as long as the file.
LEAST_BLOCK = 4096
# The most ranges in one request.
MOST_RANGES = 16_384
# The bytes of a key for checksums, which is one of AES-128.
KEY_BYTES = 16
# One message is never encrypted under a key, and all checksums of a key have to be comparable, so
# that there is one nonce.
_NONCE = bytes(12)

_ENTRY = struct.Struct("<I16s")


class SignatureParams(Confined, rename="camel", omit_defaults=True):
    """Asks for the checksums of a part of a regular file.

    The part is cut into chunks where its content says so, and the same content is cut in the same
    way wherever it is in a file.
    """

    path: PathUri
    offset: Count = 0
    # At most 128 MiB.
    length: Count = SPAN_BYTES
    # False leaves out the chunks.
    chunks: bool = True
    # If it is not 0, every chunk but the last one has this size, whatever the content says.
    block_bytes: Count = 0
    # 16 random bytes, new for each file that is copied: checksums are made by GMAC with this key
    # then, instead of SHA-256. `chunks` must be true.
    key_base64: Blob | None = None
    follow_symlinks: bool | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not fits_u64(self.offset, self.length) or self.length > SPAN_BYTES:
            raise InvalidParams(f"invalid length: at most {SPAN_BYTES} bytes at once")
        if self.block_bytes and not LEAST_BLOCK <= self.block_bytes <= SPAN_BYTES:
            raise InvalidParams(f"invalid blockBytes: at least {LEAST_BLOCK} bytes")
        if self.key_base64 is not None and len(self.key_base64.data) != KEY_BYTES:
            raise InvalidParams(f"invalid keyBase64: {KEY_BYTES} bytes are needed")
        if self.key_base64 is not None and not self.chunks:
            raise InvalidParams("invalid keyBase64: it makes the checksums of chunks")


class SignatureResult(msgspec.Struct, rename="camel"):
    # For each chunk its size in 4 bytes, the lowest first, and the first 16 bytes of its SHA-256,
    # or with a key its GMAC (AES-128, a nonce of twelve zeros, the chunk as associated data).
    chunks_base64: Blob
    # The SHA-256 of the part, in hexadecimal; with `blockBytes` the one of the blocks' SHA-256s,
    # and with a key the one of the chunks' GMACs.
    digest: str
    # The size and the time of the whole file.
    size: int
    modified_at_ms: int


Range = tuple[Annotated[int, msgspec.Meta(ge=0)], Annotated[int, msgspec.Meta(ge=0)], int]


class CopyRangesParams(Confined, rename="camel", omit_defaults=True):
    """Copies parts of one regular file into another one, which exists. It is not shortened."""

    source_path: PathUri
    destination_path: PathUri
    # The offset in the source, the offset in the destination, and the length. The lengths
    # together are at most 128 MiB.
    ranges: Annotated[list[Range], msgspec.Meta(max_length=MOST_RANGES)]
    follow_symlinks: bool | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(
            size <= 0 or max(here, there) + size >= 1 << 63 for here, there, size in self.ranges
        ):
            raise InvalidParams("invalid range")
        if sum(size for _, _, size in self.ranges) > SPAN_BYTES:
            raise InvalidParams(f"invalid ranges: at most {SPAN_BYTES} bytes at once")


class ContentChunk(NamedTuple):
    """A piece of a file, by its content."""

    size: int
    digest: bytes


class ContentDigest(Protocol):
    """A checksum that is being made, as those of hashlib are."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Add some content."""

    def digest(self) -> bytes:
        """The checksum of everything; nothing is added afterwards."""


class _KeyedDigest:
    """GMAC: on processors with instructions for AES-GCM, many times as fast as SHA-256."""

    def __init__(self, key: bytes) -> None:
        # Imported here because most servers and clients compare no contents.
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._sum = Cipher(algorithms.AES(key), modes.GCM(_NONCE)).encryptor()

    def update(self, data: bytes | memoryview, /) -> None:
        self._sum.authenticate_additional_data(data)

    def digest(self) -> bytes:
        self._sum.finalize()
        return self._sum.tag


def new_digest(key: bytes | None) -> ContentDigest:
    """A new checksum of content, with *key* if there is one; 16 bytes of it are sent."""
    return hashlib.sha256() if key is None else _KeyedDigest(key)


def chunk_digest(data: bytes | memoryview, key: bytes | None = None) -> bytes:
    """The part of a chunk's checksum that is sent."""
    digest = new_digest(key)
    digest.update(data)
    return digest.digest()[:16]


def pack_chunk(chunk: ContentChunk) -> bytes:
    return _ENTRY.pack(*chunk)


def unpack_chunks(data: bytes) -> Iterator[ContentChunk]:
    """The chunks of a SignatureResult. Raises ValueError."""
    if len(data) % _ENTRY.size:
        raise ValueError("not a list of chunks")
    return map(ContentChunk._make, _ENTRY.iter_unpack(data))


# The checksums of a part of a file.
SIGNATURE = Method("fs/signature", SignatureParams, SignatureResult, family=FAMILY)
# Copies parts of one file into another one on the server's machine.
COPY_RANGES = Method("fs/copyRanges", CopyRangesParams, Nothing, family=FAMILY)
