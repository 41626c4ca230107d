"""Floors: what requests of a principal cannot go beyond, whatever they say.

principal_floors.py  the floors of one connection's principal, applied to its requests
accounts.py          the Unix users that commands run as
refusal_lines.py     the log of refused requests
quotas.py            how much a principal may have at once, and how fast it may start work
host_floor.py        the hosts that commands and `http/request` may reach
"""
