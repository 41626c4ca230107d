"""Servers by name, as `environments.toml` and the variables configure them.

manager.py            EnvironmentManager, which users hold
lazy.py               one shared client of an environment, connected on first use
open_environment.py   connects to an environment of any kind
kinds.py              the kinds: this process, a URL, a program, behind a registry
environments_toml.py  the file and the variables
token_places.py       `exec-server.toml`, for tokens in files and variables
paired.py             environments that `exec-server pair` has added
bearer_tokens.py      where tokens come from
"""
