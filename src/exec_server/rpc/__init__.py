"""JSON-RPC over one connection, both ways.

    peer.py      calls the other side, answers its requests, settles everything on loss
    lanes.py     a bounded number of requests at once, the others in order
    router.py    which function answers which method
    boundary.py  params and results to shapes, exceptions to error bodies

The client and the server both use it; the relay carries its messages without reading them.
"""
