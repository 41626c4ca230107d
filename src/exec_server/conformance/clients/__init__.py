"""Checks of clients: a scripted server that sees what a client does.

scripted_process.py  a process of that server: its numbered events, and reads of them
scripted_server.py   connections of the client under test, and what is answered without a script
client_check.py      how a check of a client is declared and run, and how a client is started
command_checks.py    one command from start to end: the handshake, order, repeats, odd messages
recovery_checks.py   lost connections: what is resumed, what is repeated, and when a client gives up
"""
