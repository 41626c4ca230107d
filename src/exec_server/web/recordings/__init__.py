"""Recordings on the page, and going back in its terminals.

recording_calls.py   the calls that a tab may make
recording_shelf.py   the recordings of this machine: the list, searches and exports
recording_search.py  searches recordings, in a process of its own
recording_reads.py   the threads that read them, within a limited time
recorded_moments.py  the facts, the screen of a moment, and the events after it
terminal_history.py  what the terminals of the page have shown
"""
