"""Several nodes that are one registry.

registrations.py    the live registrations of this node, and the way to all others
registration.py     one live registration: an executor's socket on this node
ownership.py        which socket serves an environment, by compare-and-set
peers.py            which other nodes are alive
passages.py         how the frames of a harness reach its executor
channels.py         channels between two nodes
reliable.py         reliable messages over the bus; no I/O
reliable_halves.py  sender, receiver and packets of reliable.py
node_messages.py    the messages between nodes
"""
