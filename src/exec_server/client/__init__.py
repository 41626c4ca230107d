"""The client: one session on a server, which outlives its connections.

client.py            ExecServerClient, which users hold
client_session.py    its inside: calls, and the receivers of events
connect_options.py   every option of `connect`, once
connect_keywords.py  the same as keyword arguments; generated
arguments.py         checks of what callers pass in
os_errors.py         errors of the system over there as OSErrors
keyword_help.py      the options of a struct as keyword arguments, for `help()`
url_schemes.py       from a URL to a function that opens a connection
client_tls.py        the authorities that a client trusts, and its certificate
session_link.py      keeps a connection, and replaces it when it is lost
connection_link.py   one live connection: handshake, calls, events
link_watch.py        notices a connection that carries nothing any more
session_token.py     the text with which another program continues a session
network_policy.py    callbacks for the network of processes
discovery.py         `client.discovery`
tracing.py           OpenTelemetry spans
httpx_transport.py   the documented import path of the httpx transport

process/             processes and their output
flow/                flow control of output
files/               `client.fs`, and copies of trees
http/                `client.http`
streams/             byte streams to ports of the server's machine
environments/        servers by name
"""
