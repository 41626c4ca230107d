"""Recordings of terminals: asciicast files, their text, and the way through them.

cast_format.py      headers and events of asciicast v2 and v3
cast_writer.py      appends events to a file, in whole lines whatever happens
cast_reader.py      reads a file, also one that still grows or was cut
secret_filter.py    removes known secrets, however the output is split
recorder.py         records the terminals of a server: the queue, and the thread that empties it
event_batch.py      events for the writer; output that came almost at once is one of them
writer_link.py      the recorder's side of the writer, which starts another if one dies
writer_messages.py  what both say to one another
writer_main.py      the writer: the process that writes the files
recording_files.py  a directory of recordings: names, the list, the quota
screen_text.py      every text that was ever on the screen, with time and row
required_text.py    a text that every match of a regular expression contains
text_index.py       this text and keyframes in a file beside the recording
playback.py         the screen at any moment of a recording
export.py           a recording as text, SVG or GIF
"""
