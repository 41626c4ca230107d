"""`make upgrade-check`: older releases beside this one, both ways.

- `__main__.py`: the command, and the table of what was seen
- `releases.py`: wheels of older commits and of this tree, each in an environment of its own
- `checks.py`: the checks: sessions, files, detached work, registries, durable jobs
- `probe.py`: what a program does with the client library, run by the Python of each release
"""
