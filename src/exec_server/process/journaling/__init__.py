"""The parts of the journal of a durable job, ../journal.py.

    journal_format.py  the bytes of its index: headers, slots, kinds of records
    journal_files.py   its files: private ones, and holes in them
    journal_index.py   what is known of a journal; its headers, slots and repair
    journal_space.py   old records are dropped, and their space is given back
    terminal_output.py  output of a terminal, which goes through a pipe

The durable keeper uses them, so they import the standard library and one another only, and no
`typing`.
"""
