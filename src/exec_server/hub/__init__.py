"""The registry, where executors and harnesses find each other, and the relay between them.

    registry_service.py  starts and stops a registry, with all of its parts
    http/                one handler for each request and WebSocket
    access/              tokens, signed URLs, pairing codes and refusals
    cluster/             several nodes that are one registry
    relay/               frames between an executor and its harnesses, within one node
    observe/             audit log, metrics and telemetry
    bus/                 messages and compare-and-set between nodes
    store/               the records that a registry keeps

The way of a frame from a harness to an executor on another node:

    harness
       |  WebSocket
    +--v------------------------------- node A -+
    |  RelaySocket    reads the frame           |
    |  Exchange       finds the frame's stream  |   the exchange of a Passage
    |  NodeChannel    its port to the executor  |
    |  ReliableChannel  numbered packets        |
    +--|----------------------------------------+
       v  Bus: subject `node.<name of node B>`
    +--|------------------------------- node B -+
    |  ReliableChannel  orders and acknowledges |
    |  NodeChannel    the harness's port here   |
    |  Exchange       checks the stream's owner |   the exchange of a LiveRegistration
    |  RelaySocket    queues and writes         |
    +--|----------------------------------------+
       v  WebSocket
    executor

If both are on one node, the frame passes one exchange and no channel. Frames of the executor take
the same way back.

The words:

    environment    a name under which an executor is reached
    registration   the record of one `register` request; a newer one of the same name replaces it
    live registration  a registration whose executor is connected, with the socket that serves it
    socket         one WebSocket of an executor or harness, on the node to which it is connected
    stream         one encrypted connection of a harness to its executor, inside of their sockets
    port           what an exchange sends frames to: a socket, or a channel to a socket elsewhere
    exchange       routes frames between one executor's port and the ports of its harnesses
    passage        one harness on this node, with the exchange that takes its frames
    crossing       a passage to an executor on another node
    channel        joins a socket of this node with one of another node, over the bus
    reliable channel   the protocol of a channel: numbers, acknowledgements, repetition, credit
    owner record   which socket serves an environment; it changes by compare-and-set on the bus
    takeover       the message that a newer socket or registration has replaced an older one
    peer           another node of the same registry
    node           one process of a registry
"""
