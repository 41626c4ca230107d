"""Credentials for the registry.

credentials.py      the contract, and the credentials that do not change
registry_auth.py    finds the credential of an executor
auth_json.py        the credentials that Codex has stored
agent_identity.py   an agent whose key signs every request
json_web_tokens.py  reads and verifies JSON Web Tokens
credential_pipe.py  tokens that rotate, from standard input
stdin_lines.py      reads standard input in a thread
"""
