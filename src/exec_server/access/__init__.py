"""Who may do what, on a server and at a registry: one model for both. No I/O.

principal.py  a principal: its name, its scopes, its floors and its quotas
floors.py     what follows from floors: their words, their contradictions, limits below them
"""
