"""Principals on a server: who is behind a connection, and what it may not do.

admission.py          how a client has proved who it is, and which principal that makes it
known_principals.py   the principals of a file, found by token, certificate, user or name
principal_watch.py    follows the file of principals while the server runs
restricted_routes.py  the methods of a principal that may not use all of them
refused_requests.py   what a principal was refused
"""
