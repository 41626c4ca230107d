"""`exec-server port`: ports of a server on this machine, and ports of this machine on a server.

port_command.py   the command line
port_specs.py     reads `-L`, `-R`, `-D` and `--open`
port_runner.py    keeps the forwards, also over lost sessions
port_records.py   which `port` commands run on this machine: `port list` and `port close`
"""
