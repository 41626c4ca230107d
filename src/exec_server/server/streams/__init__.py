"""The server's end of byte streams: what may be reached, and what is open.

stream_rules.py     what streams may reach and where they may listen, as the operator says
dialling.py         resolves a name once, checks the addresses and connects to a checked one
session_streams.py  makes the table of a session, with the server's rules and budget
stream_table.py     the streams and listeners of one session
stream_listener.py  a socket that accepts streams for a client
listening_ports.py  the TCP ports that processes of a session listen on
"""
