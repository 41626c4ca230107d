"""ML-KEM-768 encapsulation with given randomness (FIPS 203), which no library offers.

Only to reproduce recorded handshakes: it is slow and not constant in time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

Q, N, K = 3329, 256, 3
ETA, DU, DV = 2, 10, 4


def _reversed_bits(value: int) -> int:
    return int(f"{value:07b}"[::-1], 2)


ZETAS = [pow(17, _reversed_bits(i), Q) for i in range(128)]
GAMMAS = [pow(17, 2 * _reversed_bits(i) + 1, Q) for i in range(128)]


def ntt(poly: list[int]) -> list[int]:
    f, i, size = list(poly), 1, 128
    while size >= 2:
        for start in range(0, N, 2 * size):
            zeta, i = ZETAS[i], i + 1
            for j in range(start, start + size):
                t = zeta * f[j + size] % Q
                f[j], f[j + size] = (f[j] + t) % Q, (f[j] - t) % Q
        size //= 2
    return f


def inverse_ntt(poly: list[int]) -> list[int]:
    f, i, size = list(poly), 127, 2
    while size <= 128:
        for start in range(0, N, 2 * size):
            zeta, i = ZETAS[i], i - 1
            for j in range(start, start + size):
                t = f[j]
                f[j], f[j + size] = (t + f[j + size]) % Q, zeta * (f[j + size] - t) % Q
        size *= 2
    return [x * 3303 % Q for x in f]


def multiply(f: list[int], g: list[int]) -> list[int]:
    h = []
    for i, gamma in enumerate(GAMMAS):
        a0, a1, b0, b1 = f[2 * i], f[2 * i + 1], g[2 * i], g[2 * i + 1]
        h += [(a0 * b0 + a1 * b1 * gamma) % Q, (a0 * b1 + a1 * b0) % Q]
    return h


def add(*polys: list[int]) -> list[int]:
    return [sum(column) % Q for column in zip(*polys, strict=True)]


def dot(left: Iterable[list[int]], right: Iterable[list[int]]) -> list[int]:
    return add(*(multiply(f, g) for f, g in zip(left, right, strict=True)))


def bits(data: bytes) -> list[int]:
    return [byte >> i & 1 for byte in data for i in range(8)]


def pack(values: Iterable[int], width: int) -> bytes:
    total = sum(value << i * width for i, value in enumerate(values))
    return total.to_bytes(N * width // 8, "little")


def unpack(data: bytes, width: int) -> list[int]:
    total = int.from_bytes(data, "little")
    return [total >> i * width & (1 << width) - 1 for i in range(N)]


def compress(poly: list[int], width: int) -> list[int]:
    return [((x << width + 1) + Q) // (2 * Q) % (1 << width) for x in poly]


def uniform(rho: bytes, column: int, row: int) -> list[int]:
    stream, found = hashlib.shake_128(rho + bytes([column, row])).digest(168 * 8), []
    for at in range(0, len(stream), 3):
        a, b, c = stream[at : at + 3]
        found += [d for d in (a + 256 * (b % 16), b // 16 + 16 * c) if d < Q]
    return found[:N]


def noise(seed: bytes, number: int) -> list[int]:
    b = bits(hashlib.shake_256(seed + bytes([number])).digest(64 * ETA))
    return [(b[4 * i] + b[4 * i + 1] - b[4 * i + 2] - b[4 * i + 3]) % Q for i in range(N)]


def encapsulate(key: bytes, m: bytes) -> tuple[bytes, bytes]:
    """The (secret, ciphertext) that the randomness *m* gives for the public *key*."""
    g = hashlib.sha3_512(m + hashlib.sha3_256(key).digest()).digest()
    return g[:32], _encrypt(key, m, g[32:])


def _encrypt(key: bytes, m: bytes, seed: bytes) -> bytes:
    t = [unpack(key[384 * i : 384 * (i + 1)], 12) for i in range(K)]
    rho = key[384 * K :]
    y = [ntt(noise(seed, i)) for i in range(K)]
    u = [
        add(inverse_ntt(dot((uniform(rho, i, j) for j in range(K)), y)), noise(seed, K + i))
        for i in range(K)
    ]
    message = [bit * 1665 for bit in bits(m)]
    v = add(inverse_ntt(dot(t, y)), noise(seed, 2 * K), message)
    return b"".join(pack(compress(poly, DU), DU) for poly in u) + pack(compress(v, DV), DV)
