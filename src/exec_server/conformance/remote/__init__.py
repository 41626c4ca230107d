"""The remote suite: an executor, and the registry and relay before it, seen as a harness sees them.

kit_frames.py       frames of the relay as bytes, right and wrong ones
kit_noise.py        the harness's half of the handshake, and the keys of a stream
kit_registry.py     what a harness asks of a registry
kit_relay.py        a socket of the relay, its streams, and messages on a stream
remote_support.py   what several of the checks do
handshake_checks.py the registry's answers, and handshakes
record_checks.py    records on a stream: order, borders, sizes
stream_checks.py    frames, resets, sessions and lost sockets
"""
