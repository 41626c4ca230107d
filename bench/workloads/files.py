"""Files: small calls, whole contents, blocks, and directories."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from statistics import median

import msgspec

from bench.client import CallFailed, Client, now, percentile, pipelined, repeat, request, serially
from bench.servers import Server
from bench.wire import encode_frames
from bench.workload import GIB, KIB, MIB, Figures, Scale, workload

_DEPTH = 64
_REPEATS = 3
_BLOCK_BYTES = 1 * MIB
_BLOCKS_IN_FLIGHT = 4
_DIRECTORY_ENTRIES = 10_000


@workload()
def file_metadata(server: Server, scale: Scale) -> Figures:
    path = noise(scale.scratch, 4 * KIB)
    return _small(server, scale, "fs/getMetadata", {"path": path.as_uri()})


@workload()
def file_read_4k(server: Server, scale: Scale) -> Figures:
    path = noise(scale.scratch, 4 * KIB)
    return _small(server, scale, "fs/readFile", {"path": path.as_uri()})


@workload()
def file_write_4k(server: Server, scale: Scale) -> Figures:
    path, data = scale.scratch / "written", os.urandom(4 * KIB)
    figures = _small(server, scale, "fs/writeFile", _write_params(path, data))
    _check_written(path, data)
    return figures


@workload(server="fresh")
def file_read_64m(server: Server, scale: Scale) -> Figures:
    """fs/readFile of one large file; its base64 is counted, and not decoded."""
    size = scale.bytes(64 * MIB)
    frame = request("fs/readFile", {"path": noise(scale.scratch, size).as_uri()}, 1)
    client = server.connect()
    return _bulk(server, client, [frame], size=size, answer_bytes=size * 4 // 3)


@workload(server="fresh")
def file_write_8m(server: Server, scale: Scale) -> Figures:
    return _write(server, scale, scale.bytes(8 * MIB))


@workload(server="fresh")
def file_write_48m(server: Server, scale: Scale) -> Figures:
    """Nearly as much as a message may hold: the path needs some of it."""
    return _write(server, scale, scale.bytes(48 * MIB) - 1 * KIB)


@workload()
def file_blocks(server: Server, scale: Scale) -> Figures:
    """fs/readBlock through a whole file, four blocks of 1 MiB in flight."""
    count = scale.count(256, least=_BLOCKS_IN_FLIGHT)
    size = count * _BLOCK_BYTES
    client = server.connect()
    open_file(client, noise(scale.scratch, size))
    cpu, begin = server.cpu_seconds(), now()
    total = read_blocks(client, count)
    seconds, cpu = now() - begin, server.cpu_seconds() - cpu
    client.call("fs/close", {"handleId": _HANDLE})
    client.close()
    if total < size * 4 // 3:
        raise CallFailed(f"{total} bytes of answers to reading {size}")
    return {"rate": size / seconds, "cpu": cpu * GIB / size}


@workload()
def file_directory(server: Server, scale: Scale) -> Figures:
    """fs/readDirectory of one directory with many files in it."""
    count = scale.count(_DIRECTORY_ENTRIES)
    params = {"path": crowded(scale.scratch, count).as_uri()}
    client = server.connect()
    found = len(client.call("fs/readDirectory", params)["entries"])
    if found != count:
        raise CallFailed(f"{found} entries are listed of {count}")
    ask = repeat(lambda number: request("fs/readDirectory", params, number), scale.count(20))
    times = serially(client, ask)
    client.close()
    return {"p50": percentile(times, 0.5)}


def noise(folder: Path, size: int) -> Path:
    """A file of so many bytes, made when it is first asked for."""
    path = folder / f"noise-{size}"
    if not path.exists():
        piece = os.urandom(min(size, 1 * MIB))
        with path.open("wb") as file:
            for start in range(0, size, len(piece)):
                file.write(piece[: size - start])
    return path


def crowded(folder: Path, count: int, *, in_each: int | None = None) -> Path:
    """A directory with so many empty files, *in_each* directory in it if that is given."""
    path = folder / f"crowded-{count}-{in_each}"
    if not path.exists():
        path.mkdir()
        for number in range(count):
            inner = path if in_each is None else path / f"d{number // in_each}"
            inner.mkdir(exist_ok=True)
            (inner / f"file-{number:05}.txt").touch()
    return path


_HANDLE = "bench"


def open_file(client: Client, path: Path) -> None:
    """For `read_blocks`."""
    client.call("fs/open", {"handleId": _HANDLE, "path": path.as_uri()})


def read_blocks(client: Client, count: int) -> int:
    """Read the first *count* blocks of the open file: how many bytes the answers had."""
    sent = answered = total = 0
    while answered < count:
        while sent < min(count, answered + _BLOCKS_IN_FLIGHT):
            params = {"handleId": _HANDLE, "offset": sent * _BLOCK_BYTES, "len": _BLOCK_BYTES}
            client.send(request("fs/readBlock", params, sent))
            sent += 1
        total += client.discard()
        answered += 1
    return total


def _small(server: Server, scale: Scale, method: str, params: dict[str, str]) -> Figures:
    """One call after the other, then many in flight."""

    def ask(number: int) -> bytes:
        return request(method, params, number)

    client = server.connect()
    client.call(method, params)
    serially(client, repeat(ask, 200))
    times = serially(client, repeat(ask, scale.count(2000)))
    frames = repeat(ask, scale.count(10_000, least=2 * _DEPTH))
    cpu = server.cpu_seconds()
    seconds = pipelined(client, frames, depth=_DEPTH)
    cpu = server.cpu_seconds() - cpu
    client.close()
    return {
        "p50": percentile(times, 0.5),
        "pipelined": len(frames) / seconds,
        "cpu": cpu / len(frames),
    }


def _write_params(path: Path, data: bytes) -> dict[str, str]:
    return {"path": path.as_uri(), "dataBase64": base64.b64encode(data).decode()}


def _write(server: Server, scale: Scale, size: int) -> Figures:
    path, data = scale.scratch / "written", os.urandom(size)
    message = {"id": 1, "method": "fs/writeFile", "params": _write_params(path, data)}
    frames = encode_frames(msgspec.json.encode(message))
    figures = _bulk(server, server.connect(), frames, size=size, answer_bytes=2)
    _check_written(path, data)
    return figures


def _bulk(
    server: Server, client: Client, frames: list[bytes], *, size: int, answer_bytes: int
) -> Figures:
    """Make the same large call some times; the most memory that the server ever had."""
    times = []
    cpu = server.cpu_seconds()
    for _ in range(_REPEATS):
        begin = now()
        for frame in frames:
            client.send(frame)
        got = client.discard()
        times.append(now() - begin)
        if got < answer_bytes:
            raise CallFailed(f"an answer of {got} bytes where {answer_bytes} were due")
    cpu = server.cpu_seconds() - cpu
    peak = server.peak_memory()
    client.close()
    return {"rate": size / median(times), "cpu": cpu * GIB / size / _REPEATS, "peak": peak}


def _check_written(path: Path, data: bytes) -> None:
    found = path.read_bytes()
    path.unlink()
    if found != data:
        raise CallFailed("the file does not hold what was written")
