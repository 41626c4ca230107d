"""Choose an example for each frame of the relay: `src/exec_server/schema/relay_examples.json`.

    python scripts/relay_examples.py

Frames that were recorded from Codex are in tests/relay/noise_hybrid_ik.json. No release sends
acknowledgements and heartbeats, so these two are made here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from exec_server.relay.relay_pb2 import RelayMessageFrame

_ROOT = Path(__file__).parent.parent
_VECTORS = _ROOT / "tests/relay/noise_hybrid_ik.json"
_FILE = _ROOT / "src/exec_server/schema/relay_examples.json"
# The answer of an executor to data on a stream without a handshake.
_RESET = "0801120275 31421c0a1a6e6f6973655f72656c61795f70726f746f636f6c5f6572726f72"


def main() -> None:
    vectors = json.loads(_VECTORS.read_text())
    frames = {"reset": bytes.fromhex(_RESET)}
    for captured in vectors["captured_frames"]:
        # Long frames are not listed as a whole.
        if len(captured["hex"]) == 2 * captured["size"]:
            frames.setdefault(captured["kind"], bytes.fromhex(captured["hex"]))
    found = {kind: _example(RelayMessageFrame.FromString(data)) for kind, data in frames.items()}
    first = vectors["vectors"][0]
    frame = RelayMessageFrame(version=1, stream_id=first["stream_id"])
    frame.handshake.payload = bytes.fromhex(first["message1"])
    found["handshake"] = _example(frame)
    for kind in ("ack_frame", "heartbeat"):
        empty = RelayMessageFrame(version=1, stream_id=first["stream_id"])
        getattr(empty, kind).SetInParent()
        found[kind] = {**_example(empty), "recorded": False}
    _FILE.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


def _example(frame: RelayMessageFrame) -> dict[str, Any]:
    told = json_format.MessageToDict(frame, preserving_proto_field_name=True)
    return {"recorded": True, "frame": told}


if __name__ == "__main__":
    main()
