"""Remote mode: both ends of connections through a registry and its rendezvous.

`exec_server.relay` decides what is sent; this package holds the sockets and asks the registry.

    executor/           the server's side: registers, and serves streams
    harness/            the client's side: dials an environment
    credentials/        the credentials for the registry
    registry_client.py  requests to the environment registry
    registry_http.py    small HTTP requests
    remote_config.py    the settings of an executor
    retry_delays.py     the pauses before another attempt
    identity.py         the keys of an executor or harness in a file
    executor_trust.py   which keys of an executor a harness accepts
    known_executors.py  the file of known executors
    authorized_harnesses.py  the file of harness keys that an executor serves
    enrolments.py       the environments that this machine is enrolled as
    state_dir.py        the directory for all these files
    trace_headers.py    the current trace as HTTP headers
"""
