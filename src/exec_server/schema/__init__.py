"""The protocol as data: an OpenRPC document, made from the shapes in `protocol` and their comments.

catalog.py     every method, event and error of the protocol
comments.py    the comments beside members and constants, read from the source
components.py  JSON Schemas of all shapes
openrpc.py     the OpenRPC document
promises.py    errors, limits, order and "since" of each method
relay_frames.py  the frames of the relay, read from relay.proto
relay_examples.json  frames of recorded traffic
examples.json  messages of recorded traffic, one for each method and event
"""
