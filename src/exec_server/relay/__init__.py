"""The wire of remote mode: frames, the Noise channel in them, the streams of one socket. No I/O.

Bytes go in, effects come out (`effects.py`); `exec_server.remote` performs them.

    frame.py         relay frames, and their encoding in protobuf
    relay_pb2.py     made from relay.proto by `make proto`
    effects.py       what the holder of the socket is asked to do
    keys.py          the keys of both ends, and their JSON form
    noise.py         the handshake, and the ciphers that it leaves
    records.py       messages as a stream of bytes, cut into records
    reorder.py       frames back in sequence
    noise_stream.py  one encrypted stream after its handshake
    inbox.py         the messages that wait for a slow reader
    open_streams.py  the open streams of a socket, for both relays
    budget.py        a limit on failed handshakes
    mux.py           the executor's side: many encrypted streams on one socket
    harness_end.py   the harness's side: one encrypted stream
    trace.py         the trace context of a request
    plaintext.py     the older relay, both sides
    acks.py          the acknowledgements of the older relay
    segments.py      messages of the older relay in several frames
"""
