"""Any number of watchers and one driver for each process.

    process_watches.py finds processes of other sessions, and keeps what is known of shared ones
    shared_process.py  who takes part in a process, who drives it, and what each of them hears
    participant.py     one who takes part: a watcher, or the session that has started the process
    output_watcher.py  the output of a process on its way to one watcher, within a window
    screen_pictures.py pictures of terminals, from the models of their screens
    driver_sizes.py    the sizes that drivers give to a terminal, not too many in a second

A process that is not shared has nothing of this.
"""
