"""The supervisor: what a sandbox refuses is recorded, and can be granted while the command runs.

watched_calls.py     the filters: which system calls are notified
orders.py            a Plan -> what the supervisor is told; whether this machine can have one
notifications.py     the kernel's interface: a listener, calls, answers
attempts.py          what a call tries: paths and addresses, read from its process
shortcuts.py         calls that certainly meet no refusal, found quickly
judge.py             PURE: whether the policy refuses an attempt, and the bounded list of refusals
granted_work.py      does what was granted, outside of the sandbox
supervisor.py        answers the calls of one command: the process itself
record_channel.py    its socket to the server
record_file.py       its records in a file, if the command outlives the server
supervised_start.py  the keeper's side: forks the supervisor, puts the command behind it

The walls of the sandbox stay where they are: a call that goes on meets them all.
"""
