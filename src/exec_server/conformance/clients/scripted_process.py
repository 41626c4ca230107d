"""A process of the scripted server: its numbered events, and reads of them."""

from __future__ import annotations

import base64
from typing import Any

Message = dict[str, Any]


class ScriptedProcess:
    """The events of one process, each made once and sent as often as a check likes."""

    def __init__(self, process_id: str) -> None:
        self.id = process_id
        self.events: list[Message] = []

    def output(self, text: str, *, stream: str = "stdout") -> Message:
        chunk = base64.b64encode(text.encode()).decode()
        return self._event("process/output", stream=stream, chunk=chunk)

    def exit(self, code: int) -> Message:
        return self._event("process/exited", exitCode=code, sandboxDenied=False)

    def close(self) -> Message:
        return self._event("process/closed")

    def _event(self, method: str, **params: Any) -> Message:
        told = {"processId": self.id, "seq": len(self.events) + 1, **params}
        self.events.append({"method": method, "params": told})
        return self.events[-1]

    def page(self, after: int) -> Message:
        """The answer to `process/read`."""
        exits = [each["params"] for each in self.events if each["method"] == "process/exited"]
        return {
            "chunks": [
                {name: event["params"][name] for name in ("seq", "stream", "chunk")}
                for event in self.events[after:]
                if event["method"] == "process/output"
            ],
            "nextSeq": len(self.events) + 1,
            "exited": bool(exits),
            "exitCode": exits[0]["exitCode"] if exits else None,
            "closed": any(each["method"] == "process/closed" for each in self.events),
            "failure": None,
            "sandboxDenied": False,
        }
