"""What we use of picows without a promise: these tests say what a new release has changed."""

from __future__ import annotations

import asyncio
import inspect
import re
from importlib import resources
from importlib.metadata import version
from pathlib import Path

import pytest
from picows import WSListener, WSUpgradeResponse
from picows.picows import WSProtocol  # type: ignore[attr-defined]

from exec_server.limits import DEFAULT_LIMITS
from exec_server.transport import picows_internals
from tests.requirements import requirement
from tests.support.moved import moved

HERE = "src/exec_server/transport/picows_internals.py"


def changed(what: str) -> str:
    return moved("picows", version("picows"), what, HERE)


@requirement("house/libraries:undocumented")
@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("connection_made", ["self", "transport"]),
        ("get_buffer", ["self", "size_hint"]),
        ("buffer_updated", ["self", "nbytes"]),
        ("eof_received", ["self"]),
        ("wait_until_handshake_complete", ["self"]),
    ],
)
def test_the_protocol_has_the_methods_that_we_call_and_replace(method, expected):
    assert hasattr(WSProtocol, method), changed(f"WSProtocol.{method} is gone")
    found = list(inspect.signature(getattr(WSProtocol, method)).parameters)
    assert found == expected, changed(f"WSProtocol.{method} takes {found}, not {expected}")


@requirement("house/libraries:undocumented")
async def test_the_protocol_takes_the_arguments_that_we_give():
    try:
        client = picows_internals.client_protocol(
            "host", "/", WSListener, headers=[], limits=DEFAULT_LIMITS
        )
        server = picows_internals._ServerProtocol(
            **picows_internals._arguments(
                DEFAULT_LIMITS,
                is_client_side=False,
                ws_listener_factory=lambda _request: WSListener(),
                read_buffer_init_size=8192,
            )
        )
    except TypeError as exc:
        pytest.fail(changed(f"WSProtocol takes other arguments: {exc}"))
    for protocol in (client, server):
        assert isinstance(protocol, asyncio.BufferedProtocol), changed("it is no BufferedProtocol")
        assert hasattr(protocol, "listener"), changed("WSProtocol.listener is gone")


@requirement("house/libraries:undocumented")
async def test_an_argument_that_is_missing_or_unknown_is_noticed():
    arguments = picows_internals._arguments(
        DEFAULT_LIMITS, is_client_side=True, ws_listener_factory=None, read_buffer_init_size=8192
    )
    with pytest.raises(TypeError):
        WSProtocol(**arguments, unknown=1)
    del arguments["extra_headers"]
    with pytest.raises(TypeError):
        WSProtocol(**arguments)


def test_picows_is_imported_in_one_place():
    source = Path(__file__).parents[2] / "src" / "exec_server"
    found = {path.name for path in source.rglob("*.py") if "\nfrom picows" in path.read_text()}
    assert found == {"picows_names.py"}


@requirement("house/libraries:undocumented")
def test_our_answer_to_an_upgrade_has_the_bytes_of_picows():
    theirs, ours = WSUpgradeResponse.create_101_response(), picows_internals._SwitchingProtocols()
    for answer in (theirs, ours):
        answer.headers["Sec-WebSocket-Accept"] = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert ours.status == theirs.status
    assert ours.to_bytes() == theirs.to_bytes(), changed("the answer 101 is another one")
    assert type(ours.to_bytes()) is bytearray


@requirement("house/libraries:undocumented")
def test_the_silent_logger_has_the_methods_that_picows_calls():
    source = resources.files("picows").joinpath("picows.pyx").read_text()
    called = set(re.findall(r"_logger\.(\w+)\(", source))
    assert "isEnabledFor" in called
    missing = {name for name in called if not hasattr(picows_internals._SILENT, name)}
    assert not missing, changed(f"it calls {missing} of its logger")
