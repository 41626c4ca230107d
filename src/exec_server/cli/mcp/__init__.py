"""`exec-server mcp`: tools for agents.

mcp_command.py       the command
mcp_options.py       its options
"""
