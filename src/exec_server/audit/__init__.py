"""The audit log of servers, executors and registries: events in a chain of lines, in files.

event.py          the shape of an event
masking.py        removes secrets from command lines, texts and URLs
chain.py          numbers and hashes that join the lines, and the check of them
audit_file.py     appends events to a file, which it rotates
line_reserve.py   room on the disk that is set aside for the next lines
disk_sync.py      when lines are written through to the disk
audit_reader.py   reads the lines of a log and of its older files
event_words.py    an event as a line for people
ocsf.py           an event with the field names of OCSF
"""
