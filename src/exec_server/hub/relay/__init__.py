"""The relay within one node: frames between an executor and its harnesses.

routing.py       which frame goes where, flow control and resets; no I/O
corks.py         writes frames, those of one read of another socket together
relay_socket.py  one WebSocket, with its queue, pings and timeouts
queue_memory.py  the bytes in all queues, and the shares of environments and tokens; no I/O
stream_ids.py    the stream id of a frame, found without decoding the frame
"""
