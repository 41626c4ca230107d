"""Plugs for other projects, one module or package each; each needs the extra of its name.

A module here imports its framework, and of this package only what every user may import. Nothing
else in the package imports these modules, except the command that runs the MCP server.

ag2.py           a sandbox for AG2
boxes.py         clients that objects of other projects hold
deepagents.py    a sandbox for LangChain Deep Agents
fsspec.py        a file system for fsspec
google_adk.py    an environment for Google's ADK
harbor.py        an environment for Harbor
inspect.py       a sandbox provider for Inspect AI
mini_swe_agent.py  an environment for mini-swe-agent
openai_agents.py   `ShellTool` and `ApplyPatchTool` of the OpenAI Agents SDK
openai_agents_sandbox.py    the sandbox client of that SDK
openai_agents_session.py    its sessions
openai_agents_terminals.py  the terminals of a session
pydantic_ai.py   a workspace for Pydantic AI
smolagents.py    a Python executor for smolagents
workplaces.py    directories of servers in which commands and files of an agent are
mcp/             a server of the Model Context Protocol, which `exec-server mcp` runs
"""
