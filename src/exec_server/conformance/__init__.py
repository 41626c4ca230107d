"""The conformance kit: black-box checks of any server or client that speaks the protocol.

It uses neither the client nor the server of this package: what it checks must not depend on them.

check.py           how a check is declared, run and judged
kit_wire.py        a connection to the server under test, over WebSocket or stdio
kit_process.py     a process on that connection, and its events
envelope_checks.py messages, errors and the handshake
process_checks.py  `process/*`: start, output, input, signals, the end
session_checks.py  sessions: lost connections, resuming, what is retained
file_checks.py     `fs/*`
http_checks.py     `http/*`
sandbox_checks.py  the sandbox of commands and file calls
remote/            the suite for executors behind a registry, with a wire of the relay of its own
clients/           checks of clients, with a scripted server
extension_checks.py  the extensions of this project, for servers that announce them
all_checks.py      all checks, in their order
deviations.py      where the reference is known to differ, and why
report.py          results as text, JSON, JUnit or HTML
"""
