"""The server: connections, sessions, and the handlers of all methods.

serving.py         listens on an address, for the command line and to embed
server.py          the server without a listener: connections and sessions
late_services.py   what it offers besides processes, loaded when it is needed
session_factory.py  makes its sessions, with their processes, networks and recordings
context.py         one connection, as its handlers see it
session.py         one session, which outlives its connections
process_lists.py   the processes of all sessions of a principal
kept_sessions.py   sessions with durable jobs, which outlive the server
principals/        who is behind a connection, and what it may not do
floors/            what requests of a principal cannot go beyond
sharing/           any number of watchers and one driver for each process
handlers/          which function answers which method
streams/           byte streams to ports and Unix sockets of this machine
local_peers.py     which connections of this machine are accepted
take_over.py       takes a session from a connection that its client has lost
authentication.py  the `--ws-auth` modes
live_access.py     who gets in and who may stay, while tokens and principals change
secret_files.py    reads the files of tokens and secrets
health_pages.py    `/healthz`, `/readyz` and `/metrics`
server_metrics.py  the metrics of a server
server_audit.py    the audit log of a server
audited_requests.py  what the audit log says about a request
recorded_terminals.py  records every terminal
held_answers.py    answers that wait until the audit log is on the disk
capabilities.py    the capabilities that the server reports
sandbox_info.py    the sandbox backends that it reports
file_helpers.py    starts the helpers of sandboxed file requests
file_agents.py     starts the processes of searches and watches
"""
