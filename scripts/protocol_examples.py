"""Choose an example for each method and event: `src/exec_server/schema/examples.json`.

    python scripts/protocol_examples.py [RECORDING.jsonl...]

A recording has one message in each line, as ``{"dir": "c2s" | "s2c", "conn": 1, "msg": {...}}``.
What the recordings do not have is recorded from a server of our own. An example that is there
already stays, unless a recording has the same method.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import websockets
from stream_examples import stream_traffic

from exec_server.errors import InvalidParams
from exec_server.protocol.method import Method
from exec_server.rpc.boundary import decode_params
from exec_server.schema.catalog import declared

_FILE = Path(__file__).parent.parent / "src/exec_server/schema/examples.json"
# Longer messages explain nothing.
_MOST_CHARS = 4000

Message = dict[str, Any]
Recorded = tuple[str, Message]


def main(paths: list[str]) -> None:
    found = json.loads(_FILE.read_text()) if _FILE.exists() else {}
    for path in sorted(paths):
        _add(found, _messages(path))
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="example-") as folder:
        own: dict[str, Any] = {}
        _add(own, asyncio.run(_own_traffic(folder)))
    text = json.dumps({**own, **found}).replace(folder, "/home/user/project")
    names = {each.item.name for each in declared()}
    kept = {name: value for name, value in sorted(json.loads(text).items()) if name in names}
    _FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    print("without an example:", " ".join(sorted(names - kept.keys())) or "none")


def _messages(path: str) -> Iterator[Recorded]:
    for line in Path(path).read_text().splitlines():
        record = json.loads(line)
        if isinstance(record.get("msg"), dict):
            yield f"{record['conn']}{record['dir']}", record["msg"]


def _add(found: dict[str, Any], messages: Iterable[Recorded]) -> None:
    """Keep the shortest message of each method."""
    kinds = {each.item.name: each.item for each in declared()}
    asked: dict[tuple[str, Any], Message] = {}
    for way, message in messages:
        if message.get("method") == "initialize":
            # Another connection, whose ids begin anew.
            asked.clear()
        name = message.get("method")
        if name in kinds and _is_whole(kinds[name].params, message.get("params")):
            if isinstance(kinds[name], Method):
                asked[way, message.get("id")] = message
            else:
                _keep(found, name, {"params": message.get("params")})
        elif "result" in message:
            back = way.replace("s2c", "c2s") if "s2c" in way else way.replace("c2s", "s2c")
            request = asked.pop((back, message["id"]), None)
            if request is not None:
                example = {"params": request.get("params"), "result": message["result"]}
                _keep(found, request["method"], example)


def _is_whole(kind: type, params: Any) -> bool:
    """False for a message that was recorded because it is wrong."""
    try:
        decode_params(kind, params)
    except InvalidParams:
        return False
    return True


def _keep(found: dict[str, Any], name: str, example: Message) -> None:
    length = len(json.dumps(example))
    if length <= _MOST_CHARS and length < len(json.dumps(found.get(name, " " * _MOST_CHARS))):
        found[name] = example


async def _own_traffic(folder: str) -> list[Recorded]:
    """What a client and a server of ours say to each other."""
    state = Path(folder, "state")
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "exec_server", "--listen", "ws://127.0.0.1:0"),
        *("--state", str(state)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        url = (await server.stdout.readline()).decode().split()[-1]
        streams = await stream_traffic(url)
        async with websockets.connect(url) as socket:
            return [*streams, *await _drive(socket, folder)]
    finally:
        server.terminate()
        await server.wait()


async def _drive(socket: websockets.ClientConnection, folder: str) -> list[Recorded]:
    traffic: list[Recorded] = []
    for number, (name, params) in enumerate(_SCRIPT, 1):
        text = json.dumps({"method": name, "params": params}).replace("FOLDER", folder)
        message = json.loads(text)
        is_event = name in ("initialized", "process/ack")
        if not is_event:
            message["id"] = number
        traffic.append(("c2s", message))
        await socket.send(json.dumps(message))
        while not is_event:
            answer = json.loads(await asyncio.wait_for(socket.recv(), 20))
            traffic.append(("s2c", answer))
            if answer.get("id") == number:
                if "error" in answer:
                    raise SystemExit(f"{name}: {answer['error']}")
                break
    return traffic


_START = {"processId": "build", "cwd": "file:///tmp", "env": {"PATH": "/usr/bin:/bin"}}
_READ_ALL = {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}
_FILES = {"type": "restricted", "entries": [_READ_ALL]}
_SANDBOX = {"permissions": {"type": "managed", "file_system": _FILES, "network": "restricted"}}
_SCRIPT: list[tuple[str, Any]] = [
    ("initialize", {"clientName": "example", "concurrentRequests": 8}),
    ("initialized", {}),
    ("session/ping", {}),
    ("session/whoami", {}),
    ("session/retain", {"seconds": 3600}),
    (
        "process/start",
        {**_START, "processId": "touch", "argv": ["touch", "/var/tmp/x"], "tty": False}
        | {"denials": True, "sandbox": _SANDBOX},
    ),
    ("process/read", {"processId": "touch", "afterSeq": 1, "waitMs": 5000}),
    ("process/denials", {"processId": "touch"}),
    (
        "process/grant",
        {"processId": "touch", "grant": "write=/var/tmp/x", "scope": "session"},
    ),
    ("process/start", {**_START, "argv": ["cat"], "tty": True, "rows": 24, "cols": 80}),
    ("process/resize", {"processId": "build", "rows": 40, "cols": 120}),
    (
        "process/watch",
        {"processId": "build", "watchId": "w1", "kind": "person", "name": "ann"},
    ),
    ("process/control", {"processId": "w1", "action": "take"}),
    ("process/write", {"processId": "w1", "chunk": "YQo=", "writeId": "1"}),
    ("process/control", {"processId": "w1", "action": "giveBack"}),
    ("process/control", {"processId": "build", "action": "state"}),
    ("process/unwatch", {"watchId": "w1"}),
    ("process/resize", {"processId": "build", "rows": 3, "cols": 40}),
    ("process/write", {"processId": "build", "chunk": "aGkK", "writeId": "1"}),
    (
        "process/waitFor",
        {"processId": "build", "conditions": [{"kind": "text", "text": "hi"}], "timeoutMs": 5000},
    ),
    ("process/screen", {"processId": "build"}),
    ("process/list", {}),
    ("process/terminate", {"processId": "build"}),
    (
        "process/start",
        {**_START, "processId": "sort", "argv": ["sort"], "tty": False, "pipeStdin": True}
        | {"durable": True, "flowWindow": 65536},
    ),
    ("process/write", {"processId": "sort", "chunk": "Ygph", "writeId": "1"}),
    ("process/closeStdin", {"processId": "sort"}),
    ("process/read", {"processId": "sort", "afterSeq": 0, "waitMs": 5000}),
    ("process/ack", {"processId": "sort", "seq": 1}),
    ("job/list", {}),
    ("job/prune", {"olderThanSeconds": 3600}),
    ("fs/writeFile", {"path": "file://FOLDER/a.txt", "dataBase64": "YQo="}),
    ("fs/append", {"path": "file://FOLDER/a.txt", "dataBase64": "Ygo="}),
    ("fs/rename", {"sourcePath": "file://FOLDER/a.txt", "destinationPath": "file://FOLDER/b.txt"}),
    ("fs/setPermissions", {"path": "file://FOLDER/b.txt", "mode": 0o640}),
    ("fs/symlink", {"path": "file://FOLDER/c.txt", "link": {"target": "b.txt"}}),
    ("fs/readLink", {"path": "file://FOLDER/c.txt"}),
    ("fs/lstat", {"path": "file://FOLDER/c.txt"}),
    (
        "fs/copy",
        {"sourcePath": "file://FOLDER/b.txt", "destinationPath": "file://FOLDER/d.txt"}
        | {"recursive": False},
    ),
    ("fs/open", {"handleId": "1", "path": "file://FOLDER/b.txt"}),
    ("fs/readBlock", {"handleId": "1", "offset": 0, "len": 65536}),
    ("fs/close", {"handleId": "1"}),
    ("fs/open", {"handleId": "2", "path": "file://FOLDER/e.txt", "mode": "replace"}),
    ("fs/writeBlock", {"handleId": "2", "offset": 0, "chunk": "YQo="}),
    ("fs/readDirectory", {"path": "file://FOLDER"}),
    ("fs/signature", {"path": "file://FOLDER/b.txt"}),
    (
        "fs/copyRanges",
        {"sourcePath": "file://FOLDER/b.txt", "destinationPath": "file://FOLDER/e.txt"}
        | {"ranges": [[0, 2, 2]]},
    ),
    ("fs/watch", {"watchId": "w", "path": "file://FOLDER"}),
    ("fs/writeFile", {"path": "file://FOLDER/g.txt", "dataBase64": "YQo="}),
    ("fs/search", {"searchId": "s", "path": "file://FOLDER", "pattern": "^a"}),
    # Meanwhile the events of both come.
    ("process/start", {**_START, "processId": "wait", "argv": ["sleep", "1"], "tty": False}),
    ("process/read", {"processId": "wait", "afterSeq": 0, "waitMs": 5000}),
    ("fs/cancelSearch", {"searchId": "s"}),
    ("fs/unwatch", {"watchId": "w"}),
    ("capabilities/discoverV2", {"cwd": "file://FOLDER"}),
    ("capabilityRoots/discoverV1", {"roots": []}),
    ("environment/status", {}),
    ("server/stop", {"jobs": True}),
]


if __name__ == "__main__":
    main(sys.argv[1:])
