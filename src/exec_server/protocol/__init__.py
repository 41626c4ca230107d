"""The wire protocol: the names of methods and events, and the shapes of their messages. No I/O.

method.py          how a method or an event is declared
envelope.py        JSON-RPC messages, decoded and encoded
bulk.py            messages with one long base64 member
packed.py          messages whose long member follows as bytes, without base64
base64.py          strict base64
numbers.py         unsigned 64-bit numbers
paths.py           file: URIs and native paths
hooks.py           our own types for msgspec

lifecycle.py       `initialize`, `initialized` and `session/retain`
process.py         `process/*`
sharing.py         `process/watch`, `process/control`: many look on, one types
participants.py    who takes part in a process
jobs.py            `job/*` and `server/stop`
resources.py       limits of what a process may use
limit_words.py     limits as people write them
ends.py            why a process ended, and what it used
screen.py          what a terminal shows
denials.py         what a sandbox refused
env_policy.py      the variables that a process inherits
fs.py              `fs/*`
file_search.py     `fs/search`
file_watch.py      `fs/watch`
file_delta.py      `fs/signature` and `fs/copyRanges`
http.py            `http/*`
streams.py         `stream/*` and `process/ports`
network.py         `network/*` and the managed network of a process
environment.py     `environment/*`, configuration and the discovery of capabilities

sandbox.py         the `sandbox` member of requests, in every dialect
permissions.py     the profile inside of it
legacy_sandbox.py  the policies of older clients
sandbox_errors.py  errors in a `sandbox` member, in the words of the reference

registry.py        the HTTP API of a registry, pairing codes, URL schemes and variables
"""
