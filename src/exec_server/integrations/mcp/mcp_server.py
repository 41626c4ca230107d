"""The server object: tools with their annotations, and resources."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import ResourceSecurity
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations
from pydantic import ConfigDict

import exec_server
from exec_server.integrations.mcp.mcp_box import McpBox
from exec_server.integrations.mcp.mcp_file_tools import FileTools
from exec_server.integrations.mcp.mcp_process_tools import ProcessTools
from exec_server.integrations.mcp.mcp_settings import McpSettings

# The arguments that the model has only if the operator allows the choice.
_ARGUMENTS = {"sandbox": "sandbox", "output": "max_output_bytes"}

_LOOKS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ACTS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)
_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)


def make_server(box: McpBox, settings: McpSettings) -> MCPServer:
    """An MCP server whose tools use *box*; `mcp_stdio` or `mcp_http` serves it."""
    processes, files = ProcessTools(box, settings), FileTools(box, settings)
    tools: list[tuple[str, Callable[..., Any], str, ToolAnnotations]] = [
        ("run", processes.run, "Run a command", _ACTS),
        ("start", processes.start, "Start a job", _ACTS),
        ("read", processes.read, "Read the output of a job", _LOOKS),
        ("write", processes.write, "Write to a job", _ACTS),
        ("screenshot", processes.screenshot, "See the screen of a job", _LOOKS),
        ("signal", processes.signal, "Signal a job", _ACTS),
        ("list", processes.list_jobs, "List jobs", _LOOKS),
        ("read_file", files.read_file, "Read a file", _LOOKS),
        ("write_file", files.write_file, "Write a file", _CHANGES),
        ("edit_file", files.edit_file, "Edit a file", _CHANGES),
        ("list_directory", files.list_directory, "List a directory", _LOOKS),
        ("search", files.search, "Search files", _LOOKS),
    ]
    hidden = {name for choice, name in _ARGUMENTS.items() if choice not in settings.model_may}
    server = MCPServer(
        "exec-server",
        version=exec_server.__version__,
        instructions=_instructions(settings),
        log_level="WARNING",
        tools=[
            strict_tool(_as_tool(function, hidden), name=name, title=title, annotations=hints)
            for name, function, title, hints in tools
            if hints is _LOOKS or not settings.read_only
        ],
    )
    _add_resources(server, processes, files)
    return server


def strict_tool(function: Callable[..., Any], **options: Any) -> Tool:
    """A tool that refuses arguments which it does not have, as its schema says.

    Without this, a misspelt `timeout` would be ignored, and so would a `sandbox` that the model
    believes to have chosen.
    """
    tool = Tool.from_function(function, **options)
    loose = tool.fn_metadata.arg_model
    strict: Any = type(loose.__name__, (loose,), {"model_config": ConfigDict(extra="forbid")})
    tool.fn_metadata.arg_model = strict
    tool.parameters = strict.model_json_schema(by_alias=True)
    return tool


def _add_resources(server: MCPServer, processes: ProcessTools, files: FileTools) -> None:
    # The path is one of the machine that the operator has opened; its sandbox decides what may be
    # read, as it does for `read_file`.
    anywhere = ResourceSecurity(reject_absolute_paths=False, reject_path_traversal=False)

    @server.resource("file:///{+path}", name="file", title="A file", security=anywhere)
    async def file(path: str) -> str | bytes:
        """A file of the machine, by its absolute path."""
        try:
            data = await files.content(f"/{path.lstrip('/')}")
        except (FileNotFoundError, IsADirectoryError) as exc:
            raise ResourceNotFoundError(str(exc)) from None
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    @server.resource("process:///{process_id}/log", name="log", mime_type="text/plain")
    async def log(process_id: str) -> str:
        """The output of a job, as far as the machine keeps it and one answer holds it."""
        try:
            return await processes.log(process_id)
        except exec_server.InvalidRequest as exc:
            raise ResourceNotFoundError(str(exc)) from None


def _instructions(settings: McpSettings) -> str:
    lines = [
        "These tools work on another machine, not on the one where you run. Paths are paths there.",
        "Use `run` for commands that end soon, and `start` with `read` for those that do not.",
        f"Commands start in {settings.cwd}." if settings.cwd else "",
        "A sandbox confines commands and files; writing may be refused." * settings.is_sandboxed,
    ]
    return " ".join(filter(None, lines))


def _as_tool(function: Callable[..., Any], hidden: set[str]) -> Callable[..., Any]:
    """*function* without the parameters *hidden*, which keep their defaults.

    The model gets the text of an error that it may be able to do something about.
    """
    signature = inspect.signature(function, eval_str=True)
    parameters = [each for name, each in signature.parameters.items() if name not in hidden]

    @functools.wraps(function)
    async def call(**arguments: Any) -> Any:
        try:
            return await function(**arguments)
        except (exec_server.ExecServerError, OSError, ValueError) as exc:
            raise ToolError(str(exc) or type(exc).__name__) from exc

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call
