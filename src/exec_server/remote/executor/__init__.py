"""The executor's side of remote mode.

executor.py           registers, and holds one socket to the rendezvous
relays.py             the two relays that an executor can serve
refused_harnesses.py  records of harnesses whose key was refused
executor_socket.py    the socket: performs the effects of the mux
executor_states.py    the states of an executor, for people who watch it
stream_connection.py  one stream of the socket, as a Connection
forward.py            forwards streams to another WebSocket server
"""
