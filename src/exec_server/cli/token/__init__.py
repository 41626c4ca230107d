"""`exec-server token` and `whoami`: the principals of a server.

token_command.py   creates, lists, shows, rotates, revokes and removes principals
token_options.py   the options, and the principal that they describe
token_facts.py     principals as columns and as JSON
sign_token.py      makes a signed token (JWT) for a principal
whoami.py          `whoami`: what a server takes this client for
"""
