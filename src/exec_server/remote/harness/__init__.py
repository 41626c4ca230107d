"""The harness's side of remote mode.

dialler.py             dials an environment through its registry, again and again
harness_connection.py  one stream with a socket of its own, as a Connection
"""
