"""Who may do what, on a server and at a registry: one model for both.

principal.py        a principal: its name, its scopes, its floors and its quotas
floors.py           what follows from floors: their words, their contradictions, limits below them
method_scopes.py    which scope a request of each method needs
quantities.py       durations and rates, as people write them
token_secrets.py    secrets of tokens, their digests, and how long they are good
signed_token.py     makes JSON Web Tokens for a server that accepts signed ones
principal_record.py one principal with its credentials, as the file of principals keeps it
principals_file.py  the file of principals
"""
