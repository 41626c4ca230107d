"""`exec-server mcp`: tools for agents.

mcp_command.py       the command
mcp_options.py       its options
http_peers.py        who may use the tools over HTTP without a token
"""
