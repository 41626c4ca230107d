"""Floors: what requests of a principal cannot go beyond, whatever they say.

principal_floors.py  the floors of one connection's principal, applied to its requests
accounts.py          the Unix users that commands run as
host_floor.py        the hosts that commands and `http/request` may reach
"""
