"""The registry over HTTP and WebSocket: one handler for each request.

web.py                  paths to handlers, errors to answers
registry_api.py         requests of executors and harnesses: register, validate, connect
rendezvous.py           the WebSockets of executors and harnesses
environment_listing.py  the list of environments, page by page
status_page.py          the HTML page for people
registry_metrics.py     collects the metrics of a node
admission_gate.py       bounds the requests that run at the same time
connection_guard.py     bounds the connections that are not authenticated sockets
handover.py             gives the connections of upgrades from aiohttp to picows
tls_acceptor.py         accepts TLS connections and bounds their handshakes
"""
