"""Servers by URL or by name: which words are one, and how to connect to it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from exec_server.cli.options import TOKEN_VARIABLE, Token, tls_files
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol.registry import NOISE_SCHEMES

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.client.connect_keywords import UrlKeywords
    from exec_server.client.environments.manager import EnvironmentManager
    from exec_server.client.session_link import ConnectionState

SCHEMES = ("ws://", "wss://", "unix://", "stdio:", *NOISE_SCHEMES)
_ADDRESS = re.compile(r"[A-Za-z0-9.-]+:\d{1,5}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

SERVER_HELP = """\
SERVER is a URL as `exec-server` prints it, unix://PATH, stdio:PROGRAM for a server that is started
for this command only, or the name of an environment. `exec-server env` lists the names. Without
SERVER it is the default of environments.toml.
"""


def is_url(text: str) -> bool:
    """True if *text* begins like the URL of a server."""
    return text.startswith(SCHEMES)


def is_server(text: str) -> bool:
    """True if *text* has the form of a URL or of a name."""
    return is_url(text) or _NAME.fullmatch(text) is not None


def expected_server() -> str:
    """The forms in which a server can be written, for an error message."""
    return ", ".join(f"{scheme}..." for scheme in SCHEMES) + " or the name of an environment"


def url_meant_by(text: str) -> str | None:
    """The URL that was probably meant by an address without ws://, or with http:// instead."""
    if text.startswith(("http://", "https://")):
        return f"ws{text.removeprefix('http')}"
    return f"ws://{text}" if _ADDRESS.fullmatch(text) else None


def environments(environ: Mapping[str, str] | None = None) -> EnvironmentManager:
    """The environments that have a name on this machine. Raises ConfigurationError."""
    from exec_server.local_server import environments

    return environments(env=os.environ if environ is None else environ)


def default_server() -> str | None:
    """The name of the default environment, unless that is this machine.

    A command that is meant for a server must not run here because a word was forgotten.
    """
    manager = environments()
    if manager.default is None or manager.resolve().kind == "local":
        return None
    return manager.default


def open_server(
    server: str,
    *,
    client_name: str,
    token: Token | None = None,
    pin: str | None = None,
    session_token: str | None = None,
    take_over: bool = False,
    on_state: Callable[[ConnectionState], None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> AbstractAsyncContextManager[ExecServerClient]:
    """Connect to the *server* of that URL or name for the length of a block.

    *token* is preferred to the configured token, and that one to the variable. With *take_over* the
    session of *session_token* is taken from a program that holds it. Raises
    ConfigurationError for an unknown name, and otherwise the errors of `exec_server.connect`.
    """
    variable = os.environ.get(TOKEN_VARIABLE) or None
    if is_url(server):
        from exec_server.connecting import Connecting

        files = tls_files()
        options: UrlKeywords = {
            "token": token or variable,
            "pin": pin,
            "client_name": client_name,
            "session_token": session_token,
            "take_over": take_over,
            "on_state": on_state,
            "limits": limits,
            "ca_file": files["ca_file"],
            "client_cert": files["client_cert"],
            "client_key": files["client_key"],
        }
        return Connecting(server, options)
    manager = environments()
    if getattr(manager.resolve(server), "token", None) is None:
        token = token or variable
    return manager.connect(
        server,
        token=token,
        pin=pin,
        client_name=client_name,
        session_token=session_token,
        take_over=take_over,
        on_state=on_state,
        limits=limits,
        **tls_files(),
    )


def can_be_resumed(server: str) -> bool:
    """True if a session on this server can outlive the program that began it."""
    from exec_server.transport.dial import is_program

    if is_url(server):
        return not is_program(server)
    return environments().resolve(server).kind in ("websocket", "rendezvous")


def shown(server: str) -> str:
    """A server as it may be printed: without the query of its URL, which may hold credentials."""
    return server if server.startswith("stdio:") else server.partition("?")[0]
