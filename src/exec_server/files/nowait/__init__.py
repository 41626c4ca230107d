"""File calls that never wait, so that the event loop can do them itself.

nonblocking.py  the calls: metadata, and small reads and writes
mounts.py       which file systems can make a call wait
linux_calls.py  the system calls for it, which Python does not have
"""
