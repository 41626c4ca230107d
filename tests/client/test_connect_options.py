"""A new option of `connect` is one field of one struct."""

from __future__ import annotations

import inspect

import pytest

import exec_server
from exec_server import sync
from exec_server.client.connect_keywords import ConnectKeywords, UrlKeywords
from exec_server.client.connect_options import (
    ConnectOptions,
    ExecServerClientConnectOptions,
    RemoteExecServerConnectArgs,
    UrlOptions,
    as_options,
)
from exec_server.errors import ConfigurationError
from tests.requirements import requirement


def keywords(function: object) -> dict[str, object]:
    """The keyword arguments of a function, and their defaults."""
    assert callable(function)
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


def fields(kind: type[ConnectOptions]) -> dict[str, object]:
    return dict(zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True))


@requirement("env/lookup")
@pytest.mark.parametrize("connect", [exec_server.connect, sync.connect])
def test_connect_takes_the_fields_of_its_struct(connect):
    assert keywords(connect) == fields(UrlOptions)
    assert list(inspect.signature(connect).parameters) == ["url", *UrlOptions.__struct_fields__]


@requirement("env/lookup")
def test_keyword_arguments_are_those_fields_with_their_types():
    assert set(UrlKeywords.__annotations__) == set(UrlOptions.__struct_fields__)
    assert set(ConnectKeywords.__annotations__) == set(ConnectOptions.__struct_fields__)
    # The configuration of an environment says the times, and a session token names the session.
    only_urls = {"connect_timeout", "initialize_timeout", "resume_session_id"}
    assert set(UrlOptions.__struct_fields__) - only_urls == set(ConnectOptions.__struct_fields__)


@requirement("env/lookup")
@pytest.mark.parametrize(
    "function",
    [
        exec_server.environments,
        sync.environments,
        exec_server.EnvironmentManager.connect,
        sync.EnvironmentManager.connect,
    ],
)
def test_environments_take_the_keywords_of_their_struct(function):
    options = inspect.signature(function).parameters["options"]
    assert options.kind is options.VAR_KEYWORD
    assert options.annotation == "Unpack[ConnectKeywords]"


def test_shared_fields_are_carried_over():
    args = RemoteExecServerConnectArgs(
        websocket_url="ws://h", call_timeout=7.0, pin="p", initialize_timeout=2.0, recover_for=1.0
    )
    options = as_options(UrlOptions, args, token="t")
    assert (options.call_timeout, options.pin, options.token) == (7.0, "p", "t")
    handshake = as_options(ExecServerClientConnectOptions, options)
    assert (handshake.initialize_timeout, handshake.recover_for) == (2.0, 1.0)
    # A field that the source has not keeps its default.
    assert handshake.concurrent_requests == ExecServerClientConnectOptions().concurrent_requests


async def test_an_unknown_option_is_a_type_error():
    with pytest.raises(TypeError, match="no_such"):
        async with exec_server.connect("ws://127.0.0.1:1", no_such=1):  # type: ignore[call-arg]
            pass


async def test_schemes_are_an_argument():
    args = RemoteExecServerConnectArgs(websocket_url="noise+https://r.example/e")
    with pytest.raises(ConfigurationError):
        await exec_server.ExecServerClient.connect_websocket(args)
    with pytest.raises(ConfigurationError, match="needs a token"):
        async with exec_server.connect("noise+https://r.example/e"):
            pass


def test_help_is_short():
    text = inspect.getdoc(exec_server.connect)
    assert text is not None and text.startswith("Connect to a server")
    assert len(str(inspect.signature(exec_server.connect))) < 1500


def test_no_option_shows_its_secrets():
    options = UrlOptions(token="secret", session_token="secret")
    assert "secret" not in repr(options)
