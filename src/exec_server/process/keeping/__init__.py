"""The parts of the keepers, which run alone with the standard library.

    c_parts.py           `signal` and `socket` without what takes long to import
    keeper_setup.py      what a keeper does first: its signals, its orphans and its socket
    server_messages.py   messages from and to the server, and the descriptors that come with them
    program_launch.py    a program is started: found, with its descriptors and its environment
    child_stdio.py       the descriptors of one program
    kept_descriptors.py  how many descriptors children may have, and those that are kept for longer
    held_outputs.py      the outputs of live programs, for the time after the server
    process_trees.py     which processes exist, who is below whom, and signals to them
    tree_marks.py        the marks that tell to which start a process belongs, and ends by them
    sandbox_watch.py     guards, supervisors and mounts of sandboxed programs
    late_parts.py        what is loaded when it is first needed

A keeper imports them from this package, but does not run `__init__.py` of `exec_server`: see the
docstring of ../keeper_command.py. The server uses some of them, too.
"""
