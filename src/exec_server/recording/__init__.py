"""Recordings of terminals: asciicast files, their text, and the way through them.

cast_format.py      headers and events of asciicast v2 and v3
cast_writer.py      appends events to a file, in whole lines whatever happens
cast_reader.py      reads a file, also one that still grows or was cut
secret_filter.py    removes known secrets, however the output is split
recorder.py         records the terminals of a server, within a limit of what may wait
spool.py            what happens to them, in memory that the recorder shares with the writer
writer_link.py      the recorder's side of the writer, which starts another if one dies
writer_messages.py  what both say to one another
writer_main.py      the writer: the process that converts the spool while there is time
open_casts.py       the recordings that it writes now
recording_files.py  a directory of recordings: names, the list, the quota
screen_text.py      every text that was ever on the screen, with time and row
required_text.py    a text that every match of a regular expression contains
text_index.py       this text and keyframes in a file beside the recording
playback.py         the screen at any moment of a recording
export.py           a recording as text, SVG or GIF
"""
