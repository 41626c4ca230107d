"""An MCP server with one tool: over stdio, or over HTTP on a port that it prints."""

import os
import socket
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("probe")


@server.tool()
def whereabouts(word: str) -> str:
    """Say a word, and which process says it."""
    return f"{word} from {os.getpid()}"


if sys.argv[1:] == ["stdio"]:
    server.run("stdio")
else:
    listener = socket.create_server(("127.0.0.1", 0))
    print("ready", listener.getsockname()[1], flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", lifespan="on")
    uvicorn.Server(config).run(sockets=[listener])
