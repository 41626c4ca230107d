"""Connections that carry whole messages: WebSockets, lines, memory. The edge of the package.

connection.py         the contract between a transport and its user
address.py            the values of `--listen`
binding.py            sockets to listen on: bound here, or passed on by systemd
stale_sockets.py      files of Unix sockets that a killed program has left behind
listen.py             turns what a listening socket accepts into connections
accepting.py          accepts connections, with a bound on those that wait for a request
certificate_facts.py  what a certificate says: its validity, its issuer
certificate.py        the certificate of a listener, read again when its files change
tls_accepting.py      TLS handshakes with accepted connections, bounded in time and in number
tls_handshake.py      sends the reason to a peer whose TLS handshake is refused
socket_owner.py       the user behind a local connection
loopback_users.py     which users may use a port that is open on the loopback
http_front.py         the HTTP request on a WebSocket port: an answer, or an upgrade
refusal_log.py        which refusals of strangers are logged
failure_delays.py     slows down addresses that send wrong tokens
gathered_writes.py    several buffers at once, with a pause for a peer that does not read
websocket.py          one WebSocket as a Connection, on either side
tcp_activity.py       what the kernel knows about the traffic of a TCP connection
frame_masks.py        masks of large frames that a client sends
data_frames.py        takes the data frames of a client out of what is read
frame_headers.py      the bytes of the frames that a server sends
dial.py               connects to a URL, within a deadline
dial_target.py        where a URL leads, and how a failure is described
upgrade.py            the client's request for a WebSocket, and the server's answer
frames.py             a WebSocket for binary messages, to a rendezvous
silence_watch.py      notices that a socket swallows everything
picows_names.py       the names that are used of picows, loaded without the rest of it
lean_picows.py        loads the compiled part of picows alone
picows_internals.py   everything that is used of picows without documentation
fair_turns.py         bounded work for one connection in a turn of the event loop
unix.py               Unix sockets: tells WebSockets from plain lines
metered.py            connections that count their bytes
lines.py              one message a line
stdio.py              one connection on standard input and output
program.py            a server that is a child process of ours
memory_connection.py  two connected ends inside one event loop
"""
