"""Byte streams over a session: what the server's end and the client's end have in common.

byte_stream.py    ByteStream: one end of a stream, with its windows and what was not acknowledged
delay_window.py   DelayWindow: how much of a stream may be under way without waiting in line
pace.py           BulkPace: lets bulk make way while small messages go to and fro
turns.py          StreamTurns: whose turn it is to send while the connection takes little
socket_bridge.py  SocketBridge: connects a socket with one end of a stream
"""
