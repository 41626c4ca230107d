"""The handlers: each answers one method and leaves the work to a service.

lifecycle.py    `initialize` and `session/retain`
process.py      `process/*`
sharing.py      `process/watch`, `process/unwatch` and `process/control`
screen.py       `process/screen` and `process/waitFor`
denials.py      `process/denials` and `process/grant`
jobs.py         `job/*` and `server/stop`
fs.py           `fs/*`
http.py         `http/*`
streams.py      `stream/*` and `process/ports`
environment.py  `environment/*`, configuration and the discovery of capabilities
protocol.py     `rpc.discover`
"""
