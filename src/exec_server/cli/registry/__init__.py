"""`exec-server registry` and its commands.

registry_command.py  runs a registry
registry_tokens.py   `registry token`
registry_queries.py  `registry env`, `registry events`
registry_options.py  shared options, and requests to a running registry
"""
