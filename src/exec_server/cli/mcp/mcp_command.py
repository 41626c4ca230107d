"""`exec-server mcp`: tools for agents that speak the Model Context Protocol."""

from __future__ import annotations

import argparse
import dataclasses
import os
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.log_setup import print_error
from exec_server.cli.mcp.mcp_options import mcp_parser, settings_of
from exec_server.cli.options import read_token_file, server_token
from exec_server.cli.process.run_options import split_server
from exec_server.cli.sandbox.sandbox_options import Confinement, confinement, context_for
from exec_server.errors import ConfigurationError
from exec_server.remote.state_dir import state_home

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.integrations.mcp.mcp_settings import McpSettings
    from exec_server.protocol.sandbox import SandboxContext


def mcp_command(words: list[str]) -> int:
    """Serve the tools that *words* describe until the client leaves."""
    parser = mcp_parser()
    arguments = parser.parse_around(words, os.environ)
    values = arguments.values
    parser.require(arguments, {"http_token_file": ("http",)})
    wanted = confinement(parser, arguments)
    try:
        server, rest = split_server(parser, arguments)
        if rest:
            parser.error(f"unexpected argument '{rest[0]}' found")
        token = server_token(parser, values)
        settings = _with_place(_imported_settings(values, server), wanted)
    except ConfigurationError as exc:
        print_error(str(exc))
        return exit_codes.FAILED

    def connect(session_token: str | None) -> AbstractAsyncContextManager[ExecServerClient]:
        return server_access.open_server(
            server,
            client_name="exec-server mcp",
            token=token,
            pin=values.pin,
            session_token=session_token,
        )

    async def serve() -> int:
        from exec_server.integrations.mcp.mcp_box import McpBox
        from exec_server.integrations.mcp.mcp_server import make_server

        async with McpBox(connect, settings) as box:
            mcp = make_server(box, settings)
            if values.http is None:
                from exec_server.integrations.mcp.mcp_stdio import serve_stdio

                await serve_stdio(mcp)
            else:
                from exec_server.cli.mcp.http_peers import http_peers
                from exec_server.integrations.mcp.mcp_http import listen, serve_http, url_of

                secret = None
                if values.http_token_file is not None:
                    secret = read_token_file(values.http_token_file)
                listener = listen(*values.http, token=secret)
                print(url_of(listener), flush=True)
                judge = http_peers().refusal
                await serve_http(mcp, listener, token=secret, judge=judge)
        return exit_codes.OK

    return run_to_exit_status(serve, log_level=values.log_level)


def _imported_settings(values: argparse.Namespace, server: str) -> McpSettings:
    try:
        import mcp.server  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "the package `mcp` is not installed: pip install 'exec-server[mcp]'"
        ) from None
    return settings_of(values, server)


def _with_place(settings: McpSettings, wanted: Confinement | None) -> McpSettings:
    """The settings with the sandbox, and with the place of the records of jobs."""

    async def sandbox_for(client: ExecServerClient, cwd: str | None) -> SandboxContext | None:
        return None if wanted is None else await context_for(client, wanted, cwd=cwd)

    # Jobs on a server that ends with this program cannot be continued.
    can_continue = server_access.can_be_resumed(settings.server)
    # A model that may choose the sandbox can also choose none.
    is_bound = wanted is not None and "sandbox" not in settings.model_may
    return dataclasses.replace(
        settings,
        sandbox_for=sandbox_for,
        is_sandboxed=wanted is not None,
        confinement=f"{wanted!r} in {settings.cwd!r}" if is_bound else "",
        records=state_home() / "mcp" if can_continue else None,
    )
