"""Plugs for other projects, one module or package each; each needs the extra of its name.

A module here imports its framework, and of this package only what every user may import. Nothing
else in the package imports these modules, except the command that runs the MCP server.

mcp/            a server of the Model Context Protocol, which `exec-server mcp` runs
"""
