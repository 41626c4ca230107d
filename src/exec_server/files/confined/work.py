"""Everything that a helper can be asked to do: the table of operations, opening, and discovery.

All of it may block. An answer is JSON or an open file.
"""

from __future__ import annotations

from typing import Any

import msgspec

from exec_server.files.confined.packets import FileContent, HelperCall
from exec_server.files.operations.table import OPEN_FILE, OPERATIONS, OpenedFile
from exec_server.files.operations.task import FileTask
from exec_server.limits import Limits
from exec_server.protocol.environment import CapabilitiesResult, CapabilityRoot, DiscoveredRoot
from exec_server.protocol.hooks import encode_hook
from exec_server.protocol.method import Encoded
from exec_server.protocol.paths import PathUri

_encode = msgspec.json.Encoder(enc_hook=encode_hook).encode


def _discover_root(root_id: str, uri: str, numbers: dict[str, Any]) -> DiscoveredRoot:
    # Few helpers are asked to discover anything, so the modules are loaded here.
    from exec_server.discovery.roots import discover

    return discover(CapabilityRoot(root_id, PathUri(uri)), Limits(**numbers))


def _discover_installed(homes: list[Any], numbers: dict[str, Any]) -> CapabilitiesResult:
    from exec_server.discovery.homes import Homes
    from exec_server.discovery.installed import discover

    return discover(Homes(*homes), limits=Limits(**numbers))


DISCOVER_ROOT = FileTask("discover_root", _discover_root)
DISCOVER_INSTALLED = FileTask("discover_installed", _discover_installed)

_TASKS: dict[str, FileTask[Any]] = {
    task.name: task for task in (*OPERATIONS.values(), OPEN_FILE, DISCOVER_ROOT, DISCOVER_INSTALLED)
}


def is_short(call: HelperCall) -> bool:
    """True if *call* is done at once, in the order in which the calls came."""
    return _TASKS[call.task].is_short


def perform(
    call: HelperCall, content: bytes | FileContent | None
) -> tuple[bytes, ...] | OpenedFile:
    """Return the result of one call, as pieces of JSON or as an open file.

    Raises RpcError and OSError.
    """
    task = _TASKS[call.task]
    args = (*call.args, content) if task.has_content else call.args
    result = task.perform(args, call.follows)
    if isinstance(result, OpenedFile):
        return result
    if isinstance(result, Encoded):
        return result.parts
    return (_encode(result),)
