"""Byte streams to ports and Unix sockets of the server's machine, in the manner of asyncio.

stream_calls.py      `client.open_connection`, `client.start_server` and `client.forward`
stream_lists.py      `client.list_streams` and `client.listening_ports`
client_streams.py    the client's ends of streams, which outlive connections
remote_transport.py  one end as an asyncio transport
stream_server.py     what `client.start_server` returns
forwards.py          local ports that lead to the server's machine, and the other way round
preview_front.py     web pages of a server's ports, each at an origin of its own
socks5.py            the greeting of SOCKS5, for a local port that leads to many places
helper_streams.py    streams on servers that do not know them, by a helper command
stream_place.py      a host and a port, or a path
"""
